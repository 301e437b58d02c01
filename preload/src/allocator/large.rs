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

use crate::allocator::{fast_path, heap, mallctl, private_symbols, rtree};

/// Bytes of the largest block that jemalloc keeps in a thread's cache, unless it is told otherwise (`tcache_max`).
pub(crate) const LARGEST_CACHED: usize = 32 << 10;

unsafe extern "C" {
    /// Of a size that is a number of pages; `arena` null: the thread's. Null: there is no memory, and errno says nothing.
    fn _rjem_je_large_palloc(
        thread: *mut c_void,
        arena: *mut c_void,
        bytes: usize,
        alignment: usize,
        is_zeroed: bool,
    ) -> *mut c_void;

    /// Of the block that `extent` describes.
    fn _rjem_je_large_dalloc(thread: *mut c_void, extent: *mut c_void);
}

/// How jemalloc aligns blocks that nobody wants aligned (`CACHELINE`).
pub(crate) const ALIGNMENT: usize = 64;

/// Whether that is how such blocks are allocated.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Blocks of this class and above, as the map of addresses has it, and which are not small, come to [`free`]. 0: all of these.
pub(crate) static FIRST_CLASS: AtomicU32 = AtomicU32::new(0);

/// Where a description of pages has how many bytes there are, in all but its lowest bits (`e_size_esn` of `edata_t`).
const BYTES_AT: usize = 16;
/// How many of them are not the block's (`sz_large_pad`): that of a page, which a block begins within.
static PAD: AtomicUsize = AtomicUsize::new(0);

/// At boot, after [`fast_path::learn`]: whether jemalloc is as described here.
pub(crate) fn learn() {
    let is_known = fast_path::is_known()
        && heap::large_is_pages()
        && private_symbols::largest_cached() == LARGEST_CACHED
        && knows_bytes();
    if is_known {
        let first = (0u32..).find(|&class| rtree::size_of_class(class as usize) > LARGEST_CACHED);
        FIRST_CLASS.store(first.unwrap_or(0), Ordering::Relaxed);
        IS_KNOWN.store(true, Ordering::Relaxed);
    }
}

/// Whether the bytes of a large block are found where they are said to be. One of our own: no other of the program's lies elsewhere for it.
fn knows_bytes() -> bool {
    let block = heap::own_alloc(LARGEST_CACHED + mallctl::PAGE + 1, 1, false);
    // SAFETY: a live block may be asked about, and freed once; null is none.
    unsafe {
        let Some(entry) = rtree::entry(block.cast()).filter(|&entry| entry != 0) else {
            return false;
        };
        let usable = sys::malloc_usable_size(block.cast());
        let bytes = bytes_of(rtree::extent(entry));
        heap::own_free(block);
        let pad = bytes.wrapping_sub(usable);
        PAD.store(pad, Ordering::Relaxed);
        pad == 0 || pad == mallctl::PAGE
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
    let word = unsafe { extent.byte_add(BYTES_AT).cast::<usize>().read() };
    (word & !(mallctl::PAGE - 1)).wrapping_sub(PAD.load(Ordering::Relaxed))
}

/// A block of `size` bytes, more than [`LARGEST_CACHED`]; null with ENOMEM.
///
/// # Safety
/// As malloc(3).
pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    let ptr = allocate(size, ALIGNMENT, false);
    if !ptr.is_null() {
        return ptr;
    }
    // SAFETY: the caller's promise.
    unsafe { sys::malloc(size) }
}

/// The same, zeroed. Null: ask jemalloc; errno says nothing.
#[inline(always)]
pub(crate) fn calloc(size: usize) -> *mut c_void {
    allocate(size, ALIGNMENT, true)
}

/// The same, aligned to a power of two of at least [`ALIGNMENT`], or zeroed. Null: ask jemalloc; errno says nothing.
#[inline(always)]
pub(crate) fn allocate(size: usize, alignment: usize, is_zeroed: bool) -> *mut c_void {
    let thread = fast_path::thread();
    let can = IS_KNOWN.load(Ordering::Relaxed) && fast_path::has_cache(thread);
    // No block can be as large as that, and rounded up it could be 0.
    if !can || size > isize::MAX as usize {
        return null_mut();
    }
    let bytes = size.next_multiple_of(mallctl::PAGE);
    // SAFETY: what jemalloc's malloc and its like do in a thread that is as `has_cache` says.
    unsafe { _rjem_je_large_palloc(thread.cast(), null_mut(), bytes, alignment, is_zeroed) }
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
    unsafe { _rjem_je_large_dalloc(fast_path::thread().cast(), rtree::extent(entry)) };
}
