//! Our own arena: blocks of this library, which never pass through the exports.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::{bins, layout, reclaim};

/// Number of the arena, which is separate from the program's arenas; 0: not created yet.
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// Returns the arena's number, once it is created.
pub(crate) fn number() -> Option<c_int> {
    Some(NUMBER.load(Ordering::Relaxed)).filter(|&arena| arena > 0)
}

fn flags() -> c_int {
    let mut arena = NUMBER.load(Ordering::Relaxed);
    if arena == 0 {
        arena = create_arena().unwrap_or(-1);
        // Two threads that come here at once create one arena or two. One is used from then on.
        // Blocks of the other can be freed all the same, because their address identifies the
        // arena.
        NUMBER.store(arena, Ordering::Relaxed);
    }
    // No thread cache: it must not mix our blocks with the program's.
    let arena = if arena > 0 {
        sys::MALLOCX_ARENA(arena as usize)
    } else {
        0
    };
    arena | sys::MALLOCX_TCACHE_NONE
}

/// Returns a block of our own, or null.
pub(crate) fn allocate(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    let zero = if zeroed { sys::MALLOCX_ZERO } else { 0 };
    let flags = sys::MALLOCX_ALIGN(alignment) | zero | flags();
    // SAFETY: the global allocator never requests 0 bytes, and alignments are powers of two.
    let allocate = || unsafe { sys::mallocx(size.max(1), flags) };
    let ptr = allocate();
    if ptr.is_null() {
        return reclaim::retry(size, allocate).cast();
    }
    ptr.cast()
}

/// Resizes a block of our own.
///
/// # Safety
/// `ptr` is a live block from [`allocate`].
pub(crate) unsafe fn reallocate(
    ptr: *mut u8,
    _old: usize,
    size: usize,
    alignment: usize,
) -> *mut u8 {
    let flags = sys::MALLOCX_ALIGN(alignment) | flags();
    // SAFETY: the caller's promise; a failure leaves the block as it is.
    let resize = || unsafe { sys::rallocx(ptr.cast(), size.max(1), flags) };
    let moved = resize();
    if moved.is_null() {
        return reclaim::retry(size, resize).cast();
    }
    moved.cast()
}

/// Frees a block of our own.
///
/// # Safety
/// `ptr` is a live block from [`allocate`], not used afterwards.
pub(crate) unsafe fn free(ptr: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { sys::dallocx(ptr.cast(), sys::MALLOCX_TCACHE_NONE) }
}

/// Like [`free`]; the size and the alignment are those of the request.
///
/// # Safety
/// As for [`free`].
pub(crate) unsafe fn free_sized(ptr: *mut u8, _size: usize, _alignment: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// Creates an arena, and returns its number.
///
/// jemalloc counts its arenas again when it creates its statistics, at the first `mallctl`. Our
/// arena normally exists by then, because our first block creates it. An arena that is created
/// later is missing from the statistics, which is harmless.
fn create_arena() -> Option<c_int> {
    let config = &raw const layout::ARENA_CONFIG;
    // SAFETY: `nallocx` initializes jemalloc and this thread's words, and returns 0 if it fails.
    // The number is the next free one. If another thread creates that arena meanwhile, both share
    // it. The configuration is jemalloc's.
    unsafe {
        if sys::nallocx(1, 0) == 0 {
            return None;
        }
        let number = layout::arenas_total();
        let arena = layout::arena_init(bins::thread().cast(), number, config.cast());
        (!arena.is_null()).then_some(number as c_int)
    }
}
