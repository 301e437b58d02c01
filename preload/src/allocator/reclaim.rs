//! Reclaim: a second attempt of an allocation that found no memory, after unused memory was
//! returned.
//!
//! jemalloc keeps freed ranges for some ten seconds, each in the arena that it is of, and in the
//! caches of threads. If the address space is limited (`ulimit -v`), a program that has freed
//! everything could meanwhile be refused a block. So every call of jemalloc that returns null is
//! repeated here. Returned ranges serve blocks of any size.
//!
//! A returned range keeps its address space, because jemalloc maps more than it needs, and retains
//! the rest. Under a small limit these rests fit no large block, and are missing. So under such a
//! limit, the last attempt is made after retained ranges were unmapped.
//!
//! `mallctl` cannot be used: its first call needs memory itself.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::{bins, layout};
use crate::os::backoff::{self, Backoff};
use crate::os::{errno, memory_limits};

/// The largest limit of the address space, in bytes, under which retained ranges are unmapped.
/// Under a larger one they are a small part, but so many that each block between them would be a
/// mapping of its own. The kernel allows some 65,000 mappings.
const SMALL_LIMIT: u64 = 256 << 20;

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

/// Repeats `attempt`, which found no memory for `size` bytes: after unused ranges were returned,
/// then after this thread's cache was emptied, and then after retained ranges were unmapped.
/// Returns null if all attempts fail.
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
    if ptr.is_null() && memory_limits::of_address_space().is_some_and(|it| it <= SMALL_LIMIT) {
        unmap_retained();
        ptr = attempt();
    }
    errno::set(errno_before); // a failed attempt set it already
    ptr
}

/// True while a thread returns unused ranges. Meanwhile no other thread finds these ranges, and
/// jemalloc returns at once from another thread's call for the same arena.
static IS_RETURNING: AtomicBool = AtomicBool::new(false);

/// Returns the unused ranges of all arenas. First waits for another thread that returns them.
fn return_unused() {
    // With a limit: a signal handler may have interrupted that thread, and a fork may have copied
    // the flag.
    let mut patience = Backoff::with_limit(backoff::SHORT_NS);
    while IS_RETURNING.swap(true, Ordering::Acquire) && patience.pause() {}
    let thread = bins::thread().cast();
    for arena in arenas() {
        // SAFETY: an arena lives as long as the process. The call takes locks of jemalloc; this
        // thread holds none, because jemalloc's malloc has returned.
        unsafe { layout::arena_decay(thread, arena, false, true) };
    }
    IS_RETURNING.store(false, Ordering::Release);
}

/// Unmaps the retained ranges of all arenas.
fn unmap_retained() {
    let thread = bins::thread().cast();
    for arena in arenas() {
        let ranges = arena.wrapping_byte_add(layout::ARENA_RANGES_AT);
        // SAFETY: the ranges of an arena, which lives as long as the process. This thread holds no
        // lock of jemalloc. The call takes each range out of the arena under the lock of the
        // retained ranges, and then unmaps it. So no other thread can find an unmapped range.
        // Neighbours in use remain as they are, as they do if jemalloc's `retain` is off.
        unsafe { layout::unmap_retained(thread, ranges) };
    }
}

/// Returns all arenas.
fn arenas() -> impl Iterator<Item = *mut c_void> {
    // SAFETY: there is a word for each number that jemalloc has given. jemalloc sets each word
    // once, when the arena is ready.
    let arenas = unsafe {
        std::slice::from_raw_parts(&raw const layout::ARENAS, layout::arenas_total() as usize)
    };
    let arenas = arenas.iter().map(|arena| arena.load(Ordering::Acquire));
    arenas.filter(|arena| !arena.is_null())
}
