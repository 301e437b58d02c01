//! The garbage collection of a thread's cache, which the fast path keeps jemalloc from counting for.

use heapprof_core::STRIDE;

use crate::allocator::{bins, fast_path, layout};
use crate::os::{clock, errno};
use crate::state::phase;
use crate::state::thread::Thread;

/// To be called where a thread that allocates is asked anyway, at the end of a stride at the latest: has jemalloc look through its cache, as jemalloc
/// would every 64 KiB, had it counted them.
#[inline(always)]
pub(crate) fn run_if_due(thread: &Thread) {
    let laid = thread.with_sampler(|sampler| sampler.laid());
    if laid.wrapping_sub(thread.cache_gc_check_at.get()) >= STRIDE {
        thread.cache_gc_check_at.set(laid);
        // The counter may be a program's no more (prctl(2), PR_SET_TSC), and then nothing is recorded.
        let now = match phase::is_recording() {
            true => clock::ticks().raw() >> LOOK_BITS,
            false => clock::coarse_ns() >> LOOK_BITS_OF_NS,
        } as u32;
        if thread.cache_gc_time.replace(now) != now {
            run(thread);
        }
    }
}

/// Of the clock's ticks those bits that say nothing to that: 2^25 are some ten milliseconds of a counter. jemalloc looks no more often, and asks a clock
/// that takes longer.
const LOOK_BITS: u32 = 25;
/// And of nanoseconds.
const LOOK_BITS_OF_NS: u32 = 24;

#[cold]
#[inline(never)]
fn run(of: &Thread) {
    if !fast_path::is_known() {
        return; // jemalloc counts by itself
    }
    let thread = bins::thread();
    let counted = bins::word(thread, layout::ALLOCATED);
    let counted_since = counted.wrapping_sub(of.count_at_cache_gc.replace(counted));
    if !bins::has_cache(thread) {
        return; // there is no cache, or it is not to be touched now
    }
    if counted_since >= STRIDE / 2 {
        return; // most of it was not out of the cache, and jemalloc has looked
    }
    // SAFETY: a table that jemalloc never changes, and its function for this thread, called from where jemalloc would: in an allocation.
    // None of its locks is held but by code that a signal handler interrupted, and there jemalloc's malloc would take them as well, and look.
    errno::preserve(|| unsafe { (layout::CACHE_GC.happens)(thread.cast()) });
}
