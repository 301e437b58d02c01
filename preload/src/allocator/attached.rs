//! The allocator of libheapprof-attach.so: the program's own, for the program and for this library.
//!
//! The program keeps its allocator, whose functions are tapped. This library's own small blocks
//! come from the same allocator (`programs_heap`), past the taps, and its large ones from the
//! kernel (`attached_arena`). So there is no second allocator in the process, and no thread-local
//! memory of one.
//!
//! The interface is that of the folder's other root, `allocator.rs`.
//!
//! May import: arch, os, state.

use std::ffi::{CStr, c_void};
use std::ops::Range;

use crate::state::thread::Thread;

mod counts;
mod global;
#[path = "attached_arena.rs"]
mod own_arena;
mod programs_heap;

pub(crate) use counts::UntouchedPages;
pub(crate) use global::{
    can_allocate, can_map, give_up_without_memory, is_short, prepare as set_writer_stop,
};
pub(crate) use programs_heap::{library as next_library, prepare, redirect};

/// The usable bytes of a block, as its allocator has told them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit(usize);

impl Fit {
    /// From the program's allocator, which has so many usable bytes for it.
    pub(crate) fn reported(usable: usize) -> Fit {
        Fit(usable)
    }
}

/// Returns the usable bytes of a new block.
///
/// # Safety
/// Any arguments may be passed. The signature is that of the other allocator.
pub(crate) unsafe fn usable_of_new(_: *mut c_void, _: usize, fit: Fit) -> usize {
    fit.0
}

/// No effect: this library has no cache of blocks.
pub(crate) fn collect_cache_garbage_if_due(_: &Thread) {}

/// No effect: the program's allocator returns memory as it likes.
pub(crate) fn decay() {}

/// Returns 0: there is no memory that [`decay`] would return.
pub(crate) fn dirty_bytes() -> usize {
    0
}

/// Returns the pages of this library's large blocks. All others are of the program's allocator.
pub(crate) fn take_census() -> counts::Census {
    counts::Census {
        own: own_arena::mapped(),
        ..counts::Census::default()
    }
}

/// A walk over the pages of a heap, which is not known.
pub(crate) struct UntouchedWalk {
    pub(crate) sums: UntouchedPages,
}

impl UntouchedWalk {
    /// Returns nothing: the uses of pages are not known.
    pub(crate) fn new() -> Option<UntouchedWalk> {
        None
    }

    /// Adds nothing.
    pub(crate) fn add(&mut self, _: Range<u64>, _: bool) {}
}

/// Slabs: those of the program's allocator are not known.
pub(crate) mod block_sizes {
    /// Returns that the size of a block is not known.
    pub(crate) fn of_block(_: u64) -> Option<u64> {
        None
    }
}

pub(crate) mod slabs {
    /// Returns false: they are not known.
    pub(crate) fn are_known() -> bool {
        false
    }

    /// Returns nothing.
    pub(crate) fn of_block(_: u64) -> Option<(u32, u32)> {
        None
    }
}

/// Returns true: the program keeps its own allocator.
pub(crate) fn has_next() -> bool {
    true
}
