//! `libheapprof.so`: becomes a program's allocator and records a sample of what it allocates.
//!
//! ```text
//!             in the profiled process                                   outside
//!  app ─> hooks ─> recording ═> writer ═> log ═════════════════════════> heapprof
//!           │          │           └──> dumps
//!           │          └ unwind
//!           └ allocator
//!  host: fork, exec, exit, dlopen, ids, seccomp filters; no data flows through it
//! ```
//!
//! docs/architecture.md follows a sample along this picture. docs/glossary.md defines the words.
//!
//! # Map
//!
//! A folder imports only folders in the lines above its own line; `scripts/check-layers` checks it.
//!
//! | folder | concept |
//! | --- | --- |
//! | `arch` | what belongs to one processor: assembly, registers, system calls |
//! | `os` | kernel, libc and loader, callable from inside malloc; knows nothing of profiling |
//! | `state` | the present state of the process and the thread: phase, interval, settings, … |
//! | `allocator` | the program's heap and our own arena, behind one interface |
//! | `unwind` | from registers and a stack to return addresses; no imports from `allocator` |
//! | `recording` | the records that a sampled malloc or free leaves for the writer |
//! | `writer` | the one thread of ours: log (`log`), dumps (`dump`), sessions |
//! | `host` | changes that the program makes to its own process: fork, exec, exit, … |
//! | `hooks` | the functions that the program calls in place of libc's; no imports from `host` |
//! | `boot` | the constructor: the order of start |
//! | `attach` | the order of start in a process that runs already |
//!
//! # The laws
//!
//! A hook obeys Laws 1 to 6. Law 7 is about a fork, and Laws 9 to 11 are about all code of this
//! library. Laws 8, 10 and 12 bind the reader, too.
//!
//! 1. A hook never allocates through the exports, never waits without a bound, never takes a lock
//!    that a thread inside the loader, libc or the application may hold, and never lets a panic
//!    cross the C edge.
//! 2. A sample is known by its id, not by its address. Its record is queued before the pointer is
//!    returned to the program. The sample is taken out of the table before the real free. So the
//!    event of the free may come late, when the address has another block already.
//! 3. realloc: take the old sample, call, and on failure put it back; a null result is never an
//!    event.
//! 4. A lost allocation record is noise and is counted. A lost free must not happen: its block
//!    seems to be in use for ever (a phantom leak).
//! 5. Nothing thread-local has a destructor. Nothing static needs a constructor. `malloc` works
//!    from the first instruction on.
//! 6. The profiler may give up; the program may not notice. Giving up is one function
//!    (`state::phase::give_up`) and leaves a record.
//! 7. After fork the child touches no lock, queue or mapping whose state another thread of the
//!    parent owned.
//! 8. Unsampling happens in exactly one function (`heapprof_core::Weight`).
//! 9. We keep no descriptor that the program could close or reuse. We write to no file that is not
//!    ours, and into no folder that nobody named.
//! 10. Every loss has a counter by cause, and the counters are in every output. A result that is
//!     cut, damaged or unknown is never called exact.
//! 11. Our own calls reach the kernel or libc's own function; the program's calls go on to the next
//!     definition.
//! 12. The claims of an input about itself (sizes, counts, names) never decide how much memory,
//!     time or how many files a reader takes.

// libheapprof-attach.so has fewer parts, and leaves items of the others without a use.
#![cfg_attr(feature = "attach", allow(dead_code, unused_imports, unused_macros))]

#[cfg_attr(feature = "attach", path = "allocator/attached.rs")]
mod allocator;
mod arch;
#[cfg(feature = "attach")]
mod attach;
#[cfg(not(feature = "attach"))]
mod boot;
mod hooks;
mod host;
mod os;
mod recording;
mod state;
mod unwind;
mod writer;
