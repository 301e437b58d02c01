//! `syscall`: what the program asks of the kernel by number, past the functions of libc's that we export for the same.
//!
//! libseccomp puts up filters so, and some programs end so.

use std::ffi::c_long;

use crate::sys::{self, Errno};
use crate::{exit, fence, main_thread};

/// As syscall(2): what was not passed is read all the same, from registers and the caller's stack, and the kernel does not look at it.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn syscall(
    number: c_long,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
) -> c_long {
    match number {
        libc::SYS_seccomp => match a as u32 {
            libc::SECCOMP_SET_MODE_STRICT => fence::is_put_up(libc::SECCOMP_MODE_STRICT.into(), 0),
            libc::SECCOMP_SET_MODE_FILTER => fence::is_put_up(libc::SECCOMP_MODE_FILTER.into(), c),
            _ => {}
        },
        libc::SYS_prctl if a == libc::PR_SET_SECCOMP as u64 => fence::is_put_up(b, c),
        libc::SYS_exit => main_thread::ends_past_libc(),
        libc::SYS_exit_group => exit::finish_last(),
        _ => {}
    }
    // SAFETY: the caller's call, as it came.
    match unsafe { sys::syscall(number, [a, b, c, d, e, f]) } {
        Ok(value) => value as c_long,
        Err(Errno(number)) => {
            // SAFETY: libc's errno of this thread.
            unsafe { *libc::__errno_location() = number };
            -1
        }
    }
}
