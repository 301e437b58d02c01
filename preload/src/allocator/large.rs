//! Large blocks, of whole pages, beyond what jemalloc keeps in its caches of threads: from jemalloc's arenas and back into them.
//!
//! Danger: functions of another library, which does not promise any. jemalloc's malloc and free are, for such a block, `large_palloc` and `large_dalloc` and, around
//! these, what is done for its own sake as threads allocate: each large block is more than the 64 KiB after which it reads a clock, to see whether it is
//! time to look through the thread's cache. We have it do so at the end of each of the sampler's strides (`allocator/fast_path.rs`), and call the two
//! where that is all that they are called for: in a thread with a cache, and while jemalloc does not want every call.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::{self, LARGE_ALIGNMENT, LARGEST_CACHED, PAGE};
use crate::allocator::{bins, own_arena, rtree};

/// Whether that is how such blocks are allocated.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Blocks of this class and above, as the map of addresses has it, and which are not small, come to [`free`]. 0: all of these.
pub(crate) static FIRST_CLASS: AtomicU32 = AtomicU32::new(0);

/// How many of them are not the block's (`sz_large_pad`): that of a page, which a block begins within.
static PAD: AtomicUsize = AtomicUsize::new(0);

/// Whether a large block that was asked for by its size has as many pages as that takes, and no more. So
/// it is unless an option of jemalloc's says otherwise (`disable_large_size_classes`).
static IS_PAGES: AtomicBool = AtomicBool::new(false);

/// See [`IS_PAGES`]; to be asked after [`learn`].
pub(crate) fn is_pages() -> bool {
    IS_PAGES.load(Ordering::Relaxed)
}

/// At boot, after `fast_path::learn`, which found jemalloc as described or not: tries whether large blocks
/// are as described here.
pub(crate) fn learn(is_fast_path_known: bool) {
    // SAFETY: asks what a block of that size would have; any above 0 may be asked for.
    let usable = |size| unsafe { sys::nallocx(size, 0) };
    // By jemalloc's size classes, which an option brings back, it would have 80 pages, and not 65.
    let pages = (64 << layout::PAGE_BITS) + 1;
    IS_PAGES.store(
        usable(pages) == pages.next_multiple_of(PAGE),
        Ordering::Relaxed,
    );
    // SAFETY: not written any more once jemalloc has allocated.
    let cached = unsafe { layout::CACHED_BYTES };
    if is_fast_path_known && is_pages() && cached == LARGEST_CACHED && knows_bytes() {
        let first = (0u32..).find(|&class| rtree::size_of_class(class as usize) > LARGEST_CACHED);
        FIRST_CLASS.store(first.unwrap_or(0), Ordering::Relaxed);
        IS_KNOWN.store(true, Ordering::Relaxed);
    }
}

/// Whether the bytes of a large block are found where they are said to be. One of our own: no other of the program's lies elsewhere for it.
fn knows_bytes() -> bool {
    let block = own_arena::allocate(LARGEST_CACHED + PAGE + 1, 1, false);
    // SAFETY: a live block may be asked about, and freed once; null is none.
    unsafe {
        let Some(entry) = rtree::entry(block.cast()).filter(|&entry| entry != 0) else {
            return false;
        };
        let usable = sys::malloc_usable_size(block.cast());
        let bytes = bytes_of(rtree::extent(entry));
        own_arena::free(block);
        let pad = bytes.wrapping_sub(usable);
        PAD.store(pad, Ordering::Relaxed);
        pad == 0 || pad == PAGE
    }
}

/// Usable bytes of a block of which the map does not say them.
///
/// # Safety
/// `ptr` is null or a live block of ours.
#[inline(always)]
pub(crate) unsafe fn usable(ptr: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    match unsafe { rtree::entry(ptr) } {
        Some(entry) if entry != 0 && IS_KNOWN.load(Ordering::Relaxed) => {
            // SAFETY: the caller's promise.
            unsafe { bytes_of(rtree::extent(entry)) }
        }
        // SAFETY: the caller's promise.
        _ => unsafe { sys::malloc_usable_size(ptr) },
    }
}

/// Usable bytes of the large block whose pages that describes.
///
/// # Safety
/// It describes those of a live block.
#[inline(always)]
pub(crate) unsafe fn bytes_of(extent: *mut c_void) -> usize {
    // SAFETY: the caller's promise; the block's owner is the only one to change it.
    let word = unsafe {
        extent
            .byte_add(layout::EXTENT_BYTES_AT)
            .cast::<usize>()
            .read()
    };
    (word & !(PAGE - 1)).wrapping_sub(PAD.load(Ordering::Relaxed))
}

/// A block of `size` bytes, more than [`LARGEST_CACHED`]; null with ENOMEM.
///
/// # Safety
/// As malloc(3).
pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    let ptr = allocate(size, LARGE_ALIGNMENT, false);
    if !ptr.is_null() {
        return ptr;
    }
    // SAFETY: the caller's promise.
    unsafe { sys::malloc(size) }
}

/// The same, zeroed. Null: ask jemalloc; errno says nothing.
#[inline(always)]
pub(crate) fn calloc(size: usize) -> *mut c_void {
    allocate(size, LARGE_ALIGNMENT, true)
}

/// The same, aligned to a power of two of at least [`LARGE_ALIGNMENT`], or zeroed. Null: ask jemalloc; errno says nothing.
#[inline(always)]
pub(crate) fn allocate(size: usize, alignment: usize, is_zeroed: bool) -> *mut c_void {
    let thread = bins::thread();
    let can = IS_KNOWN.load(Ordering::Relaxed) && bins::has_cache(thread);
    // No block can be as large as that, and rounded up it could be 0.
    if !can || size > isize::MAX as usize {
        return null_mut();
    }
    let bytes = size.next_multiple_of(PAGE);
    // SAFETY: what jemalloc's malloc and its like do in a thread that is as `has_cache` says.
    unsafe { layout::large_palloc(thread.cast(), null_mut(), bytes, alignment, is_zeroed) }
}

/// Frees a block of [`FIRST_CLASS`] or above, of which the map of addresses has `entry`, in a thread with a cache.
///
/// # Safety
/// As free(3).
pub(crate) unsafe extern "C" fn free(ptr: *mut c_void, entry: usize) {
    if !IS_KNOWN.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        return unsafe { sys::free(ptr) };
    }
    // SAFETY: what jemalloc's free does with it, in such a thread.
    unsafe { layout::large_dalloc(bins::thread().cast(), rtree::extent(entry)) };
}
