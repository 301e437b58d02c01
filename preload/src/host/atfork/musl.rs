//! Handlers over musl, which has `pthread_atfork` itself.
//!
//! Danger: the C boundary, before our constructor, a function that is found and called by its
//! address, and assembly under a name that the linker gives.

use crate::arch::system_call::hidden_jump;
use crate::host::fork;
use crate::os::libc_trampolines::LibcFunction;
use crate::os::next_symbol::NextSymbol;
use std::ffi::{c_int, c_void};

use super::Handler;

/// musl's own, for what jemalloc and we register.
static FROM_LIBC: LibcFunction = LibcFunction::new(c"pthread_atfork");
/// The next definition, for what the program registers.
static NEXT: NextSymbol = NextSymbol::new(c"pthread_atfork");

pub(super) fn register_ours() {
    let handlers = [fork::before, fork::in_parent, fork::in_child];
    let [prepare, parent, child] = handlers.map(|it: extern "C" fn()| it as Handler);
    // SAFETY: functions that live as long as the process: the library is never unloaded.
    unsafe { register(prepare, parent, child) };
}

/// Registers handlers, as pthread_atfork(3).
///
/// # Safety
/// As pthread_atfork(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
) -> c_int {
    super::register_ours_and_jemallocs();
    // SAFETY: the caller's promise.
    unsafe {
        register_by(
            NEXT.address().unwrap_or(std::ptr::null_mut()),
            prepare,
            parent,
            child,
        )
    }
}

// Registers jemalloc's handlers, past the export above: see build.rs.
hidden_jump! { "__wrap_pthread_atfork" => register }

/// Calls musl's own function. Returns 0, or ENOMEM.
///
/// # Safety
/// As pthread_atfork(3).
unsafe extern "C" fn register(prepare: Handler, parent: Handler, child: Handler) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let function = FROM_LIBC.address().unwrap_or(0) as *mut c_void;
        register_by(function, prepare, parent, child)
    }
}

/// Calls that definition. 0, or ENOMEM; null is no definition.
///
/// # Safety
/// As pthread_atfork(3); `function` is null or a definition of that name.
unsafe fn register_by(
    function: *mut c_void,
    prepare: Handler,
    parent: Handler,
    child: Handler,
) -> c_int {
    if function.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: a definition of that name, whose type is this one's.
    let function: unsafe extern "C" fn(Handler, Handler, Handler) -> c_int =
        unsafe { std::mem::transmute(function) };
    // SAFETY: the caller's promise.
    unsafe { function(prepare, parent, child) }
}
