//! errno: the error number that exported functions set, and that all our other work for the program
//! preserves.
//!
//! libc keeps it in a word for each thread. The call to reach it only computes an address.

use std::ffi::{c_int, c_void};

/// Returns this thread's errno.
pub(crate) fn get() -> c_int {
    // SAFETY: a word of this thread, which lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub(crate) fn set(value: c_int) {
    // SAFETY: the same argument.
    unsafe { *libc::__errno_location() = value }
}

/// Sets errno to ENOMEM and returns null, as an allocation that fails.
pub(crate) fn out_of_memory() -> *mut c_void {
    set(libc::ENOMEM);
    std::ptr::null_mut()
}

/// Runs `work` and restores errno.
pub(crate) fn preserve<R>(work: impl FnOnce() -> R) -> R {
    let before = get();
    let done = work();
    set(before);
    done
}

/// Takes the place of a function that this libc lacks.
pub(crate) extern "C" fn no_function() -> c_int {
    set(libc::ENOSYS);
    -1
}
