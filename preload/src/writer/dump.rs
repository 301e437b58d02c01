//! Dumps: the heap files that the library itself writes.
//!
//! May import: os, state, allocator, unwind, recording, and siblings in writer.

pub(crate) mod dumps;
pub(crate) mod snapshot;
