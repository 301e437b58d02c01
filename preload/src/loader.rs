//! `dlclose`: what was loaded may be gone.
//!
//! It is exported to learn that code was unmapped, before other code can appear at the same place and be taken for
//! it. `dlopen` is not: the loader looks at the caller's RUNPATH, which would then be ours; new modules
//! are found when a walk first meets them.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::modules;

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// As dlclose(3).
///
/// # Safety
/// `handle` is one that dlopen returned.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let mut real = REAL.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: a C string; the next library in the search order is libc, which has it.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr()) };
        REAL.store(real, Ordering::Release);
    }
    if real.is_null() {
        return -1;
    }
    // SAFETY: the address of libc's dlclose.
    let real: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    let answer = unsafe { real(handle) };
    modules::something_was_closed();
    answer
}
