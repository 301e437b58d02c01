//! Companion: an account that is kept beside a timeline, while the timeline is drawn.
//!
//! Glossary: companion.

use heapprof_format::{Event, Record};

use crate::read::fold::Fold;

/// See the module's text. The unit type keeps nothing.
pub(crate) trait Companion {
    /// A record that is no event is about to be taken.
    fn record(&mut self, _: &Record) {}

    /// An event is about to be taken. All steps that end before it are drawn.
    fn event(&mut self, _: &Event, _: &Fold) {}

    /// A moment is reached. The moments are numbered: 0 is the beginning, the others are the ends
    /// of the steps, and moments within steps come behind these.
    fn moment(&mut self, _number: usize, _time_ns: u64, _: &Fold) {}

    /// All records are taken.
    fn end(&mut self, _: &Fold) {}
}

impl Companion for () {}

impl<A: Companion, B: Companion> Companion for (A, B) {
    fn record(&mut self, record: &Record) {
        self.0.record(record);
        self.1.record(record);
    }

    fn event(&mut self, event: &Event, fold: &Fold) {
        self.0.event(event, fold);
        self.1.event(event, fold);
    }

    fn moment(&mut self, number: usize, time_ns: u64, fold: &Fold) {
        self.0.moment(number, time_ns, fold);
        self.1.moment(number, time_ns, fold);
    }

    fn end(&mut self, fold: &Fold) {
        self.0.end(fold);
        self.1.end(fold);
    }
}
