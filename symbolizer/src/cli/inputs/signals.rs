//! Signals: those that ask this process to end, waited for in place of a sleep.
//!
//! No handler is installed. The signals are blocked, and the main thread takes them off the queue.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

const ASKING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// See the module's text.
pub(crate) struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals. To be called while the process has one thread.
    pub(crate) fn block() -> Signals {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `set` is room for a signal set; the call initialises it.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in ASKING {
            // SAFETY: `set` was initialised above, and the signals exist.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: initialised above.
        let set = unsafe { set.assume_init() };
        // SAFETY: the set is initialised; a null pointer asks for no old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        Signals { set }
    }

    /// Waits until then, or for a signal: then returns true.
    pub(crate) fn came_before(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let time = libc::timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: libc::c_long::from(left.subsec_nanos()),
            };
            let none = std::ptr::null_mut();
            // SAFETY: set and time are initialised; a null pointer asks for no details.
            let signal = unsafe { libc::sigtimedwait(&raw const self.set, none, &raw const time) };
            if signal > 0 {
                return true;
            }
            // Else the time is over, or the wait was interrupted by something that is not ours.
            if left <= Duration::from_millis(1) {
                return false;
            }
        }
    }

    /// Lets the next signal end the process at once.
    pub(crate) fn unblock(&self) {
        let set = &raw const self.set;
        // SAFETY: the set is initialised; a null pointer asks for no old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set, std::ptr::null_mut()) };
    }
}
