//! Health: the allocator's own count of what it handed out, beside what the samples stand for.
//!
//! jemalloc adds the usable size of every block that a thread allocates to a counter of that thread, on
//! its own way and whatever our hooks do. (Its statistics by arena are no use here: what a thread
//! takes from its cache is added to them only when that cache is filled or flushed, for a thread in balance
//! never.) With each sample that it records, a thread tells by how much its counter went up since the one before; the
//! writer adds that up. What reached the allocator past the hooks is then in the one sum and not in the other.
//!
//! What a thread allocates after its last sample is never told: the reader makes it good from that sample
//! (`symbolizer/src/health.rs`).

use crate::je_control;
use crate::tls::Thread;

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

/// This thread's count now, without our own blocks.
#[inline]
fn counted(thread: &Thread) -> u64 {
    if thread.counter.get().is_null() {
        thread.counter.set(je_control::allocated_counter());
    }
    // SAFETY: null or this thread's counter in jemalloc's thread-local data, which lives as long as the thread; only
    // this thread writes to it.
    let all = unsafe { thread.counter.get().as_ref() }.copied();
    all.unwrap_or(0).wrapping_sub(thread.own_bytes.get())
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
