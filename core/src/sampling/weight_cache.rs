//! Weight cache: the weights of sizes that recur in a fold.
//!
//! Model: a direct-mapped table by (size, interval). [`Weight::of`] is a function of both, so an
//! entry never becomes stale; a miss computes. Without the cache, the exponential function and the
//! divisions are most of a fold's time (`cargo bench --package heapprof-core`).

use crate::sampling::weight::Weight;
use crate::tables::slots::spread;

/// Entries; a power of two. Each has 80 bytes.
const ENTRIES: usize = 256;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(crate) struct WeightCache {
    /// Empty until the first lookup, so that a ledger without events takes no memory.
    entries: Vec<(u64, u64, Weight)>,
}

impl WeightCache {
    /// Returns [`Weight::of`].
    #[inline]
    pub(crate) fn of(&mut self, size: u64, interval: u64) -> Weight {
        if interval <= 1 {
            return Weight::of(size, interval); // no arithmetic
        }
        let at = (spread(size ^ interval.rotate_left(32)) >> 32) as usize % ENTRIES;
        match self.entries.get(at) {
            Some(&(s, r, weight)) if (s, r) == (size, interval) => weight,
            _ => self.compute(at, size, interval),
        }
    }

    #[cold]
    #[inline(never)]
    fn compute(&mut self, at: usize, size: u64, interval: u64) -> Weight {
        let weight = Weight::of(size, interval);
        if self.entries.is_empty() {
            // Valid everywhere: every entry is the weight of its own key.
            self.entries.resize(ENTRIES, (size, interval, weight));
        }
        self.entries[at] = (size, interval, weight);
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn every_answer_is_the_weight_itself() {
        let mut cache = WeightCache::default();
        for round in 0..3u64 {
            for size in (0..5000).chain([1 << 20, 1 << 40]) {
                for interval in [0, 1, 4096, 524_288 + round] {
                    assert_eq!(cache.of(size, interval), Weight::of(size, interval));
                }
            }
        }
    }
}
