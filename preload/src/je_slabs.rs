//! In each arena that threads use, a small block of each class that stays.
//!
//! jemalloc takes a slab, the pages of small blocks of one class, from its arena's pages when there is none with room, and gives it back with its last block.
//! Threads that come and go, and free all that they allocated, have it do so for each class, in each thread; with a block in them that nobody frees slabs stay.
//! It is never written to: what it takes is the place of a block, and pages only where others had used them. docs/performance.md has what it is worth.
//!
//! Danger: memory that nobody frees, allocated in the program's name. So it is bounded: once for each arena.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tls::Thread;
use crate::{errno, je, je_control, je_map};

/// The largest class, in bytes. Up to there slabs have 38 pages in all.
const LARGEST: usize = 256;

/// By an arena's number: whether it has them. jemalloc has fewer than 4,096 (`MALLOCX_ARENA_LIMIT`).
static KEPT: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// At a thread's first block that comes by here: looks after its arena.
///
/// Asked where the thread has just had jemalloc allocate, and on a stack hardly lower: what that could do, this can.
#[inline(always)]
pub(crate) fn keep(thread: &Thread) {
    if !thread.slabs_are_kept.replace(true) {
        keep_in_arena();
    }
}

#[cold]
#[inline(never)]
fn keep_in_arena() {
    let arena = je_control::arena_of_thread().unwrap_or(u32::MAX) as usize;
    let Some(kept) = KEPT.get(arena / 64) else {
        return;
    };
    let bit = 1 << (arena % 64);
    if kept.load(Ordering::Relaxed) & bit != 0 || kept.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    errno::left_alone(|| {
        let classes = (0..).map(je_map::size_of_class);
        let small = classes.skip_while(|&bytes| bytes < je::SMALLEST);
        for bytes in small.take_while(|&bytes| bytes <= LARGEST) {
            je::malloc(bytes); // null is as good
        }
    });
}
