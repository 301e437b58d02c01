//! Analysis: numbers and judgements that are computed from whole profiles and logs.
//!
//! Imports: `resolve`, `history`, `model`, `read`, `naming`.
//!
//! Not here: how a result is written (`export`, `report`) or shown (`cli`).

pub(crate) mod coarse_past;
pub(crate) mod completeness;
pub(crate) mod diff;
pub(crate) mod doubt;
pub(crate) mod dump_triggers;
pub(crate) mod explain;
pub(crate) mod growth;
pub(crate) mod health;
pub(crate) mod heights;
pub(crate) mod held_address;
pub(crate) mod limit;
pub(crate) mod merge;
pub(crate) mod moment;
pub(crate) mod noise;
pub(crate) mod page_moment;
pub(crate) mod pinning;
pub(crate) mod recording_conditions;
pub(crate) mod resident_memory;
pub(crate) mod rows;
pub(crate) mod shown_mappings;
pub(crate) mod timeline;
pub(crate) mod view;
