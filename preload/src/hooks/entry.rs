//! The frame of an exported function: its address in a recorded stack, and its failure.

use std::ffi::c_void;

use crate::os::errno;

/// A PC inside an exported function.
macro_rules! entry {
    ($function:path) => {
        ($function as *const () as u64) + 1
    };
}
pub(crate) use entry;

/// Null with ENOMEM.
pub(crate) fn out_of_memory() -> *mut c_void {
    errno::set(libc::ENOMEM);
    std::ptr::null_mut()
}
