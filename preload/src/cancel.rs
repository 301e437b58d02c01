//! Asynchronous cancellation: not while a thread is in one of our pieces of code.
//!
//! A thread with `PTHREAD_CANCEL_ASYNCHRONOUS` may be ended between any two instructions. In the middle of a hook
//! that would leave a walker taken and a place in the queue claimed and never filled, at which the
//! writer would wait for ever. So a hook is deferred, and what was asked for meanwhile happens at its
//! end, or at the program's next cancellation point.

use std::ffi::c_int;

unsafe extern "C-unwind" {
    // POSIX.1-2008; the thread may be unwound from here. In glibc an exchange on the thread's own descriptor; no lock, no allocation.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// Cancellation of this thread is deferred while this lives.
pub(crate) struct Deferred(c_int);

impl Deferred {
    #[inline]
    pub(crate) fn begin() -> Deferred {
        let mut old = DEFERRED;
        // SAFETY: writes one int.
        unsafe { pthread_setcanceltype(DEFERRED, &raw mut old) };
        Deferred(old)
    }
}

impl Drop for Deferred {
    #[inline]
    fn drop(&mut self) {
        if self.0 == ASYNCHRONOUS {
            // SAFETY: reads nothing, writes nothing of ours. The thread may end here: whoever holds a
            // `Deferred` drops it last.
            unsafe { pthread_setcanceltype(ASYNCHRONOUS, std::ptr::null_mut()) };
        }
    }
}
