//! Health: the count of what threads asked for, beside what the samples stand for.
//!
//! The sampler's line has each request of a thread, whether a mark fell on it or not, so how far the thread has come on it
//! ([`laid`](heapprof_core::Sampler::laid)) is an exact count of bytes, and no more to keep than the sampler does anyway. With each sample that it
//! records, a thread tells by how much it has gone on since the one before; the writer adds that up. What was
//! drawn wrongly, weighed wrongly or lost on its way is then in the one sum and not in the other.
//!
//! Why not by jemalloc's own count of what a thread was handed out: of a small block that a hook takes out of the thread's cache it hears only if
//! the hook tells it (six instructions in each malloc, five in each free), so we would be our own witness all the same. Its statistics
//! by arena are no use here either: what a thread takes from its cache is added to them when that cache is filled or flushed, for a
//! thread in balance never.
//!
//! What a thread allocates after its last sample is never told: the reader makes it good from that sample
//! (`symbolizer/src/health.rs`).

use crate::state::thread::Thread;

/// Before anything is recorded, in the thread that will go on: what it allocated so far is not in the log.
pub(crate) fn begin(thread: &Thread) {
    thread.told_bytes.set(counted(thread));
    thread.untold_bytes.set(0);
}

/// To be called where a thread stops recording (`recorded_so_far`), now and then while it does not record, and where it goes on: what it
/// allocates meanwhile is not in the log, and will not be told. What it had allocated before it stopped, and had no sample to tell
/// with, will be told with its next sample.
pub(crate) fn leave_out(thread: &Thread, recorded_so_far: bool) {
    let counted = counted(thread);
    if recorded_so_far {
        let untold = counted.wrapping_sub(thread.told_bytes.get());
        thread.untold_bytes.set(untold);
    }
    let told = counted.wrapping_sub(thread.untold_bytes.get());
    thread.told_bytes.set(told);
}

/// What this thread has laid on its line so far.
#[inline]
fn counted(thread: &Thread) -> u64 {
    thread.with_sampler(|sampler| sampler.laid())
}

/// In what [`untold`] returns: nothing was told before, the thread is new to the writer.
const NEW: u64 = 1 << 63;

/// Bytes since the last sample that was told of, and whether there was none.
#[inline]
pub(crate) fn untold(thread: &Thread) -> u64 {
    let bytes = counted(thread).wrapping_sub(thread.told_bytes.get()) & !NEW;
    if thread.told_session.get() == thread.session.get() {
        bytes
    } else {
        bytes | NEW
    }
}

/// The sum of what [`untold`] returned: bytes in the lower 63 bits, and above them how many threads were new.
#[derive(Debug, Default)]
pub(crate) struct Told(u128);

impl Told {
    #[inline(always)]
    pub(crate) fn add(&mut self, untold: u64) {
        self.0 += u128::from(untold);
    }

    /// Bytes that threads allocated up to their last samples.
    pub(crate) fn bytes(&self) -> u64 {
        self.0 as u64 & !NEW
    }

    /// How many threads these are.
    pub(crate) fn threads(&self) -> u64 {
        (self.0 >> NEW.trailing_zeros()) as u64
    }
}

/// The writer will hear of what [`untold`] returned.
#[inline]
pub(crate) fn told(thread: &Thread, untold: u64) {
    let bytes = thread.told_bytes.get().wrapping_add(untold & !NEW);
    thread.told_bytes.set(bytes);
    thread.told_session.set(thread.session.get());
}
