//! The processor: code that Rust cannot express, and code that only assembly makes fast enough.
//!
//! Each file below is one group of functions and macros. Another processor implements the same
//! names in a folder beside `x86_64`. Macros take the addresses that they jump to as arguments, so
//! this folder imports nothing.
//!
//! | file | another processor |
//! | --- | --- |
//! | `entry_stubs`, `trampolines`, `thread_block`, `stack_switch`, `system_call` | needs its own |
//! | `registers`, `signal_frame`, `counter`, `tap_stubs`, `probes` | needs its own |
//! | `page`, `ifunc` | needs its own |
//! | `memory`, `strings`, `jemalloc_fast_path`, `next_fast_path` | may take plain Rust and calls |
//!
//! Outside of this folder these depend on the processor:
//!
//! - core's `arch/`, and the shapes of frames in core's `unwind/kinds.rs` and `unwind/rules.rs`;
//! - the place of a thread's descriptor in `unwind/stack_bounds.rs`, and of the blocks below it in
//!   `os/thread_locals.rs`;
//! - glibc's structure in `unwind/module_lookup.rs`;
//! - the 48 bits of an address in `allocator/layout.rs`;
//! - the bytes of a page in `allocator/layout.rs`, which are jemalloc's;
//! - the kernel's `struct stat` in `os/sys/file.rs`, and `shmid_ds` in `os/sys/attachable.rs`;
//! - the order in which stores become visible, in `wait` of `writer.rs`.
//!
//! May import: nothing.
//!
//! Not here: the purpose of these functions.

#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    any(target_env = "gnu", target_env = "musl")
)))]
compile_error!("heapprof's library runs on x86-64 Linux with glibc or musl; see README.md, Limits");

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
