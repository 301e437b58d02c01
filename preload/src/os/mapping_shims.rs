//! libc's functions that map memory, for this library's own calls and jemalloc's.
//!
//! Danger: assembly with names that the linker puts in place of libc's (`--wrap`, in the build
//! script). This library exports functions with libc's names, which record the program's mappings
//! and go on to the next definition (`hooks/mappings.rs`). Our own calls must not reach them (Law
//! 11). jemalloc calls these functions while it holds its locks.
//!
//! Not here: `mmap`, if jemalloc is there: the allocator's shims define it.

use std::ffi::{c_int, c_void};

use crate::arch::system_call::hidden_jump;
use crate::os::libc_trampolines::LibcFunction;
use crate::os::sys;

hidden_jump! { "__wrap_mmap64" => map }
#[cfg(feature = "attach")]
hidden_jump! { "__wrap_mmap" => map }
hidden_jump! { "__wrap_munmap" => unmap }
hidden_jump! { "__wrap_sbrk" => move_end }

static MMAP: LibcFunction = LibcFunction::new(c"mmap");
static MUNMAP: LibcFunction = LibcFunction::new(c"munmap");
static SBRK: LibcFunction = LibcFunction::new(c"sbrk");

/// Lets the calls of a tapped function go to its moved instructions, past the tap. These stay: libc
/// is never unloaded.
#[cfg(feature = "attach")]
pub(crate) fn redirect(entry: u64, moved: u64) {
    for function in [&MMAP, &MUNMAP, &SBRK] {
        function.redirect(entry as usize, moved as usize);
    }
}

/// mmap(2). An offset has 64 bits in either function.
///
/// # Safety
/// As mmap(2).
pub(crate) unsafe extern "C" fn map(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
    let Some(found) = MMAP.address() else {
        return libc::MAP_FAILED;
    };
    // SAFETY: libc's function of that name, which has this type.
    let mmap: Mmap = unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's promise.
    unsafe { mmap(address, len, protection, flags, file, offset) }
}

/// munmap(2). The place of a mapping of ours is free again.
///
/// # Safety
/// As munmap(2).
pub(crate) unsafe extern "C" fn unmap(address: *mut c_void, len: usize) -> c_int {
    let Some(found) = MUNMAP.address() else {
        return -1;
    };
    // SAFETY: libc's function of that name, which has this type.
    let munmap: unsafe extern "C" fn(*mut c_void, usize) -> c_int =
        unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's promise.
    let status = unsafe { munmap(address, len) };
    if status == 0 {
        sys::return_place(address as u64, len);
    }
    status
}

/// sbrk(2).
///
/// # Safety
/// As sbrk(2).
unsafe extern "C" fn move_end(increment: isize) -> *mut c_void {
    let Some(found) = SBRK.address() else {
        return libc::MAP_FAILED;
    };
    // SAFETY: libc's function of that name, which has this type.
    let sbrk: unsafe extern "C" fn(isize) -> *mut c_void = unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's promise.
    unsafe { sbrk(increment) }
}
