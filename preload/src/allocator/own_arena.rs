//! Our own arena: blocks of this library's, which never pass through the exports.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::{bins, layout};

/// The arena, apart from the program's: its blocks never pass through the exports.
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// Its number, once it was made.
pub(crate) fn number() -> Option<c_int> {
    Some(NUMBER.load(Ordering::Relaxed)).filter(|&arena| arena > 0)
}

fn flags() -> c_int {
    let mut arena = NUMBER.load(Ordering::Relaxed);
    if arena == 0 {
        arena = create_arena().unwrap_or(-1);
        // Two threads that come here at once make one arena or two; one is used from then on, and blocks
        // of the other are freed by their address all the same.
        NUMBER.store(arena, Ordering::Relaxed);
    }
    // No thread cache: ours must not hold the program's blocks, nor the program's ours.
    let arena = if arena > 0 {
        sys::MALLOCX_ARENA(arena as usize)
    } else {
        0
    };
    arena | sys::MALLOCX_TCACHE_NONE
}

/// A block of our own.
pub(crate) fn allocate(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    let zero = if zeroed { sys::MALLOCX_ZERO } else { 0 };
    let flags = sys::MALLOCX_ALIGN(alignment) | zero | flags();
    // SAFETY: the global allocator never asks for 0 bytes, and alignments are powers of two.
    unsafe { sys::mallocx(size.max(1), flags).cast() }
}

/// # Safety
/// `ptr` is a live block from [`allocate`].
pub(crate) unsafe fn reallocate(ptr: *mut u8, size: usize, alignment: usize) -> *mut u8 {
    let flags = sys::MALLOCX_ALIGN(alignment) | flags();
    // SAFETY: the caller's promise.
    unsafe { sys::rallocx(ptr.cast(), size.max(1), flags).cast() }
}

/// # Safety
/// `ptr` is a live block from [`allocate`], not used hereafter.
pub(crate) unsafe fn free(ptr: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { sys::dallocx(ptr.cast(), sys::MALLOCX_TCACHE_NONE) }
}

/// Makes another arena, and returns its number.
///
/// jemalloc counts them once more where its account is made. That is not before the first call by a name; before it, which is when ours is made, at
/// our first block, one more is found then. After it there would be one that the account does not have, and that is all.
fn create_arena() -> Option<c_int> {
    let config = &raw const layout::ARENA_CONFIG;
    // SAFETY: `nallocx` makes jemalloc ready, and this thread's words, if they are not, and says 0 where it cannot. The next free number, or, if another thread
    // makes one meanwhile, that one's: we share it then. The configuration is jemalloc's.
    unsafe {
        if sys::nallocx(1, 0) == 0 {
            return None;
        }
        let number = layout::arenas_total();
        let arena = layout::arena_init(bins::thread().cast(), number, config.cast());
        (!arena.is_null()).then_some(number as c_int)
    }
}
