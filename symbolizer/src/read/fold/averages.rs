//! Averages: what each stack had in use on average over a time, beside what it has at its end.
//!
//! ```text
//!   in use   ┌────┐            average = in use at the end
//!        ────┘    └────────              - sum of (change * its time since the begin) / time
//!        begin         end
//! ```
//!
//! Only stacks that changed in the time have an entry: all others had the same all the time.

use heapprof_core::{NumberMap, Weight};
use heapprof_format::Free;

use super::Fold;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Averages {
    since_ns: u64,
    /// By stack: the sums over all changes of blocks and of bytes, each times its time.
    moments: NumberMap<u32, [f64; 2]>,
}

impl Averages {
    /// Over the time from then on.
    fn since(since_ns: u64) -> Averages {
        Averages {
            since_ns,
            moments: NumberMap::default(),
        }
    }

    fn change(&mut self, stack: u32, weight: &Weight, sign: f64, time_ns: u64) {
        // A block from before was in use all the time.
        let time = sign * time_ns.saturating_sub(self.since_ns) as f64;
        let moment = self.moments.entry(stack).or_default();
        moment[0] += weight.objects_f64() * time;
        moment[1] += weight.bytes_f64_with_variance().0 * time;
    }

    /// How much less a stack had in use on average than it has at the end: blocks and bytes.
    pub(crate) fn less(&self, stack: u32, end_ns: u64) -> [f64; 2] {
        let time = end_ns.saturating_sub(self.since_ns) as f64;
        match self.moments.get(&stack) {
            Some(moment) if time > 0.0 => moment.map(|sum| sum / time),
            _ => [0.0; 2],
        }
    }
}

impl Fold {
    /// Keeps averages from that time on, if there is one.
    pub(crate) fn with_averages_since(mut self, since_ns: Option<u64>) -> Self {
        self.averages = since_ns.map(Averages::since);
        self
    }

    /// Returns the averages up to now, if any were kept, and keeps others from that time on.
    pub(crate) fn take_averages(&mut self, since_ns: u64) -> Averages {
        let next = Some(Averages::since(since_ns));
        std::mem::replace(&mut self.averages, next).unwrap_or_default()
    }

    pub(super) fn average_alloc(&mut self, stack: u32, weight: &Weight, time_ns: u64) {
        if let Some(averages) = &mut self.averages {
            averages.change(stack, weight, 1.0, time_ns);
        }
    }

    /// To be called before the free is taken.
    pub(super) fn average_free(&mut self, free: &Free) {
        if let Some(averages) = &mut self.averages
            && let Some(block) = self.ledger.block(free.id)
        {
            let weight = self.ledger.weight(block.size, block.interval);
            averages.change(block.stack, &weight, -1.0, free.time_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::{Alloc, Record};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the area under the curve, summed up block by block.
        #[test]
        fn averages_are_the_area_under_the_curve(
            blocks in prop::collection::vec((0u64..1000, 0u64..1000, 1u64..5000), 1..40),
            begin in 0u64..400,
            length in 1u64..400,
        ) {
            let end = begin + length;
            let mut events: Vec<(u64, Record)> = Vec::new();
            let mut area = 0.0;
            for (id, &(first, stays, size)) in (1..).zip(&blocks) {
                let last = first + stays;
                let alloc = Alloc { time_ns: first, thread: 0, id, stack: 1, size, slack: 0, interval: 1 };
                events.push((first, Record::Alloc(alloc)));
                events.push((last, Record::Free(Free { time_ns: last, thread: 0, id })));
                area += last.min(end).saturating_sub(first.max(begin)) as f64 * size as f64;
            }
            // An allocation comes before its free.
            events.sort_by_key(|(time, record)| (*time, matches!(record, Record::Free(_))));
            let mut fold = Fold::new();
            for (_, record) in events.iter().filter(|(time, _)| *time <= begin) {
                fold.record(record.clone());
            }
            fold.take_averages(begin);
            for (_, record) in events.iter().filter(|(time, _)| (begin + 1..=end).contains(time)) {
                fold.record(record.clone());
            }
            let in_use = fold.ledger().total().in_use.bytes_f64();
            let average = in_use - fold.take_averages(end).less(0, end)[1];
            prop_assert!((average - area / length as f64).abs() < 1e-6, "{average} {area} {length}");
        }
    }
}
