//! The host: what the program does to its own process, and what we do to survive it.
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
