//! Large blocks: whole pages, above the limit of a thread's cache, taken from jemalloc's arenas
//! directly.
//!
//! Danger: private functions of another library. For such a block, jemalloc's malloc and free
//! consist of `large_palloc` and `large_dalloc` and of jemalloc's periodic work. Each large block
//! exceeds jemalloc's period, so it reads a clock each time, to decide whether to garbage collect
//! the thread's cache. The fast path triggers that work at the end of each of the sampler's strides
//! instead. So this file calls the two functions directly if nothing else is needed. That is so in
//! a thread with a cache, while jemalloc does not require every call.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::{self, LARGE_ALIGNMENT, LARGEST_CACHED, PAGE};
use crate::allocator::{bins, next, own_arena, rtree, slow_path};

/// True if large blocks are allocated in this way.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// The first class, by the number in the map of addresses, that goes to [`free`] if it is not
/// small. 0: all classes do.
pub(crate) static FIRST_CLASS: AtomicU32 = AtomicU32::new(0);

/// Padding in a large extent (`sz_large_pad`): one page, within which the block begins, or 0.
static PAD: AtomicUsize = AtomicUsize::new(0);

/// True if a large block that is requested by size alone has exactly the pages for that size. It is
/// false if an option of jemalloc changes it (`disable_large_size_classes`).
static HAS_EXACT_PAGES: AtomicBool = AtomicBool::new(false);

/// Returns [`HAS_EXACT_PAGES`]; valid after [`learn`].
pub(crate) fn has_exact_pages() -> bool {
    HAS_EXACT_PAGES.load(Ordering::Relaxed)
}

/// At boot, after `fast_path::learn`, whose result is the argument: verifies that large blocks have
/// the layout described here.
pub(crate) fn learn(is_fast_path_known: bool) {
    // SAFETY: computes the usable size for a request; any size above 0 is valid.
    let usable = |size| unsafe { sys::nallocx(size, 0) };
    // With jemalloc's optional size classes, this block would be larger than its pages.
    let pages = (64 << layout::PAGE_BITS) + 1;
    HAS_EXACT_PAGES.store(
        usable(pages) == pages.next_multiple_of(PAGE),
        Ordering::Relaxed,
    );
    // SAFETY: constant once jemalloc has allocated.
    let cached = unsafe { layout::CACHED_BYTES };
    if is_fast_path_known && has_exact_pages() && cached == LARGEST_CACHED && is_extent_size_known()
    {
        let first = (0u32..).find(|&class| rtree::size_of_class(class as usize) > LARGEST_CACHED);
        FIRST_CLASS.store(first.unwrap_or(0), Ordering::Relaxed);
        IS_KNOWN.store(true, Ordering::Relaxed);
    }
}

/// Returns true if the size of a large block is found where the layout says. Uses a block of our
/// own arena, so the program's blocks keep their addresses.
fn is_extent_size_known() -> bool {
    let block = own_arena::allocate(LARGEST_CACHED + PAGE + 1, 1, false);
    // SAFETY: a live block may be queried, and freed once; null is ignored.
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

/// Returns the usable bytes of a block of jemalloc's whose class does not tell them. 0: it is a
/// block of the next allocator, which decides itself whether a block stays in place.
///
/// # Safety
/// `ptr` is a live block of ours.
#[inline(always)]
pub(crate) unsafe fn usable_of_jemalloc(ptr: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    match unsafe { rtree::entry(ptr) } {
        Some(entry) if entry != 0 && IS_KNOWN.load(Ordering::Relaxed) => {
            // SAFETY: the caller's promise.
            unsafe { bytes_of(rtree::extent(entry)) }
        }
        _ if next::is_chosen() => 0,
        // SAFETY: the caller's promise.
        _ => unsafe { sys::malloc_usable_size(ptr) },
    }
}

/// Returns the usable bytes of a block whose class does not tell them.
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
        _ => match next::chosen() {
            // SAFETY: the caller's promise.
            Some(next) => unsafe { next.usable(ptr) },
            // SAFETY: the caller's promise.
            None => unsafe { sys::malloc_usable_size(ptr) },
        },
    }
}

/// Returns the usable bytes of the large block with this extent.
///
/// # Safety
/// The extent is that of a live block.
#[inline(always)]
pub(crate) unsafe fn bytes_of(extent: *mut c_void) -> usize {
    // SAFETY: the caller's promise; only the block's owner changes this word.
    let word = unsafe {
        extent
            .byte_add(layout::EXTENT_BYTES_AT)
            .cast::<usize>()
            .read()
    };
    (word & !(PAGE - 1)).wrapping_sub(PAD.load(Ordering::Relaxed))
}

/// Returns the usable bytes of the large block with this entry in the map of addresses, which may
/// be freed meanwhile. `None`: they are not known.
pub(crate) fn bytes_of_entry(entry: usize) -> Option<u64> {
    let extent = rtree::extent(entry);
    if extent.is_null() || !IS_KNOWN.load(Ordering::Relaxed) {
        return None;
    }
    let word = extent.wrapping_byte_add(layout::EXTENT_BYTES_AT);
    // SAFETY: jemalloc never unmaps the description of an extent, and reuses it for extents alone.
    // The word is aligned.
    let word = unsafe { &*word.cast::<AtomicUsize>() }.load(Ordering::Relaxed);
    let bytes = (word & !(PAGE - 1)).checked_sub(PAD.load(Ordering::Relaxed))?;
    Some(bytes as u64)
}

/// Returns a block of `size` bytes, more than [`LARGEST_CACHED`], or null with ENOMEM.
///
/// # Safety
/// The contract of malloc(3).
pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    let ptr = allocate(size, LARGE_ALIGNMENT, false);
    if !ptr.is_null() {
        return ptr;
    }
    // SAFETY: the caller's promise.
    unsafe { slow_path::malloc(size) }
}

/// Returns a zeroed block of `size` bytes. After null, the caller must ask jemalloc; errno is then
/// meaningless.
#[inline(always)]
pub(crate) fn calloc(size: usize) -> *mut c_void {
    allocate(size, LARGE_ALIGNMENT, true)
}

/// Returns a block with an alignment of at least [`LARGE_ALIGNMENT`], a power of two, zeroed on
/// request. After null, the caller must ask jemalloc; errno is then meaningless.
#[inline(always)]
pub(crate) fn allocate(size: usize, alignment: usize, is_zeroed: bool) -> *mut c_void {
    let thread = bins::thread();
    let can = IS_KNOWN.load(Ordering::Relaxed) && bins::has_cache(thread);
    // No block can be that large, and rounding up could give 0.
    if !can || size > isize::MAX as usize {
        return null_mut();
    }
    let bytes = size.next_multiple_of(PAGE);
    // SAFETY: the call that jemalloc's own malloc makes in a thread for which `has_cache` is true.
    unsafe { layout::large_palloc(thread.cast(), null_mut(), bytes, alignment, is_zeroed) }
}

/// Frees a block of [`FIRST_CLASS`] or above in a thread with a cache. `entry` is the block's entry
/// in the map of addresses.
///
/// # Safety
/// The contract of free(3).
pub(crate) unsafe extern "C" fn free(ptr: *mut c_void, entry: usize) {
    if !IS_KNOWN.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        return unsafe { slow_path::free(ptr) };
    }
    // SAFETY: the call that jemalloc's own free makes in such a thread.
    unsafe { layout::large_dalloc(bins::thread().cast(), rtree::extent(entry)) };
}
