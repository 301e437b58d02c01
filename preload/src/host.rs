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
//! May import: os, state, allocator, unwind, recording, writer.
//!
//! Not here: allocation; no data flows through this folder.

pub(crate) mod atfork;
pub(crate) mod dlopen;
pub(crate) mod exec;
pub(crate) mod exit;
pub(crate) mod foreign_allocators;
pub(crate) mod fork;
pub(crate) mod main_thread;
pub(crate) mod namespaces;
pub(crate) mod privilege_drop;
pub(crate) mod raw_syscalls;
pub(crate) mod reexec;
pub(crate) mod seccomp_filters;
pub(crate) mod setid;
