//! jemalloc's system calls and environment, independent of functions that the program exports.
//!
//! Danger: assembly with libc's names. jemalloc calls `mmap`, `munmap` and `madvise` while it holds
//! its locks. A program may export functions with those names (to count or log calls). They would
//! run under jemalloc's locks, and one that allocates would re-enter jemalloc. So the names are
//! defined here and among the trampolines, hidden, and lead to libc's own functions.
//!
//! They do not lead to the kernel directly, for two reasons. Caches of memory registrations (UCX,
//! libfabric, Open MPI) change the first instructions of libc's functions, to learn of memory that
//! is unmapped. And a program may intercept all system calls except those from libc's code.
//!
//! `secure_getenv`, by which jemalloc reads its options before its first allocation, is defined
//! here, too: see [`jemalloc_options`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::allocator::spare_arena;
use crate::arch::system_call::{
    hidden_functions, hidden_jump, return_as_libc, system_call_by_number,
};
use crate::os::environment;
use crate::os::libc_trampolines::LibcFunction;
use crate::os::{errno, mapping_shims, sys};

hidden_jump! { "__wrap_mmap" => map }
hidden_jump! { "madvise" => advise }
hidden_jump! { "mprotect" => protect }

static MADVISE: LibcFunction = LibcFunction::new(c"madvise");
static MPROTECT: LibcFunction = LibcFunction::new(c"mprotect");

/// mmap(2) with three differences. The mapping has a [place](sys::map_at_place) of ours, away from
/// what the program keeps free. The call falls back to a reserve if the kernel refuses. And it
/// clears jemalloc's MAP_NORESERVE. With that flag the kernel grants more memory than exists. A
/// program that glibc would refuse memory would then be killed later.
///
/// # Safety
/// The promises of mmap(2).
unsafe extern "C" fn map(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let flags = flags & !libc::MAP_NORESERVE;
    let errno_before = errno::get();
    let map_at = |address: *mut c_void| {
        // SAFETY: the caller's promise.
        unsafe { mapping_shims::map(address, len, protection, flags, file, offset) }
    };
    let mapping = if address.is_null() {
        let map_near = |hint: u64| match map_at(hint as *mut c_void) {
            libc::MAP_FAILED => Err(()),
            mapping => Ok(mapping as u64),
        };
        // SAFETY: unmaps what it has mapped, and no other code has the address.
        let unmap = |mapping| unsafe {
            mapping_shims::unmap(mapping as *mut c_void, len);
        };
        sys::map_at_place(len, map_near, unmap)
            .map_or(libc::MAP_FAILED, |mapping| mapping as *mut c_void)
    } else {
        let mapping = map_at(address);
        if mapping == address {
            sys::count_place(address as u64, len);
        }
        mapping
    };
    if mapping != libc::MAP_FAILED {
        return mapping;
    }
    match spare_arena::region_for(len) {
        Some(region) => {
            errno::set(errno_before);
            region
        }
        None => libc::MAP_FAILED,
    }
}

/// madvise(2), which leaves errno unchanged: jemalloc does not read it, and calls madvise in the
/// middle of a free, which must keep errno. (The kernel refuses to discard locked memory, for
/// example.)
///
/// # Safety
/// The promises of madvise(2).
unsafe extern "C" fn advise(address: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call_and_keep_errno(&MADVISE, address, len, advice) }
}

/// mprotect(2), which leaves errno unchanged.
///
/// # Safety
/// The promises of mprotect(2).
unsafe extern "C" fn protect(address: *mut c_void, len: usize, protection: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call_and_keep_errno(&MPROTECT, address, len, protection) }
}

/// # Safety
/// The promises of the function.
unsafe fn call_and_keep_errno(
    function: &LibcFunction,
    address: *mut c_void,
    len: usize,
    argument: c_int,
) -> c_int {
    let Some(found) = function.address() else {
        return -1;
    };
    // SAFETY: libc's madvise or mprotect, which have this type.
    let function: unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int =
        unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's promise.
    errno::preserve(|| unsafe { function(address, len, argument) })
}

// jemalloc's system calls by number. The linker leads them here (build script), and not to our
// export of that name, which goes on to the next definition (Law 11).
hidden_functions! {
    "__wrap_syscall": system_call_by_number!(), return_as_libc!();
}

hidden_jump! { "secure_getenv" => jemalloc_options }

/// Options for a limited address space: one arena, no extra page for a large block, and no address
/// space that is kept after it was unmapped. Large blocks have the sizes of classes. Otherwise
/// jemalloc has a rest of some pages beside each one, and if it unmaps the rests, each block is a
/// mapping of its own. The kernel allows some 65,000 of them.
const FRUGAL: &CStr =
    c"narenas:1,cache_oblivious:false,retain:false,disable_large_size_classes:false";

/// Returns these options followed by `value`, which takes precedence. `None`: the text is too long.
fn frugal_with(value: &[u8]) -> Option<*const c_char> {
    static TOGETHER: [AtomicU8; 1024] = [const { AtomicU8::new(0) }; 1024];
    let words = [FRUGAL.to_bytes(), b",", value].into_iter().flatten();
    let mut places = TOGETHER[..TOGETHER.len() - 1].iter(); // the last byte stays zero
    for &byte in words {
        places.next()?.store(byte, Ordering::Relaxed);
    }
    places.next()?.store(0, Ordering::Relaxed);
    Some(TOGETHER.as_ptr().cast())
}

/// Returns jemalloc's options from the environment, or null. If the address space is limited, the
/// options for that precede them. A thread whose new arena finds no memory crashes in jemalloc 5.3;
/// threads that share one arena never create another.
extern "C" fn jemalloc_options(name: *const c_char) -> *const c_char {
    // SAFETY: reads a number of the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        let environment = environment::at_start();
        // SAFETY: jemalloc passes a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let value = name.to_str().ok().and_then(|name| environment.get(name));
        if let Some(value) = value {
            let whole = value.as_ptr().cast(); // up to the terminator of the entry
            return match sys::address_space_is_limited() {
                true => frugal_with(value).unwrap_or(whole),
                false => whole,
            };
        }
    }
    if sys::address_space_is_limited() {
        FRUGAL.as_ptr()
    } else {
        std::ptr::null()
    }
}
