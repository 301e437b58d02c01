//! Our own memory: everything Rust allocates in this library.
//!
//! It comes from an arena of its own, so it cannot enter the hooks, is not mixed with the program's
//! blocks, and can be told apart in jemalloc's statistics.

use std::alloc::{GlobalAlloc, Layout};

use crate::je;

struct OwnArena;

// SAFETY: jemalloc's mallocx family returns blocks of at least the asked size and alignment, or
// null; blocks are disjoint and stay until freed.
unsafe impl GlobalAlloc for OwnArena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        je::own_alloc(layout.size(), layout.align(), false)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        je::own_alloc(layout.size(), layout.align(), true)
    }
    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: the caller passes a block of this allocator.
        unsafe { je::own_free(ptr) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller passes a block of this allocator.
        unsafe { je::own_realloc(ptr, new_size, layout.align()) }
    }
}

#[global_allocator]
static OWN: OwnArena = OwnArena;
