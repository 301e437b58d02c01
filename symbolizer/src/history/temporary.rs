//! Temporary blocks: the blocks that are freed so soon that they need not have been allocated.

/// The definition of a temporary block: a freed block for which one of the two holds.
///
/// If all allocations are recorded, the number of further allocations of the thread is known. If
/// they are sampled, it is the sum of the weights of the thread's samples in between, without the
/// block's own. Without a sample in between the estimate is zero. So a number below the allocations
/// that one sample stands for cannot be told from one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Temporary {
    /// Freed no later than so many nanoseconds after they were allocated.
    pub within_ns: Option<u64>,
    /// Freed before the thread that allocated them had made so many further allocations: 1 means
    /// before its next one.
    pub before_allocations: Option<u64>,
}

impl Temporary {
    /// By time alone.
    pub fn within(ns: u64) -> Temporary {
        Temporary {
            within_ns: Some(ns),
            before_allocations: None,
        }
    }

    /// Returns true if a block was, that was freed after so many nanoseconds and so many further
    /// allocations of its thread.
    pub fn holds(self, lived_ns: u64, allocations: f64) -> bool {
        self.within_ns.is_some_and(|ns| lived_ns <= ns)
            || self
                .before_allocations
                .is_some_and(|n| allocations < n as f64)
    }
}
