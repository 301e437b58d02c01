//! Last samples: the last sample of each thread so far.
//!
//! Bytes that a thread allocates after its last sample are in no count: `analysis::health` says how
//! the last samples make up for them.

use heapprof_core::{Estimate, NumberMap, Weight};
use heapprof_format::Counter;

use crate::model::counted::Counted;

/// The last sample of each thread so far: what it stands for, and its bytes.
#[derive(Debug, Default)]
pub(crate) struct LastSamples {
    /// That of the newest sample of all: threads come in runs, and each of millions of samples
    /// comes here.
    newest: Option<(u32, LastSample)>,
    /// Those of the others, and perhaps an older one of that thread.
    of_thread: NumberMap<u32, LastSample>,
}

type LastSample = (Weight, u64);

impl LastSamples {
    /// A thread's next sample, with its bytes.
    #[inline]
    pub(crate) fn sampled(&mut self, thread: u32, weight: Weight, bytes: u64) {
        match &mut self.newest {
            Some((newest, last)) if *newest == thread => *last = (weight, bytes),
            newest => {
                if let Some((other, last)) = newest.replace((thread, (weight, bytes))) {
                    self.of_thread.insert(other, last);
                }
            }
        }
    }

    /// Returns the bytes that they stand for together, and their own bytes.
    fn sums(&self) -> (Estimate, u64) {
        let newest = self.newest.map(|(thread, _)| thread);
        let others = self.of_thread.iter();
        let others = others.filter(|(thread, _)| Some(**thread) != newest);
        let all = others.map(|(_, last)| last).copied();
        let all = all.chain(self.newest.map(|(_, last)| last));
        all.fold(
            <_>::default(),
            |(mut sum, sum_bytes): (Estimate, u64), (weight, bytes)| {
                sum.add(&weight);
                (sum, sum_bytes.saturating_add(bytes))
            },
        )
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
