//! Fast paths of `malloc` and `free`, in assembly: the whole call if nothing is sampled.
//!
//! `malloc` advances the sampler by one subtraction, and takes a block out of the thread's cache.
//! `free` reads the filter of sampled blocks by one load, and puts the block back into the cache.
//! For a sampled block, or if the cache is empty or full, they jump to the slow path.
//!
//! If the next allocator serves the program, boot replaces the first instruction of both by a jump
//! to a shorter path, which knows nothing of caches.

use heapprof_core::Filter;

use crate::allocator;
use crate::allocator::fast_path::{define_free, define_malloc};
use crate::allocator::slow_path::{FREE_AT, MALLOC_AT, TARGETS};
use crate::arch::next_fast_path::{forwarding_free, forwarding_malloc, jump};
use crate::hooks::malloc::{free_sampled, malloc_edge_size, malloc_sampled};
use crate::os::code;
use crate::recording::sampled_blocks;
use crate::state::thread;

define_malloc! { sampling_malloc:
    /// Allocates `size` bytes; 0 gives a distinct block. Null with ENOMEM.
    ///
    /// # Safety
    /// As malloc(3).
    #[unsafe(no_mangle)]
    fn malloc;
    left = const thread::LEFT,
    sampled = sym malloc_sampled,
}

define_free! { sampling_free:
    /// Frees a block; null is ignored. errno is preserved.
    ///
    /// # Safety
    /// As free(3).
    #[unsafe(no_mangle)]
    fn free;
    filter = sym sampled_blocks::FILTER,
    multiplier = const Filter::MULTIPLIER_AT,
    shift = const Filter::SHIFT,
    counters = const Filter::COUNTERS_AT,
    sampled = sym free_sampled,
}

forwarding_malloc! {
    /// As [`malloc`], from the next allocator.
    ///
    /// # Safety
    /// As malloc(3).
    fn malloc_from_next;
    left = const thread::LEFT,
    edge = sym malloc_edge_size,
    sampled = sym malloc_sampled,
    slow_path = sym TARGETS,
    malloc = const MALLOC_AT,
}

forwarding_free! {
    /// As [`free`], to the next allocator.
    ///
    /// # Safety
    /// As free(3).
    fn free_to_next;
    filter = sym sampled_blocks::FILTER,
    multiplier = const Filter::MULTIPLIER_AT,
    shift = const Filter::SHIFT,
    counters = const Filter::COUNTERS_AT,
    sampled = sym free_sampled,
    slow_path = sym TARGETS,
    free = const FREE_AT,
}

/// At boot: if the next allocator serves the program, calls take the shorter path from here on. If
/// the code cannot be changed, they take the other one, with the same results.
pub(crate) fn forward_to_next() {
    if !allocator::has_next() {
        return;
    }
    for (from, to) in [
        (malloc as *const (), malloc_from_next as *const ()),
        (free as *const (), free_to_next as *const ()),
    ] {
        let (from, to) = (from as u64, to as u64);
        if let Some(jump) = jump(from, to) {
            // SAFETY: at boot no other thread runs, and this thread runs neither function. The
            // first instruction is longer than the jump, and no code jumps into it.
            let _ = unsafe { code::replace(from, &jump) };
        }
    }
}
