//! Handlers over musl, which has `pthread_atfork` itself.
//!
//! Danger: the C boundary, before our constructor, a function that is found and called by its
//! address, and assembly under a name that the linker gives.

use crate::arch::system_call::hidden_jump;
use crate::host::fork;
use std::ffi::c_int;

use super::Handler;

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
    unsafe { register(prepare, parent, child) }
}

// Registers jemalloc's handlers, past the export above: see build.rs.
hidden_jump! { "__wrap_pthread_atfork" => register }

/// Calls musl's own function. Returns 0, or ENOMEM.
///
/// # Safety
/// As pthread_atfork(3).
unsafe extern "C" fn register(prepare: Handler, parent: Handler, child: Handler) -> c_int {
    let real = super::real(c"pthread_atfork");
    if real.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: libc's function of that name, whose type is this one's.
    let real: unsafe extern "C" fn(Handler, Handler, Handler) -> c_int =
        unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    unsafe { real(prepare, parent, child) }
}
