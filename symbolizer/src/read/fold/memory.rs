//! Memory fold: the readings of the memory, of which those stay that stand for the end of the span.

use heapprof_format::{MemoryField, MemoryReading};

use super::Fold;
use crate::model::run::HighestReading;

impl Fold {
    /// Keeps the reading that is nearest to the end of the span, and the nearest whole one.
    pub(super) fn memory(&mut self, reading: MemoryReading) {
        if let Some(resident) = reading.get(MemoryField::Resident) {
            let highest = &mut self.profile.run.most_resident;
            if highest.is_none_or(|it| resident > it.resident) {
                *highest = Some(HighestReading {
                    record: self.records,
                    time_ns: reading.time_ns,
                    resident,
                });
            }
        }
        self.profile.memory_course.add(&reading);
        let end_ns = self.end_ns();
        let [nearest, nearest_whole] = &mut self.memory;
        nearest.take(reading.time_ns, reading, end_ns);
        if reading.is_whole() {
            nearest_whole.take(reading.time_ns, reading, end_ns);
        }
        self.keep_memory();
    }

    /// Notes that the process ends at that time.
    pub(super) fn process_ended(&mut self, time_ns: u64) {
        let end_ns = self.end_ns();
        for nearest in &mut self.memory {
            nearest.end(time_ns, end_ns);
        }
        self.mapped.end(time_ns, end_ns);
        self.keep_memory();
    }

    fn keep_memory(&mut self) {
        let [nearest, nearest_whole] = &self.memory;
        self.profile.memory = nearest.get().copied();
        self.profile.whole_memory = nearest_whole.get().copied();
    }

    /// Returns the time of the end of the span.
    pub(super) fn end_ns(&self) -> u64 {
        self.span.map_or(u64::MAX, |span| span.to.time_ns())
    }
}
