//! Log: the file of records, its segments and its checkpoints.
//!
//! | concept | file |
//! | --- | --- |
//! | the log's file, and the names of a process's files | `output.rs`, `file_names.rs` |
//! | the last record of a log whose writer has no time left | `cut_mark.rs` |
//! | the title of the process | `title.rs` |
//! | the log of the process before the fork | `parent_log.rs` |
//! | a log within a bound | `rotation.rs`, `segments.rs` |
//! | the first part of a segment | `checkpoint.rs`, `sorted_runs.rs` |
//!
//! May import: os, state, allocator, unwind, recording, and siblings in writer.

pub(crate) mod checkpoint;
pub(crate) mod cut_mark;
pub(crate) mod file_names;
pub(crate) mod output;
pub(crate) mod parent_log;
pub(crate) mod rotation;
pub(crate) mod segments;
pub(crate) mod sorted_runs;
mod title;
