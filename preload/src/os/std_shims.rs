//! Rust's library's way to the kernel, where libc may have none.
//!
//! Danger: assembly under libc's names. `stat64` and `fstat64` are functions of libc's since 2.33 only (before that a
//! compiler puts other names in their place), `gettid` since 2.30, `statx` since 2.28; and of a version that any of a library's imports wants, a weak one as well, the
//! loader asks libc, and runs no program without. So they are defined here as plain system calls, hidden: only this library's own
//! calls reach them. What a kernel does not know fails with ENOSYS, as in libc, and Rust's library has other ways.

use crate::arch::system_call::hidden_system_calls;

// The kernel's `struct stat` is libc's. Rust's library imports the last two weakly, and an assembler that sees both would make
// these weak as well: there the linker puts our names in place of libc's (`build.rs`).
hidden_system_calls! {
    sets_errno:
    "stat64" = libc::SYS_stat;
    "fstat64" = libc::SYS_fstat;
    "__wrap_gettid" = libc::SYS_gettid;
    "__wrap_statx" = libc::SYS_statx;
}
