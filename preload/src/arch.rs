//! The processor: code that Rust cannot express, and code that only assembly makes fast enough.
//!
//! Each file below is one group of functions and macros. Another processor implements the same
//! names in a folder beside `x86_64`. Macros take the addresses that they jump to as arguments, so
//! this folder imports nothing.
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
