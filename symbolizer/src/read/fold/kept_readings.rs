//! Kept readings of the memory: those that may stand for the end of the span.

use std::collections::VecDeque;

use heapprof_format::MemoryReading;

use crate::model::nearest::{self, Nearest};

/// Most whole readings on each side of the moment that are kept.
const MOST_WHOLE: usize = 8;

/// See the module's text. The moment is the end of the span, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptReadings {
    /// The nearest one.
    nearest: Nearest<MemoryReading>,
    /// The last whole ones up to the moment, and the first ones behind it.
    whole: [VecDeque<MemoryReading>; 2],
}

impl KeptReadings {
    /// Takes a reading, behind all others.
    pub(super) fn take(&mut self, reading: MemoryReading, moment_ns: u64) {
        self.nearest.take(reading.time_ns, reading, moment_ns);
        if !reading.is_whole() {
            return;
        }
        let [before, behind] = &mut self.whole;
        if reading.time_ns > moment_ns {
            if behind.len() < MOST_WHOLE {
                behind.push_back(reading);
            }
            return;
        }
        if before.len() == MOST_WHOLE {
            before.pop_front();
        }
        before.push_back(reading);
    }

    /// Notes that the process ends at that time.
    pub(super) fn end(&mut self, end_ns: u64, moment_ns: u64) {
        self.nearest.end(end_ns, moment_ns);
        let [_, behind] = &mut self.whole;
        behind.retain(|it| {
            nearest::is_of(it.time_ns, moment_ns) || !nearest::is_of(it.time_ns, end_ns)
        });
    }

    /// Returns the nearest reading.
    pub(super) fn nearest(&self) -> Option<MemoryReading> {
        self.nearest.get().copied()
    }

    /// Returns the whole readings, the nearest first.
    pub(super) fn whole(&self, moment_ns: u64) -> Vec<MemoryReading> {
        let mut whole: Vec<_> = self.whole.iter().flatten().copied().collect();
        whole.sort_by_key(|it| nearest::rank(it.time_ns, moment_ns));
        whole
    }
}
