//! System calls for Rust's standard library that an older libc may lack.
//!
//! Danger: assembly with libc's names. `stat64` and `fstat64` are functions of libc only from 2.33
//! on (older compilers substitute other names), `gettid` from 2.30, `statx` from 2.28. The loader
//! requires the version of every import, even of a weak one, and starts no program without it. So
//! these functions are defined here as plain system calls. They are hidden: only this library's own
//! calls reach them. A call that the kernel lacks fails with ENOSYS, as in libc, and Rust's library
//! has a fallback.

use crate::arch::system_call::hidden_system_calls;

// The kernel's `struct stat` is libc's. Rust's library imports the last two weakly, and an
// assembler that sees both would make these definitions weak, too. So the linker puts our names in
// place of libc's (the build script passes `--wrap`).
hidden_system_calls! {
    "stat64" = libc::SYS_stat;
    "fstat64" = libc::SYS_fstat;
    "__wrap_gettid" = libc::SYS_gettid;
    "__wrap_statx" = libc::SYS_statx;
}
