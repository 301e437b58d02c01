//! The next definition of a function that we export, mostly libc's own.
//!
//! Danger: `dlsym` takes the loader's lock. So only exported wrappers call it, and never a hook: a
//! caller of `dlclose` or `unshare` may as well call the loader.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that is looked up at its first use.
#[repr(C)]
pub(crate) struct NextSymbol {
    /// Null before the look-up. Assembly jumps to this address, after boot has looked it up.
    found: AtomicPtr<c_void>,
    name: &'static CStr,
}

// Assembly stubs load the address from the start of the structure.
const _: () = assert!(std::mem::offset_of!(NextSymbol, found) == 0);

impl NextSymbol {
    pub(crate) const fn new(name: &'static CStr) -> NextSymbol {
        NextSymbol {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Returns the address if it was looked up before. Takes no lock.
    pub(crate) fn known(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Acquire);
        (!found.is_null()).then_some(found)
    }

    /// Returns the address, if a library after this one defines the function.
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
