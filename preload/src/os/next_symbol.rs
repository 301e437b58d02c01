//! The next definition of a function that we export: libc's own, mostly.
//!
//! Danger: `dlsym`. It takes the loader's lock, so it is called from these wrappers only, never from a
//! hook: whoever calls `dlclose` or `unshare` may as well call the loader.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that is looked up when it is first wanted.
#[repr(C)]
pub(crate) struct Next {
    /// Null until then. Assembly jumps there, once boot has looked it up.
    found: AtomicPtr<c_void>,
    name: &'static CStr,
}

// `host/exec.rs` and `host/raw_syscalls.rs` load the address from where the whole is.
const _: () = assert!(std::mem::offset_of!(Next, found) == 0);

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address, if any library after us defines it.
    pub(crate) fn address(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: a C string, and a handle that means "after the caller's library".
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Release);
        }
        (!found.is_null()).then_some(found)
    }
}
