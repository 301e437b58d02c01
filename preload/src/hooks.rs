//! Hooks: the functions that the program calls in place of libc's, and the sampling decision.
//!
//! ```text
//!  program ─┬> malloc_fast ── countdown expired, or Bloom filter hit ─> malloc ─┬> sample
//!           └> malloc, aligned, operators ─────────────────────────────────────┘
//! ```
//!
//! | concept | file |
//! | --- | --- |
//! | the fast paths of `malloc` and `free` | `malloc_fast.rs` |
//! | the fast paths if the next allocator serves the program | `next_fast.rs` |
//! | the other functions of libc's allocator | `malloc.rs`, `aligned.rs`, `mallinfo.rs` |
//! | C++'s operators | `operators.rs` |
//! | the sampling decision, and the records of samples | `sample.rs` |
//! | blocks before the loader is done | `early_heap.rs` |
//! | the samples as probes for a tracer | `probes.rs` |
//! | the address of a function in a stack | `entry.rs` |
//! | what the program may call to control the profiler | `c_api.rs` |
//! | allocators that are linked into the program | `taps.rs` |
//! | the functions that map memory | `mappings.rs` |
//! | the records of mappings | `mapping_changes.rs` |
//! | the function that makes threads | `thread_creation.rs` |
//! | what an allocator of the program's own may call to report its blocks | `pool.rs` |
//!
//! May import: arch, os, state, allocator, unwind, recording, writer.
//!
//! Not here: how a record reaches the log.
//!
//! Circle: `malloc`, `malloc_fast`: the fast path jumps to the sampled path of the same function.

#[cfg(not(feature = "attach"))]
pub(crate) mod aligned;
#[cfg(not(feature = "attach"))]
pub(crate) mod c_api;
#[cfg(not(feature = "attach"))]
pub(crate) mod early_heap;
#[cfg(not(feature = "attach"))]
pub(crate) mod entry;
#[cfg(not(feature = "attach"))]
pub(crate) mod mallinfo;
#[cfg(not(feature = "attach"))]
pub(crate) mod malloc;
#[cfg(not(feature = "attach"))]
pub(crate) mod malloc_fast;
pub(crate) mod mapping_changes;
#[cfg(not(feature = "attach"))]
pub(crate) mod mappings;
#[cfg(not(feature = "attach"))]
pub(crate) mod next_fast;
#[cfg(not(feature = "attach"))]
pub(crate) mod operators;
#[cfg(not(feature = "attach"))]
pub(crate) mod pool;
pub(crate) mod probes;
pub(crate) mod sample;
pub(crate) mod taps;
#[cfg(not(feature = "attach"))]
pub(crate) mod thread_creation;
