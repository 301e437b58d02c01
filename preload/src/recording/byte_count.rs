//! Byte count: the bytes that threads request, as a check on the sum that the samples estimate.
//!
//! The sampler lays every request of a thread on its allocation axis, sampled or not. So the length
//! of the axis ([`position`](heapprof_core::Sampler::position)) is an exact count of bytes, and
//! needs no bookkeeping of its own. With each sample that it records, a thread reports the growth
//! of its axis from the sample before. The writer adds up these reports. An error in drawing,
//! weighing or sending samples then shows as a difference between the two sums.
//!
//! jemalloc's count of the bytes that it handed to a thread would be no independent witness. If a
//! hook takes a small block from the thread's cache, jemalloc learns of it from the hook alone,
//! which costs instructions in each malloc and each free. jemalloc's statistics by arena are no use
//! either: they count a block when a thread's cache is filled or flushed, and that may never
//! happen.
//!
//! Bytes that a thread allocates after its last sample are never reported. The reader extrapolates
//! them from that sample.

use crate::state::thread::Thread;

/// Starts the count of this thread. Called before anything is recorded, in the thread that boots:
/// the log does not contain its earlier allocations.
pub(crate) fn begin(thread: &Thread) {
    begin_at(thread, counted(thread));
}

/// Starts the count of a thread whose axis has that length. In a process that is recorded once
/// more, the bytes up to here are none of the new log's.
pub(crate) fn begin_at(thread: &Thread, counted: u64) {
    thread.reported_bytes.set(counted);
    thread.unreported_bytes.set(0);
}

/// Excludes the bytes since the last call from the totals. Call it when a thread stops recording
/// (`recorded_so_far`), periodically while it is stopped, and when it resumes. Bytes that were
/// allocated before the stop and have no sample to report them are reported with the next sample.
pub(crate) fn exclude(thread: &Thread, recorded_so_far: bool) {
    let counted = counted(thread);
    if recorded_so_far {
        let unreported = counted.wrapping_sub(thread.reported_bytes.get());
        thread.unreported_bytes.set(unreported);
    }
    let told = counted.wrapping_sub(thread.unreported_bytes.get());
    thread.reported_bytes.set(told);
}

/// Returns how many bytes this thread has laid on its axis.
#[inline]
fn counted(thread: &Thread) -> u64 {
    thread.with_sampler(|sampler| sampler.position())
}

/// The flag in the value of [`unreported`] that says: this thread has not reported to this session.
const NEW: u64 = 1 << 63;

/// Returns the bytes since the last sample that was reported, with [`NEW`] if there was none.
#[inline]
pub(crate) fn unreported(thread: &Thread) -> u64 {
    let bytes = counted(thread).wrapping_sub(thread.reported_bytes.get()) & !NEW;
    if thread.reported_session.get() == thread.session.get() {
        bytes
    } else {
        bytes | NEW
    }
}

/// The sum of the values of [`unreported`]: bytes in the lower 63 bits, new threads above them.
#[derive(Debug, Default)]
pub(crate) struct ReportedBytes(u128);

impl ReportedBytes {
    #[inline(always)]
    pub(crate) fn add(&mut self, unreported: u64) {
        self.0 += u128::from(unreported);
    }

    /// Returns the bytes that threads allocated up to their last samples.
    pub(crate) fn bytes(&self) -> u64 {
        self.0 as u64 & !NEW
    }

    /// Returns how many threads have reported.
    pub(crate) fn threads(&self) -> u64 {
        (self.0 >> NEW.trailing_zeros()) as u64
    }
}

/// Marks as reported what [`unreported`] returned. Call it when the record is on its way to the
/// writer.
#[inline]
pub(crate) fn mark_reported(thread: &Thread, unreported: u64) {
    let bytes = thread.reported_bytes.get().wrapping_add(unreported & !NEW);
    thread.reported_bytes.set(bytes);
    thread.reported_session.set(thread.session.get());
}
