//! The log: the file of records, its segments and its checkpoints.
//!
//! May import: os, state, allocator, unwind, recording, and siblings in writer.

pub(crate) mod checkpoint;
pub(crate) mod output;
pub(crate) mod parent_log;
pub(crate) mod rotation;
pub(crate) mod segments;
pub(crate) mod sorted_runs;
