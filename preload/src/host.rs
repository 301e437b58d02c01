//! Host: changes that the program makes to its own process, and how the recording survives them.
//!
//! | the program | file |
//! | --- | --- |
//! | forks | `fork.rs`, `atfork.rs` |
//! | executes another program | `exec.rs` |
//! | ends, or ends its main thread | `exit.rs`, `main_thread.rs` |
//! | loads and unloads libraries | `dlopen.rs` |
//! | changes its ids or its root directory | `setid.rs`, `privilege_drop.rs` |
//! | changes its namespaces | `namespaces.rs` |
//! | restricts its system calls | `seccomp_filters.rs`, `raw_syscalls.rs` |
//! | brings its own allocator | `foreign_allocators.rs`, `reexec.rs` |
//!
//! May import: arch, os, state, allocator, unwind, recording, writer.
//!
//! Not here: allocation; no data flows through this folder.

#[cfg(not(feature = "attach"))]
pub(crate) mod atfork;
#[cfg(not(feature = "attach"))]
pub(crate) mod dlopen;
#[cfg(not(feature = "attach"))]
pub(crate) mod exec;
pub(crate) mod exit;
#[cfg(not(feature = "attach"))]
pub(crate) mod foreign_allocators;
#[cfg(not(feature = "attach"))]
pub(crate) mod fork;
#[cfg(not(feature = "attach"))]
pub(crate) mod main_thread;
#[cfg(not(feature = "attach"))]
pub(crate) mod namespaces;
#[cfg(not(feature = "attach"))]
pub(crate) mod privilege_drop;
#[cfg(not(feature = "attach"))]
pub(crate) mod raw_syscalls;
#[cfg(not(feature = "attach"))]
pub(crate) mod reexec;
#[cfg(not(feature = "attach"))]
pub(crate) mod seccomp_filters;
#[cfg(not(feature = "attach"))]
pub(crate) mod setid;
