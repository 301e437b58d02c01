//! Handlers over glibc: its `pthread_atfork` is linked into every program and library, and calls
//! `__register_atfork`, which we export.
//!
//! Danger: the C boundary, before our constructor, and a function that is found and called by its
//! address.

use std::ffi::{c_int, c_void};

use super::Handler;
use crate::arch::thread_block::is_ready;
use crate::host::fork;

unsafe extern "C" {
    /// The token of this library for what it registers, defined by the compiler's start files.
    static __dso_handle: u8;
}

pub(super) fn register_ours() {
    // SAFETY: functions that live as long as the process: the library is never unloaded.
    unsafe {
        libc::pthread_atfork(
            Some(fork::before),
            Some(fork::in_parent),
            Some(fork::in_child),
        )
    };
}

/// Registers handlers, for `pthread_atfork`. `owner` is the token of a library, whose handlers are
/// removed when it is unloaded. Returns 0, or ENOMEM.
///
/// # Safety
/// As pthread_atfork(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    owner: *mut c_void,
) -> c_int {
    if !is_ready() {
        return libc::ENOMEM; // in an IFUNC resolver: libc cannot be reached from here yet
    }
    let real = super::real(c"__register_atfork");
    if real.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: libc's function of that name, whose type is this one's.
    let real: unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
        unsafe { std::mem::transmute(real) };
    // The registrations of jemalloc and of this library come here, too.
    if owner.cast_const() != (&raw const __dso_handle).cast() {
        super::register_ours_and_jemallocs();
    }
    // SAFETY: the caller's promise.
    unsafe { real(prepare, parent, child, owner) }
}
