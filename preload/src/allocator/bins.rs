//! A thread's bins: jemalloc's words of a thread, and the state of the thread's cache.
//!
//! All of it belongs to the thread. A signal handler that allocates between two reads has the same
//! effect as between two of jemalloc's own reads.

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

/// Returns true if this thread, whose words these are, has a cache and jemalloc does not require
/// every call.
#[inline(always)]
pub(crate) fn has_cache(thread: *mut u8) -> bool {
    word(thread, layout::ALLOCATED_LIMIT) != 0
}

/// Returns the counter at that offset of this thread's words.
#[inline(always)]
pub(crate) fn word(thread: *mut u8, at: usize) -> u64 {
    // SAFETY: a word of this thread, to which no reference exists; all offsets in `layout` are
    // within the words.
    unsafe { thread.add(at).cast::<u64>().read() }
}

/// Returns the empty bins of small classes from which this thread has taken no block since jemalloc
/// last collected the counts. `thread` is this thread's words.
pub(crate) fn unused(thread: *mut u8) -> impl Iterator<Item = *mut Bin> {
    let bins = (0..layout::SMALL_CLASSES).map(move |class| bin(thread, class));
    bins.filter(|&bin| {
        // SAFETY: the argument of `word`.
        let bin = unsafe { bin.read() };
        // In a thread without a cache all words are zero.
        !bin.head.is_null() && bin.requests == 0 && bin.head.addr() as u16 == bin.empty
    })
}
