//! Queries to the dynamic loader, for our own use: definitions of functions, and modules of
//! addresses.
//!
//! Danger: `dlopen` and `dlsym` take the loader's lock, so hooks call none of these functions. Our
//! own calls go to libc's `dlopen` (Law 11). The next definition may be a wrapper that finds the
//! real one in a constructor that has not run yet.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::os::libc_trampolines::LibcFunction;
use crate::os::link_map;

/// Calls libc's own dlopen(3). Returns null if libc has none.
///
/// # Safety
/// The contract of dlopen(3): `path` is null or a C string.
unsafe fn open(path: *const c_char, flags: c_int) -> *mut c_void {
    static DLOPEN: LibcFunction = LibcFunction::new(c"dlopen");
    let Some(found) = DLOPEN.address() else {
        return std::ptr::null_mut();
    };
    // SAFETY: the address of libc's dlopen, whose type this is.
    let real: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's promise.
    unsafe { real(path, flags) }
}

/// Returns the first definition of a function, which is the one that the program calls.
pub(crate) fn default_definition(name: &CStr) -> *mut c_void {
    // Not RTLD_DEFAULT: this library is linked with -Bsymbolic, so its own definitions would be the
    // default.
    // SAFETY: a null path is the program itself; its handle need not be released.
    let found = unsafe {
        let program = open(std::ptr::null(), libc::RTLD_LAZY);
        libc::dlsym(program, name.as_ptr())
    };
    clear_error_if_null(found)
}

/// Returns the result of a look-up. If the result is null, makes libc discard the error text,
/// because the program must not find our error in `dlerror`.
///
/// Calling `dlerror` for this is wrong: it builds its text with `asprintf`. In a program that
/// defines `malloc` but no `realloc`, that passes a block of one allocator to the other. A look-up
/// that succeeds discards the earlier error as well.
pub(crate) fn clear_error_if_null(found: *mut c_void) -> *mut c_void {
    if found.is_null() {
        // SAFETY: a C string, and the handle that means "after this library".
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"abort".as_ptr()) };
    }
    found
}

/// Returns a library's definition of a function, or null if the library is not loaded. Keeps the
/// library's handle.
pub(crate) fn in_loaded_library(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: a C string; no library is loaded, so no code runs.
    let handle = unsafe { open(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if clear_error_if_null(handle).is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a handle, and a C string.
    clear_error_if_null(unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// Prevents the library of a function from being unloaded.
pub(crate) fn pin_library_of(function: *mut c_void) {
    if let Some((_, path)) = module_of(function) {
        // SAFETY: a C string; no library is loaded, so no code runs. The handle is never released.
        clear_error_if_null(unsafe { open(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) });
    }
}

/// Returns the start address and the path of an address's module. Both are valid while the module
/// is loaded. Allocates nothing.
pub(crate) fn module_of(address: *mut c_void) -> Option<(usize, &'static CStr)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: writes one Dl_info if it returns another value than 0.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled; the name is the loader's C string.
    unsafe {
        let info = info.assume_init();
        Some((info.dli_fbase as usize, CStr::from_ptr(info.dli_fname)))
    }
}

/// The sanitizer that cannot run under another allocator at all, so the program is re-executed
/// without this library.
pub(crate) const THREAD_SANITIZER: &str = "ThreadSanitizer";

/// Returns the sanitizer that the program is built with. Each sanitizer must be the allocator
/// itself. Under another allocator it detects nothing, or it crashes (ThreadSanitizer).
pub(crate) fn sanitizer() -> Option<&'static str> {
    // ThreadSanitizer is first. A look-up that fails allocates, and the very first allocation would
    // lead from jemalloc's initialization into its interceptors and back to us.
    let all = [
        (c"__tsan_init", THREAD_SANITIZER),
        (c"__asan_init", "AddressSanitizer"),
        (c"__msan_init", "MemorySanitizer"),
        (c"__lsan_init", "LeakSanitizer"),
    ];
    let found = |name: &CStr| {
        // The loader formats an error for each name that is not found, so only what may be found is
        // asked for.
        // SAFETY: RTLD_DEFAULT and a C string.
        link_map::may_be_defined(name)
            && !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
    };
    let one = all.iter().find(|(name, _)| found(name));
    one.map(|&(_, what)| what)
}
