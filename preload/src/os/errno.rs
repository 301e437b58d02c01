//! errno: how the functions that we export fail, and what all else that we do for the program leaves alone.
//!
//! It is a word of libc's for each thread, reached by a call that only computes its address.

use std::ffi::c_int;

/// This thread's.
pub(crate) fn get() -> c_int {
    // SAFETY: a word of this thread's, which lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's.
pub(crate) fn set(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Does something, and has errno be what it was before.
pub(crate) fn left_alone<R>(work: impl FnOnce() -> R) -> R {
    let before = get();
    let done = work();
    set(before);
    done
}

/// In place of a function that this libc does not have.
pub(crate) extern "C" fn no_function() -> c_int {
    set(libc::ENOSYS);
    -1
}
