//! Reclaim: a second attempt of an allocation that found no memory, after unused memory was
//! returned.
//!
//! jemalloc keeps freed ranges for some ten seconds, and cuts no small block out of a range that is
//! many times larger (`lg_extent_max_active_fit`). If the address space is limited (`ulimit -v`), a
//! program that has freed everything would meanwhile be refused small blocks. So every call of
//! jemalloc that returns null is repeated here. Returned ranges serve blocks of any size, or leave
//! the address space.
//!
//! `mallctl` cannot be used: its first call needs memory itself.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use tikv_jemalloc_sys as sys;

use crate::allocator::{bins, layout};
use crate::os::errno;

/// Calls jemalloc's malloc, twice if need be.
///
/// # Safety
/// The promises of malloc(3).
pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let ptr = unsafe { sys::malloc(size) };
    if ptr.is_null() {
        // SAFETY: the caller's promise.
        return retry(size, || unsafe { sys::malloc(size) });
    }
    ptr
}

/// Repeats `attempt`, which found no memory for `size` bytes, after unused ranges were returned,
/// and then after this thread's cache was emptied, too. Returns null if both attempts fail.
#[cold]
#[inline(never)]
pub(crate) fn retry(size: usize, attempt: impl Fn() -> *mut c_void) -> *mut c_void {
    if size > isize::MAX as usize {
        return std::ptr::null_mut(); // no address space is as large
    }
    let errno_before = errno::get();
    return_unused();
    let mut ptr = attempt();
    if ptr.is_null() && bins::has_cache(bins::thread()) {
        // SAFETY: the words of this thread, which has a cache.
        unsafe { layout::tcache_flush(bins::thread().cast()) };
        return_unused();
        ptr = attempt();
    }
    errno::set(errno_before); // a failed attempt set it already
    ptr
}

/// Returns the unused ranges of all arenas.
fn return_unused() {
    let thread = bins::thread().cast();
    // SAFETY: there is a word for each number that jemalloc has given. jemalloc sets each word
    // once, when the arena is ready.
    let arenas = unsafe {
        std::slice::from_raw_parts(&raw const layout::ARENAS, layout::arenas_total() as usize)
    };
    for arena in arenas {
        let arena = arena.load(Ordering::Acquire);
        if !arena.is_null() {
            // SAFETY: an arena lives as long as the process. The call takes locks of jemalloc; this
            // thread holds none, because jemalloc's malloc has returned.
            unsafe { layout::arena_decay(thread, arena, false, true) };
        }
    }
}
