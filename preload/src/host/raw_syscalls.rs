//! `syscall` and `prctl`: what the program asks of the kernel past the functions of libc's that we export for the same.
//!
//! Danger: assembly on the way of any system call. libseccomp puts up filters so, and some programs end so; of everything else nothing is
//! looked at but the number, and libc's own function is jumped to with registers and stack as they came. It must be that one, and there must be no
//! frame: a thread that `clone` makes returns on a stack of its own, and a program may have all system calls caught but those of libc's code
//! (`PR_SET_SYSCALL_USER_DISPATCH`).

use std::ffi::{c_int, c_long};

use crate::arch::entry_stubs::{forward_prctl, forward_system_call};
use crate::host::{exit, main_thread, seccomp_filters};
use crate::os::next_symbol::Next;

/// libc's own; null before boot.
static SYSCALL: Next = Next::new(c"syscall");
/// libc's own; null before boot.
static PRCTL: Next = Next::new(c"prctl");

/// At boot: finds libc's functions.
pub(crate) fn prepare() {
    for function in [&SYSCALL, &PRCTL] {
        let _ = function.address();
    }
}

forward_system_call! {
    /// As syscall(2).
    ///
    /// # Safety
    /// As there.
    #[unsafe(no_mangle)]
    fn syscall(number: c_long) -> c_long;
    SYSCALL, before_syscall: SYS_seccomp SYS_prctl SYS_exit SYS_exit_group
}

forward_prctl! {
    /// As prctl(2).
    ///
    /// # Safety
    /// As there.
    #[unsafe(no_mangle)]
    fn prctl(option: c_int) -> c_int;
    PRCTL, before_prctl, syscall: PR_SET_SECCOMP PR_SET_TSC
}

/// Before a system call of one of those numbers. errno is left alone.
extern "C" fn before_syscall(number: c_int, a: u64, b: u64, c: u64) {
    match number.into() {
        // The kernel takes the strict mode with nothing else said only. libseccomp asks with a flag whether there is one.
        libc::SYS_seccomp => match a as u32 {
            libc::SECCOMP_SET_MODE_STRICT if b as u32 == 0 && c == 0 => {
                seccomp_filters::before_filter(libc::SECCOMP_MODE_STRICT.into(), 0);
            }
            libc::SECCOMP_SET_MODE_FILTER => {
                seccomp_filters::before_filter(libc::SECCOMP_MODE_FILTER.into(), c)
            }
            _ => {}
        },
        libc::SYS_prctl => before_prctl(a as c_int, b, c),
        libc::SYS_exit => main_thread::ends_past_libc(),
        libc::SYS_exit_group => exit::finish_last(),
        _ => {}
    }
}

/// Before a prctl. errno is left alone.
extern "C" fn before_prctl(option: c_int, a: u64, b: u64) {
    match option {
        libc::PR_SET_SECCOMP => seccomp_filters::before_filter(a, b),
        libc::PR_SET_TSC if a as c_int == libc::PR_TSC_SIGSEGV => {
            seccomp_filters::before_loss_of_counter()
        }
        _ => {}
    }
}
