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

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Averages {
    since_ns: u64,
    /// By stack: the sums over all changes of blocks and of bytes, each times its time.
    moments: NumberMap<u32, [f64; 2]>,
}

impl Averages {
    /// Over the time from then on.
    pub(super) fn since(since_ns: u64) -> Averages {
        Averages {
            since_ns,
            moments: NumberMap::default(),
        }
    }

    pub(super) fn change(&mut self, stack: u32, weight: &Weight, sign: f64, time_ns: u64) {
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
