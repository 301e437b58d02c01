//! libc's function that makes a thread, for this library's own calls.
//!
//! Danger: assembly with a name that the linker puts in place of libc's (`--wrap`, in the build
//! script). This library exports a function with libc's name, which records the threads of the
//! program and goes on to the next definition (`hooks/thread_creation.rs`). Our own calls must not
//! reach it (Law 11).

use std::ffi::{c_int, c_void};

use crate::arch::system_call::hidden_jump;
use crate::os::libc_trampolines::LibcFunction;

hidden_jump! { "__wrap_pthread_create" => create }

/// libc's own function.
pub(crate) static PTHREAD_CREATE: LibcFunction = LibcFunction::new(c"pthread_create");

/// pthread_create(3).
///
/// # Safety
/// As pthread_create(3).
unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    let Some(found) = PTHREAD_CREATE.address() else {
        return libc::EAGAIN;
    };
    // SAFETY: libc's function of that name, which has this type.
    let create: Create = unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's promise.
    unsafe { create(thread, attributes, start, argument) }
}
