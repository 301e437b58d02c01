//! Signals of this thread.

use super::{Errno, syscall};

/// While it lives, this thread takes no signal: what our own writing raises must not reach the program.
pub(super) struct Fence(u64);

impl Fence {
    pub(super) fn new() -> Fence {
        Fence(block_signals())
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        restore_signals(self.0);
    }
}

/// Takes back the signal that the kernel sent this thread along with that answer to a write, while it
/// is blocked: SIGXFSZ beyond a file size limit, SIGPIPE without a reader. Both end a program by default.
pub(super) fn swallow_signal_of(error: Errno) {
    let signal = match error.0 {
        libc::EFBIG => libc::SIGXFSZ,
        libc::EPIPE => libc::SIGPIPE,
        _ => return,
    };
    let set = 1u64 << (signal - 1);
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: reads a word of the kernel's sigset size and a timespec of zero, which does not wait.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigtimedwait,
            [
                std::ptr::from_ref(&set) as u64,
                0,
                std::ptr::from_ref(&now) as u64,
                8,
                0,
                0,
            ],
        )
    };
}

/// The signals by which libc's threads reach each other: to cancel one, and to have all change their ids, which waits
/// for an answer; musl has one more, for timers. Linux's first real-time signals, not for programs to use.
const LIBCS_OWN: u64 = if cfg!(target_env = "musl") {
    0b111
} else {
    0b11
} << (32 - 1);

/// Blocks every signal but libc's own in this thread and returns the mask before.
pub(crate) fn block_signals() -> u64 {
    let (all, mut before) = (!LIBCS_OWN, 0u64);
    // SAFETY: two words of the kernel's sigset size.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as u64,
                std::ptr::from_ref(&all) as u64,
                std::ptr::from_mut(&mut before) as u64,
                8,
                0,
                0,
            ],
        )
    };
    before
}

/// Restores a mask that [`block_signals`] returned.
pub(crate) fn restore_signals(mask: u64) {
    // SAFETY: reads one word of the kernel's sigset size.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as u64,
                std::ptr::from_ref(&mask) as u64,
                0,
                8,
                0,
                0,
            ],
        )
    };
}

/// Whether this thread is in a handler that has a stack of its own (`sigaltstack`); or the kernel does not say.
pub(crate) fn is_on_signal_stack() -> bool {
    // SAFETY: integers and a null pointer.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: changes nothing, writes one stack_t.
    let answer = unsafe {
        syscall(
            libc::SYS_sigaltstack,
            [0, std::ptr::from_mut(&mut stack) as u64, 0, 0, 0, 0],
        )
    };
    answer.is_err() || stack.ss_flags & libc::SS_ONSTACK != 0
}

/// The kernel's `struct sigaction`, as far as we look at it.
#[repr(C)]
#[derive(Default)]
pub(crate) struct KernelSigaction {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    mask: u64,
}

/// What the kernel holds for a signal.
pub(crate) fn sigaction_of(signal: i32) -> Option<KernelSigaction> {
    let mut action = KernelSigaction::default();
    // SAFETY: writes one kernel sigaction with an 8-byte mask.
    unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [
                signal as u64,
                0,
                std::ptr::from_mut(&mut action) as u64,
                8,
                0,
                0,
            ],
        )
    }
    .ok()?;
    Some(action)
}

/// Gives a signal what [`sigaction_of`] said of it.
///
/// # Safety
/// Nothing else has changed it since.
pub(crate) unsafe fn restore_sigaction(signal: i32, action: &KernelSigaction) {
    // SAFETY: reads one kernel sigaction with an 8-byte mask; what it says was in force before.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [signal as u64, std::ptr::from_ref(action) as u64, 0, 8, 0, 0],
        )
    };
}
