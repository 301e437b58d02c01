//! Last samples: the last sample of each thread so far.
//!
//! Bytes that a thread allocates after its last sample are in no count: `analysis::health` says how
//! the last samples make up for them.

use heapprof_core::{Estimate, NumberMap, Weight};
use heapprof_format::Counter;

use crate::model::counted::Counted;

/// The last sample of each thread so far: what it stands for, and its bytes.
///
/// The sums are kept up to date: a log has a reading of the counters every few moments, and a
/// hundred thousand threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastSamples {
    /// That of the newest sample of all: threads come in runs, and each of millions of samples
    /// comes here.
    newest: Option<(u32, LastSample)>,
    /// Those of the other threads.
    of_thread: NumberMap<u32, LastSample>,
    /// The sums over `of_thread`.
    others: Estimate,
    other_bytes: u128,
}

type LastSample = (Weight, u64);

impl LastSamples {
    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.of_thread.len() + usize::from(self.newest.is_some())
    }

    /// A thread's next sample, with its bytes.
    #[inline]
    pub(crate) fn sampled(&mut self, thread: u32, weight: Weight, bytes: u64) {
        match &mut self.newest {
            Some((newest, last)) if *newest == thread => *last = (weight, bytes),
            _ => self.switch(thread, (weight, bytes)),
        }
    }

    /// A sample of another thread than the newest one's.
    fn switch(&mut self, thread: u32, sample: LastSample) {
        if let Some((weight, bytes)) = self.of_thread.remove(&thread) {
            self.others.remove(&weight);
            self.other_bytes -= u128::from(bytes);
        }
        if let Some((other, last)) = self.newest.replace((thread, sample)) {
            self.others.add(&last.0);
            self.other_bytes += u128::from(last.1);
            self.of_thread.insert(other, last);
        }
    }

    /// Returns the bytes that they stand for together, and their own bytes.
    fn sums(&self) -> (Estimate, u64) {
        let (mut sum, mut bytes) = (self.others, self.other_bytes);
        if let Some((_, (weight, own))) = &self.newest {
            sum.add(weight);
            bytes += u128::from(*own);
        }
        (sum, u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// The two sums, of counters that were read when the samples stood for that; `longest` is the
    /// longest interval of a sample.
    pub(crate) fn counted(
        &self,
        values: &[(Counter, u64)],
        samples: Estimate,
        longest: u64,
    ) -> Option<Counted> {
        let value = |counter| values.iter().find(|(c, _)| *c == counter).map(|(_, n)| *n);
        let threads = value(Counter::CountedThreads)?;
        let (last, last_bytes) = self.sums();
        let unknown = threads.saturating_sub(last.samples);
        Some(Counted {
            samples,
            bytes: value(Counter::CountedBytes)?,
            last,
            last_bytes,
            unknown: Estimate::of_samples(unknown, unknown, longest),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against adding up the last sample of each thread at each reading.
        #[test]
        fn the_sums_are_those_of_each_threads_last_sample(
            samples in prop::collection::vec((0u32..6, 1u64..5000, 1u64..9000), 1..60)
        ) {
            let mut kept = LastSamples::default();
            let mut last: BTreeMap<u32, LastSample> = BTreeMap::new();
            for (thread, bytes, interval) in samples {
                let weight = Weight::of(bytes, interval);
                kept.sampled(thread, weight, bytes);
                last.insert(thread, (weight, bytes));
                let mut expected = (Estimate::default(), 0);
                for (weight, bytes) in last.values() {
                    expected.0.add(weight);
                    expected.1 += bytes;
                }
                prop_assert_eq!(kept.sums(), expected);
            }
        }
    }
}
