//! Garbage collection of a thread's jemalloc cache, in place of jemalloc's own trigger.
//!
//! The trigger counts bytes, and the fast path omits that count.

use heapprof_core::STRIDE;

use crate::allocator::{bins, fast_path, layout};
use crate::os::{clock, errno};
use crate::state::phase;
use crate::state::thread::Thread;

/// Lets jemalloc garbage collect the thread's cache, if that is due. Called in an allocating thread
/// at the end of each stride at the latest.
#[inline(always)]
pub(crate) fn run_if_due(thread: &Thread) {
    let laid = thread.with_sampler(|sampler| sampler.position());
    if laid.wrapping_sub(thread.cache_gc_check_at.get()) >= STRIDE {
        thread.cache_gc_check_at.set(laid);
        // Without the recording, the counter may be forbidden to the process (prctl(2),
        // PR_SET_TSC).
        let now = match phase::is_recording() {
            true => clock::ticks().raw() >> PERIOD_BITS,
            false => clock::coarse_ns() >> PERIOD_BITS_OF_NS,
        } as u32;
        if thread.cache_gc_time.replace(now) != now {
            run(thread);
        }
    }
}

/// Low bits of ticks that are ignored: 2^25 ticks of a counter are about ten milliseconds. jemalloc
/// collects no more often, and reads a slower clock to decide.
const PERIOD_BITS: u32 = 25;
/// Low bits of nanoseconds that are ignored.
const PERIOD_BITS_OF_NS: u32 = 24;

#[cold]
#[inline(never)]
fn run(of: &Thread) {
    if !fast_path::is_known() {
        return; // jemalloc itself counts
    }
    let thread = bins::thread();
    let counted = bins::word(thread, layout::ALLOCATED);
    let counted_since = counted.wrapping_sub(of.count_at_cache_gc.replace(counted));
    if !bins::has_cache(thread) {
        return; // there is no cache, or it must not be touched now
    }
    if counted_since >= STRIDE / 2 {
        return; // most blocks did not come from the cache, so jemalloc has collected
    }
    // SAFETY: a table that jemalloc never changes, and its function for this thread, called where
    // jemalloc calls it: in an allocation. jemalloc's locks are free, unless a signal handler has
    // interrupted code that holds one. In that case jemalloc's own malloc would take the same
    // locks, and collect, too.
    errno::preserve(|| unsafe { (layout::CACHE_GC.happens)(thread.cast()) });
}
