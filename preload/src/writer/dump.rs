//! Dump: the heap files that the library itself writes (`dumps.rs`), and their content at one
//! moment (`snapshot.rs`).
//!
//! May import: os, state, allocator, unwind, recording, and siblings in writer.

pub(crate) mod dumps;
pub(crate) mod snapshot;
