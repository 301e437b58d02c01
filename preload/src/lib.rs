//! `libheapprof.so`: becomes a program's allocator and records a sample of what it allocates.
//!
//! ```text
//!  app ─> exports ─> hook ─> walk ─> session ═> inlet ─> writer ─> output (log)
//!           │         │       │                   └ ledger ─> dumps
//!           │         │       └ seats, walkers, modules, stack
//!           │         └ tls, blocks
//!           └ je (jemalloc)
//!  api, control, desk: what is in force, and who asked for it
//!  descriptors: whose table our thread opens files in; ahead: what must be there before rights are given up;
//!  fence: system call filters, before the program puts them up
//!  boot, beginning, fork, exit, signal, loader: turn the phase; no data flows through them
//! ```
//!
//! # The laws
//!
//! 1. A hook never allocates through the exports, never waits without a bound, never takes a lock that
//!    a thread inside the loader, libc or the application may hold, and never lets a panic cross the
//!    C edge.
//! 2. A sample is known by its id, not by its address. Its record is queued before the pointer is
//!    returned to the program; it is taken out of the sample table before the real free. A late
//!    `Free{id}` is then harmless.
//! 3. realloc: take the old sample, call, and on failure put it back; a null result is never an event.
//! 4. A lost allocation record is noise and is counted; a lost free is a phantom leak and must not
//!    happen.
//! 5. Nothing thread-local has a destructor. Nothing static needs a constructor. `malloc` works from
//!    the first instruction the loader runs.
//! 6. The profiler may give up; the program may not notice. Giving up is one function and leaves a
//!    record.
//! 7. After fork the child touches no lock, queue or mapping whose state another thread of the parent
//!    owned.
//! 8. Unsampling happens in exactly one place (`heapprof_core::Weight`).
//! 9. We keep no file descriptor that the program could close or reuse (`os/fd_table.rs`); we write to no file that is
//!    not ours.
//! 10. Every loss has a counter by cause, and the counters are in every output.

mod allocator;
mod arch;
mod boot;
mod hooks;
mod host;
mod os;
mod recording;
mod state;
mod unwind;
mod writer;
