//! Memory fold: the readings of the memory, of which those stay that stand for the end of the span.

use heapprof_format::{MemoryField, MemoryReading};

use super::Fold;
use crate::model::run::HighestReading;

impl Fold {
    /// Keeps the reading that is nearest to the end of the span, and the nearest whole ones.
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
        self.readings.take(reading, self.end_ns());
        self.keep_memory();
    }

    /// Notes that the process ends at that time.
    pub(super) fn process_ended(&mut self, time_ns: u64) {
        let end_ns = self.end_ns();
        self.readings.end(time_ns, end_ns);
        self.mapped.end(time_ns, end_ns);
        self.keep_memory();
    }

    fn keep_memory(&mut self) {
        self.profile.memory = self.readings.nearest();
        self.profile.whole_memory = self.readings.whole(self.end_ns());
    }

    /// Returns the time of the end of the span.
    pub(super) fn end_ns(&self) -> u64 {
        self.span.map_or(u64::MAX, |span| span.to.time_ns())
    }
}
