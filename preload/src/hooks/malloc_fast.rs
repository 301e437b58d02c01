//! Fast paths of `malloc` and `free`, in assembly: the whole call if nothing is sampled.
//!
//! `malloc` advances the sampler by one subtraction, and takes a block out of the thread's cache.
//! `free` reads the Bloom filter of sampled blocks by one load, and puts the block back into the
//! cache. For a sampled block, or if the cache is empty or full, they jump to the slow path.
//!
//! Not here: the paths if the next allocator serves the program (`next_fast.rs`).

use heapprof_core::BloomFilter;

use crate::allocator::fast_path::{define_free, define_malloc};
use crate::hooks::malloc::{free_sampled, malloc_sampled};
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
    bloom_filter = sym sampled_blocks::BLOOM_FILTER,
    multiplier = const BloomFilter::MULTIPLIER_AT,
    shift = const BloomFilter::SHIFT,
    counters = const BloomFilter::COUNTERS_AT,
    sampled = sym free_sampled,
}
