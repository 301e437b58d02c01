//! Own memory of libheapprof-attach.so: small blocks from the program's heap, large ones from the
//! kernel.
//!
//! A large block that is freed leaves a hole in the program's heap, or raises the size from which
//! on glibc maps a block of its own. The program would keep both when the recording is over. A
//! mapping leaves nothing.
//!
//! The interface is that of `own_arena.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::allocator::programs_heap;
use crate::os::sys;

/// The size from which on a block is a mapping of its own.
const LARGE: usize = 16 << 10;
const PAGE: usize = sys::PAGE as usize;

/// Bytes of the blocks that are mappings.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Returns the bytes of the blocks that are mappings.
pub(crate) fn mapped() -> u64 {
    MAPPED.load(Ordering::Relaxed)
}

/// Returns the bytes of the mapping of a block.
fn mapped_by(size: usize) -> u64 {
    size.next_multiple_of(PAGE) as u64
}

fn is_mapped(size: usize, alignment: usize) -> bool {
    size >= LARGE && alignment <= PAGE
}

/// Returns a block of our own, or null.
pub(crate) fn allocate(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    match is_mapped(size, alignment) {
        true => match sys::map_block(size) {
            Some(block) => {
                MAPPED.fetch_add(mapped_by(size), Ordering::Relaxed);
                block
            }
            None => std::ptr::null_mut(),
        },
        false => programs_heap::allocate(size, alignment, zeroed),
    }
}

/// Resizes a block of our own, from `old` bytes.
///
/// # Safety
/// `ptr` is a live block from [`allocate`], of that size and alignment.
pub(crate) unsafe fn reallocate(
    ptr: *mut u8,
    old: usize,
    size: usize,
    alignment: usize,
) -> *mut u8 {
    if !is_mapped(old, alignment) && !is_mapped(size, alignment) {
        // SAFETY: the caller's promise; the block is the program's heap's.
        return unsafe { programs_heap::reallocate(ptr, old, size, alignment) };
    }
    let block = allocate(size, alignment, false);
    if !block.is_null() {
        // SAFETY: two blocks that do not overlap, of at least that many bytes each.
        unsafe {
            ptr.copy_to_nonoverlapping(block, old.min(size));
            free_sized(ptr, old, alignment);
        }
    }
    block
}

/// Frees a block of our own.
///
/// # Safety
/// `ptr` is a live block from [`allocate`], of that size and alignment, not used afterwards.
pub(crate) unsafe fn free_sized(ptr: *mut u8, size: usize, alignment: usize) {
    match is_mapped(size, alignment) {
        true => {
            sys::unmap(ptr as u64, size);
            MAPPED.fetch_sub(mapped_by(size), Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        false => unsafe { programs_heap::free(ptr) },
    }
}
