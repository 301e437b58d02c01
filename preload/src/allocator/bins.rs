//! A thread's bins: where jemalloc keeps the words of a thread, and what they say of its cache.
//!
//! All of it is the thread's own. A signal handler that allocates and comes between two reads finds what
//! it would find between two of jemalloc's.

use crate::allocator::layout::{self, Bin};
use crate::arch::jemalloc_fast_path::thread_words;

/// Returns jemalloc's words of this thread.
#[inline(always)]
pub(crate) fn thread() -> *mut u8 {
    thread_words!(layout::THREAD_WORDS)
}

/// Returns the bin of a class in a thread's words.
pub(crate) fn bin(thread: *mut u8, class: usize) -> *mut Bin {
    let first = thread.wrapping_add(layout::BINS).cast::<Bin>();
    first.wrapping_add(class)
}

/// Returns true if this thread, whose words these are, has a cache, and jemalloc does not want every call.
#[inline(always)]
pub(crate) fn has_cache(thread: *mut u8) -> bool {
    word(thread, layout::ALLOCATED_LIMIT) != 0
}

/// Returns the counter at that offset of this thread's words.
#[inline(always)]
pub(crate) fn word(thread: *mut u8, at: usize) -> u64 {
    // SAFETY: a word of this thread's, to which nobody holds a reference; `layout` has no other offsets.
    unsafe { thread.add(at).cast::<u64>().read() }
}

/// Returns the bins of small classes from which this thread, whose words these are, has taken nothing
/// since jemalloc last counted that, and which hold nothing.
pub(crate) fn unused(thread: *mut u8) -> impl Iterator<Item = *mut Bin> {
    let bins = (0..layout::SMALL_CLASSES).map(move |class| bin(thread, class));
    bins.filter(|&bin| {
        // SAFETY: as in `word`.
        let bin = unsafe { bin.read() };
        // In a thread without a cache all are zero.
        !bin.head.is_null() && bin.requests == 0 && bin.head.addr() as u16 == bin.empty
    })
}
