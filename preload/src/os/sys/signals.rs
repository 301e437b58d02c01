//! Signals of this thread: the mask, pending signals, actions, and the alternate stack.

use super::{Errno, syscall};

/// A region in which this thread takes no signal: signals that our own writes raise must not reach
/// the program.
pub(super) struct SignalBlock(u64);

impl SignalBlock {
    pub(super) fn new() -> SignalBlock {
        SignalBlock(block_signals())
    }
}

impl Drop for SignalBlock {
    fn drop(&mut self) {
        restore_signals(self.0);
    }
}

/// Consumes the blocked signal that the kernel sends this thread together with a failed write. It
/// is SIGXFSZ beyond a file size limit, and SIGPIPE without a reader. Both end a program by
/// default.
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
    // SAFETY: reads a word of the kernel's sigset size, and a timespec of zero, which does not
    // wait.
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

/// The signals that libc's threads send each other: to cancel a thread, and to change the ids of
/// all threads, which waits for an answer. musl has a third, for timers. They are Linux's first
/// real-time signals, which programs do not use.
const LIBCS_OWN: u64 = if cfg!(target_env = "musl") {
    0b111
} else {
    0b11
} << (32 - 1);

/// Blocks every signal except libc's own in this thread. Returns the previous mask.
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

/// Returns true if this thread is in a handler on an alternate stack (`sigaltstack`), or if the
/// kernel does not tell.
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

/// The kernel's `struct sigaction`, as far as this library reads it.
#[repr(C)]
#[derive(Default)]
pub(crate) struct KernelSigaction {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    mask: u64,
}

/// Returns the kernel's action for a signal.
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

/// Restores the action that [`sigaction_of`] returned.
///
/// # Safety
/// Nothing else has changed the action in between.
pub(crate) unsafe fn restore_sigaction(signal: i32, action: &KernelSigaction) {
    // SAFETY: reads one kernel sigaction with an 8-byte mask, which the kernel itself filled.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [signal as u64, std::ptr::from_ref(action) as u64, 0, 8, 0, 0],
        )
    };
}
