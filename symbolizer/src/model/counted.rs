//! Counted bytes: what the threads of a process counted, beside what its samples stand for.
//!
//! Not here: whether the two agree (`analysis::health`).

use heapprof_core::Estimate;

/// Both sums at the same event of the log, or those of several logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// The bytes that the samples stand for.
    pub samples: Estimate,
    /// Bytes that threads counted.
    pub bytes: u64,
    /// The part of `samples` that is the last sample of each thread.
    pub last: Estimate,
    /// Bytes of these blocks themselves.
    pub last_bytes: u64,
    /// Last samples that were before the log begins (it rotates): as if of a byte each, under the
    /// longest interval.
    pub unknown: Estimate,
}

impl Counted {
    /// Adds another log's.
    pub(crate) fn merge(&mut self, other: &Counted) {
        self.samples.merge(&other.samples);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.last.merge(&other.last);
        self.last_bytes = self.last_bytes.saturating_add(other.last_bytes);
        self.unknown.merge(&other.unknown);
    }
}
