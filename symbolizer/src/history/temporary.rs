//! Temporary blocks: the blocks that are freed so soon that they need not have been allocated.

/// Which freed blocks were temporary: those for which one of the two holds.
///
/// How many allocations a thread has made since is known when all are recorded. Of samples, it is
/// the sum of their weights: the thread's samples between the two, the block's own not counted. No
/// sample between them is an estimate of zero, so a number below the allocations that one sample
/// stands for is not told from one.
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

    /// Whether a block was, that was freed after so many nanoseconds and so many further
    /// allocations of its thread.
    pub fn holds(self, lived_ns: u64, allocations: f64) -> bool {
        self.within_ns.is_some_and(|ns| lived_ns <= ns)
            || self
                .before_allocations
                .is_some_and(|n| allocations < n as f64)
    }
}
