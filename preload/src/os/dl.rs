//! The dynamic loader, asked for ourselves: definitions of functions, and modules of addresses.
//!
//! Danger: `dlopen` and `dlsym` take the loader's lock, so none of this is called from a hook. Our own
//! calls go to libc's `dlopen` (Law 11): the next definition may be a wrapper that finds the real one in
//! a constructor, which has not run yet.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::os::libc_trampolines;

/// libc's own dlopen(3). Null if libc has none.
///
/// # Safety
/// As there: `path` is null or a C string.
unsafe fn open(path: *const c_char, flags: c_int) -> *mut c_void {
    let Some(found) = libc_trampolines::in_libc(c"dlopen") else {
        return std::ptr::null_mut();
    };
    // SAFETY: the address of libc's dlopen, whose type this is.
    let real: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's promise.
    unsafe { real(path, flags) }
}

/// The first definition of a function, which the program calls.
pub(crate) fn default_definition(name: &CStr) -> *mut c_void {
    // Not RTLD_DEFAULT: for a library that is linked with -Bsymbolic, as we are, its own definitions are the default.
    // SAFETY: a null path is the program itself; its handle need not be given back.
    let found = unsafe {
        let program = open(std::ptr::null(), libc::RTLD_LAZY);
        libc::dlsym(program, name.as_ptr())
    };
    or_forget(found)
}

/// What a look-up found. If that is nothing, `dlerror` forgets it: it is nothing that the program should read of. Not by a call of
/// `dlerror`, which makes its text with `asprintf`: in a program that has a `malloc` and no `realloc` of its own, that brings a
/// block of the one to the other. A look-up that succeeds makes libc forget what came before.
pub(crate) fn or_forget(found: *mut c_void) -> *mut c_void {
    if found.is_null() {
        // SAFETY: a C string, and the handle that means "after this library".
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"abort".as_ptr()) };
    }
    found
}

/// A library's definition of a function, if the library is loaded; else null. Its handle is kept.
pub(crate) fn in_loaded(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: a C string; nothing is loaded, so nothing runs.
    let handle = unsafe { open(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if or_forget(handle).is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a handle, and a C string.
    or_forget(unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// Keeps the library of a function from being unloaded.
pub(crate) fn keep(function: *mut c_void) {
    if let Some((_, path)) = module_of(function) {
        // SAFETY: a C string; nothing is loaded, so nothing runs. The handle is never given back.
        or_forget(unsafe { open(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) });
    }
}

/// Where the module of an address begins, and its path, for as long as it is loaded. Needs no memory.
pub(crate) fn module_of(address: *mut c_void) -> Option<(usize, &'static CStr)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: writes one Dl_info when it returns other than 0.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled; the name is the loader's C string.
    unsafe {
        let info = info.assume_init();
        Some((info.dli_fbase as usize, CStr::from_ptr(info.dli_fname)))
    }
}

/// The one that does not run under another allocator at all: see `host/reexec.rs`.
pub(crate) const THREAD_SANITIZER: &str = "ThreadSanitizer";

/// The sanitizer that the program is built with. Each needs to be the allocator itself: at best it sees
/// nothing, at worst (ThreadSanitizer) it crashes under any other.
pub(crate) fn sanitizer() -> Option<&'static str> {
    // ThreadSanitizer first: a name that is not found costs the loader an allocation, and the first one of all would
    // lead from jemalloc's beginning into its interceptors and back to us.
    let all = [
        (c"__tsan_init", THREAD_SANITIZER),
        (c"__asan_init", "AddressSanitizer"),
        (c"__msan_init", "MemorySanitizer"),
        (c"__lsan_init", "LeakSanitizer"),
    ];
    let found = |name: &CStr| {
        // SAFETY: RTLD_DEFAULT and a C string.
        !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
    };
    let one = all.iter().find(|(name, _)| found(name));
    one.map(|&(_, what)| what)
}
