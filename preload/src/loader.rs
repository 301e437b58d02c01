//! `dlclose`: what was loaded may be gone.
//!
//! It is exported to learn that code was unmapped, before other code can appear at the same place and be taken for
//! it. `dlopen` is not: the loader looks at the caller's RUNPATH, which would then be ours; new modules
//! are found when a walk first meets them.

use std::ffi::{c_int, c_void};

use crate::modules;
use crate::next::Next;

static REAL: Next = Next::new(c"dlclose");

/// As dlclose(3).
///
/// # Safety
/// `handle` is one that dlopen returned.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = REAL.address() else {
        return -1;
    };
    // SAFETY: the address of libc's dlclose.
    let real: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    let answer = unsafe { real(handle) };
    modules::something_was_closed();
    answer
}
