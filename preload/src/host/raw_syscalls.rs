//! Raw system calls: `syscall` and `prctl`, by which a program bypasses libc functions that we
//! export.
//!
//! Danger: assembly in the path of every such system call. libseccomp installs seccomp filters this
//! way, and some programs end this way. For every other call, only the number is inspected, and the
//! code jumps to the next definition with registers and stack unchanged. There must be no frame,
//! because a thread that `clone` makes returns on a stack of its own. The call must not be made
//! here, because a program may have all system calls intercepted except those of libc's code
//! (`PR_SET_SYSCALL_USER_DISPATCH`).

use std::ffi::{c_int, c_long};

use crate::arch::entry_stubs::{forward_prctl, forward_system_call};
use crate::host::{exit, main_thread, seccomp_filters};
use crate::os::next_symbol::NextSymbol;

/// The next definition; null before boot.
static SYSCALL: NextSymbol = NextSymbol::new(c"syscall");
/// The next definition; null before boot.
static PRCTL: NextSymbol = NextSymbol::new(c"prctl");

/// Finds the next definitions, at boot.
pub(crate) fn prepare() {
    for function in [&SYSCALL, &PRCTL] {
        let _ = function.address();
    }
}

forward_system_call! {
    /// Makes a system call, as syscall(2).
    ///
    /// # Safety
    /// As syscall(2).
    #[unsafe(no_mangle)]
    fn syscall(number: c_long) -> c_long;
    SYSCALL, before_syscall, "__wrap_syscall": SYS_seccomp SYS_prctl SYS_exit SYS_exit_group
}

forward_prctl! {
    /// Operates on the process, as prctl(2).
    ///
    /// # Safety
    /// As prctl(2).
    #[unsafe(no_mangle)]
    fn prctl(option: c_int) -> c_int;
    PRCTL, before_prctl, "__wrap_syscall": PR_SET_SECCOMP PR_SET_TSC
}

/// Handles a system call of one of those numbers before it is made. errno is preserved.
extern "C" fn before_syscall(number: c_int, a: u64, b: u64, c: u64) {
    match number.into() {
        // The kernel accepts the strict mode only without flags and arguments. libseccomp passes a
        // flag to find out if the mode exists.
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
        libc::SYS_exit => main_thread::on_raw_exit(),
        libc::SYS_exit_group => exit::finish_last(),
        _ => {}
    }
}

/// Handles a prctl before it is made. errno is preserved.
extern "C" fn before_prctl(option: c_int, a: u64, b: u64) {
    match option {
        libc::PR_SET_SECCOMP => seccomp_filters::before_filter(a, b),
        libc::PR_SET_TSC if a as c_int == libc::PR_TSC_SIGSEGV => {
            seccomp_filters::before_loss_of_counter()
        }
        _ => {}
    }
}
