//! The operating system: system calls, libc and the dynamic loader, callable from inside malloc.
//!
//! May import: arch, and value types of core and format.
//!
//! Not here: profiling, and whether anything is profiled.

pub(crate) mod backoff;
pub(crate) mod cancellation;
pub(crate) mod clock;
pub(crate) mod code;
pub(crate) mod credentials;
pub(crate) mod diagnostics;
pub(crate) mod dl;
pub(crate) mod elf_symbols;
pub(crate) mod environment;
pub(crate) mod errno;
pub(crate) mod executable;
pub(crate) mod fd_table;
pub(crate) mod files;
pub(crate) mod libc_trampolines;
pub(crate) mod link_map;
pub(crate) mod mapping_shims;
pub(crate) mod memory_limits;
pub(crate) mod next_symbol;
pub(crate) mod pagemap;
pub(crate) mod private_stack;
pub(crate) mod procfs;
pub(crate) mod seccomp;
pub(crate) mod std_shims;
pub(crate) mod sys;
pub(crate) mod thread_locals;
pub(crate) mod thread_shims;
