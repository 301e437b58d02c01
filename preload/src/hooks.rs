//! The hooks: functions that the program calls in place of libc's, and the sampling decision.
//!
//! May import: os, state, allocator, unwind, recording, writer.
//!
//! Not here: how a record reaches the log.
//!
//! Circle: `malloc`, `malloc_fast`: the fast way jumps to the sampled one, which is of the same function.

pub(crate) mod aligned;
pub(crate) mod c_api;
pub(crate) mod early_heap;
pub(crate) mod entry;
pub(crate) mod mallinfo;
pub(crate) mod malloc;
pub(crate) mod malloc_fast;
pub(crate) mod operators;
pub(crate) mod sample;
