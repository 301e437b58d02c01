//! Model: a profile as a value, and the values that it is made of.
//!
//! Imports: `compressed`, `resolve` (a frame that came with the input), `history` (what the past of
//! a row says).
//!
//! Not here: reading a file (`read`), names of addresses (`naming`), judgements (`analysis`).

pub(crate) mod amount;
pub(crate) mod calendar;
pub(crate) mod change;
pub(crate) mod confidence;
pub(crate) mod counted;
pub(crate) mod extras;
pub(crate) mod fitted;
pub(crate) mod fork_remark;
pub(crate) mod held_address;
pub(crate) mod labels;
pub(crate) mod loaded_module;
pub(crate) mod mapped_memory;
pub(crate) mod measure;
pub(crate) mod memory_course;
pub(crate) mod merged_address;
pub(crate) mod metric;
pub(crate) mod module_index;
pub(crate) mod nearest;
pub(crate) mod noise;
pub(crate) mod pace;
pub(crate) mod page_reading;
pub(crate) mod part;
pub(crate) mod peak;
pub mod pprof_proto;
pub(crate) mod precision;
pub(crate) mod printable;
pub(crate) mod profile;
pub(crate) mod quantity;
pub(crate) mod run;
pub(crate) mod span;
pub(crate) mod special_threads;
