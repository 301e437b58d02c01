//! Entry: the PC that stands for an exported function in a stack, and the function's failure.

use std::ffi::c_void;

use crate::os::errno;

/// Evaluates to a PC inside an exported function.
macro_rules! entry {
    ($function:path) => {
        ($function as *const () as u64) + 1
    };
}
pub(crate) use entry;

/// Sets errno to ENOMEM and returns null.
pub(crate) fn out_of_memory() -> *mut c_void {
    errno::set(libc::ENOMEM);
    std::ptr::null_mut()
}
