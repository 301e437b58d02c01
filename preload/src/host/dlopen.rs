//! dlopen and its relatives: the loader's functions that concern the recording.
//!
//! `dlclose` is exported to learn that code was unmapped. Other code may then appear at the same
//! addresses, and must not be confused with it.
//!
//! `dlopen` and `dlmopen` are exported for one flag. `RTLD_DEEPBIND` binds a plug-in's `malloc` to
//! libc's own, past every replaced allocator. A block that crosses between the two is then freed by
//! the wrong allocator, which crashes. So the flag is removed.
//!
//! The loader searches by the RUNPATH and `$ORIGIN` of its caller, which it determines from the
//! return address. So libc's function is reached by a jump, not by a call, and its caller is still
//! the program. A namespace that dlmopen makes has its own libc and no hook of ours, and the flag
//! changes nothing there. A walk that meets code of the new library looks its module up.
//!
//! A plain path depends on no caller. While the process is recorded, libc's function is called for
//! such a path, and the library is looked at before the program gets it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::arch::entry_stubs::jump_with_flags;
use crate::os::next_symbol::NextSymbol;
use crate::os::{errno, sys};
use crate::recording::labels;
use crate::state::phase;
use crate::unwind::{module_lookup, modules, python};

static REAL_CLOSE: NextSymbol = NextSymbol::new(c"dlclose");
static REAL_OPEN: NextSymbol = NextSymbol::new(c"dlopen");
#[cfg(target_env = "gnu")]
static REAL_OPEN_IN: NextSymbol = NextSymbol::new(c"dlmopen");

/// The flag that is removed. musl's loader has neither the flag nor `dlmopen`.
#[cfg(target_env = "gnu")]
const DEEPBIND: c_int = libc::RTLD_DEEPBIND;
#[cfg(target_env = "musl")]
const DEEPBIND: c_int = 0;

/// Watcher: functions that are called when libraries appear and go.
pub(crate) struct Watcher {
    /// Called after a library was opened, with the number of threads before, if it is known.
    pub(crate) opened: fn(Option<usize>),
    /// Called after a library was closed.
    pub(crate) closed: fn(),
}

static WATCHER: OnceLock<Watcher> = OnceLock::new();

/// At boot: sets the watcher.
pub(crate) fn watch(watcher: Watcher) {
    let _ = WATCHER.set(watcher);
}

/// Closes a library, as dlclose(3).
///
/// # Safety
/// `handle` is one that dlopen returned.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = REAL_CLOSE.address() else {
        return -1;
    };
    // SAFETY: the address of libc's dlclose.
    let real: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    let close = || unsafe { real(handle) };
    let answer = labels::around_close(|| python::around_close(close));
    modules::note_dlclose();
    if let Some(watcher) = WATCHER.get() {
        (watcher.closed)();
    }
    answer
}

jump_with_flags! {
    /// Opens a library, as dlopen(3), without `RTLD_DEEPBIND`.
    ///
    /// # Safety
    /// As dlopen(3): `path` is null or a C string.
    #[unsafe(no_mangle)]
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    two: real_dlopen, !DEEPBIND
}

/// Returns the function that opens that library: libc's dlopen, one that looks at the library, or
/// one that fails, if there is none.
///
/// # Safety
/// `path` is null or a C string.
unsafe extern "C" fn real_dlopen(path: *const c_char) -> *mut c_void {
    extern "C" fn none(_: *const c_char, _: c_int) -> *mut c_void {
        std::ptr::null_mut()
    }
    module_lookup::note_dlopen();
    // SAFETY: the caller's promise.
    let is_plain = !path.is_null() && is_plain_path(unsafe { CStr::from_ptr(path) });
    if is_plain && phase::is_recording() {
        return open_and_look as *mut c_void;
    }
    REAL_OPEN
        .address()
        .unwrap_or(none as extern "C" fn(*const c_char, c_int) -> *mut c_void as *mut c_void)
}

/// Returns true if the loader needs nothing of its caller to find the file.
fn is_plain_path(path: &CStr) -> bool {
    let path = path.to_bytes();
    path.contains(&b'/') && !path.contains(&b'$')
}

/// Opens a library, and looks at it.
///
/// # Safety
/// As dlopen(3), with a path.
unsafe extern "C-unwind" fn open_and_look(path: *const c_char, flags: c_int) -> *mut c_void {
    let Some(real) = REAL_OPEN.address() else {
        return std::ptr::null_mut();
    };
    let threads = sys::threads();
    // SAFETY: the address of libc's dlopen, or of a definition with its type.
    let real: unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    let handle = unsafe { real(path, flags) };
    if !handle.is_null() {
        let errno = errno::get();
        labels::after_open();
        python::after_open();
        if let Some(watcher) = WATCHER.get() {
            (watcher.opened)(threads);
        }
        errno::set(errno);
    }
    handle
}

#[cfg(target_env = "gnu")]
jump_with_flags! {
    /// Opens a library in a namespace, as dlmopen(3), without `RTLD_DEEPBIND`.
    ///
    /// # Safety
    /// As dlmopen(3): `path` is a C string.
    #[unsafe(no_mangle)]
    fn dlmopen(name_space: libc::Lmid_t, path: *const c_char, flags: c_int) -> *mut c_void;
    three: real_dlmopen, !DEEPBIND
}

/// Returns libc's dlmopen, or a function that fails, if there is none.
#[cfg(target_env = "gnu")]
extern "C" fn real_dlmopen() -> *mut c_void {
    extern "C" fn none(_: libc::Lmid_t, _: *const c_char, _: c_int) -> *mut c_void {
        std::ptr::null_mut()
    }
    module_lookup::note_dlopen(); // the library may be of the program's own namespace
    REAL_OPEN_IN.address().unwrap_or(
        none as extern "C" fn(libc::Lmid_t, *const c_char, c_int) -> *mut c_void as *mut c_void,
    )
}
