//! Handlers over glibc: its `pthread_atfork` is linked into every program and library, and calls
//! `__register_atfork`, which we export.
//!
//! Danger: the C boundary, before our constructor, and a function that is found and called by its
//! address.

use std::ffi::{c_int, c_void};

use super::Handler;
use crate::arch::thread_block::is_ready;
use crate::host::fork;
use crate::os::libc_trampolines::LibcFunction;
use crate::os::next_symbol::NextSymbol;

unsafe extern "C" {
    /// The token of this library for what it registers, defined by the compiler's start files.
    static __dso_handle: u8;
}

/// libc's own, for what jemalloc and we register.
static FROM_LIBC: LibcFunction = LibcFunction::new(c"__register_atfork");
/// The next definition, for what the program registers.
static NEXT: NextSymbol = NextSymbol::new(c"__register_atfork");

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
    // jemalloc's handlers come here, too, and ours: they go to libc itself (Law 11).
    let is_ours = owner.cast_const() == (&raw const __dso_handle).cast();
    let function = if is_ours {
        FROM_LIBC.address().unwrap_or(0) as *mut c_void
    } else {
        super::register_ours_and_jemallocs();
        NEXT.address().unwrap_or(std::ptr::null_mut())
    };
    if function.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: a definition of that name, whose type is this one's.
    let function: unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
        unsafe { std::mem::transmute(function) };
    // SAFETY: the caller's promise.
    unsafe { function(prepare, parent, child, owner) }
}
