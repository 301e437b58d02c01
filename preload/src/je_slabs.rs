//! In each arena that threads use, a small block of each class that stays.
//!
//! jemalloc takes a slab, the pages of small blocks of one class, from its arena's pages when there is none with room, and gives it back with its last block.
//! Threads that come and go, and free all that they allocated, have it do so for each class, in each thread; with a block in them that nobody frees slabs stay.
//! It is never written to: what it takes is the place of a block, and pages only where others had used them. docs/performance.md has what it is worth.
//!
//! Danger: memory that nobody frees, allocated in the program's name. So it is bounded: once for each arena.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tls::Thread;
use crate::{errno, je, je_inside, je_map};

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
    errno::left_alone(|| {
        let classes = (0..).map(je_map::size_of_class);
        let mut small = classes.skip_while(|&bytes| bytes < je::SMALLEST);
        // The first is asked which arena this is. If it came from another thread, and so perhaps from another arena, that one has them, and ours from the next thread on.
        let first = je::malloc(small.next().unwrap_or(je::SMALLEST));
        // SAFETY: a new block, or null.
        let arena = unsafe { je_inside::arena_of(first) };
        if !arena.is_some_and(is_first_in) {
            // SAFETY: the same block, freed once.
            return unsafe { je::free(first) };
        }
        for bytes in small.take_while(|&bytes| bytes <= LARGEST) {
            je::malloc(bytes); // null is as good
        }
    });
}

/// Whether nobody was at that arena before.
fn is_first_in(arena: u32) -> bool {
    let Some(kept) = KEPT.get(arena as usize / 64) else {
        return false;
    };
    let bit = 1 << (arena % 64);
    kept.load(Ordering::Relaxed) & bit == 0 && kept.fetch_or(bit, Ordering::Relaxed) & bit == 0
}
