//! For tests: a sink that keeps every event of the lanes.

use std::ops::ControlFlow;

use crate::lanes::event::{Event, Freed, LastSample, NextSample, Origin, Sampled, Sink, UsualSink};

/// All events that it took.
#[derive(Debug, Default)]
pub(crate) struct All {
    pub(crate) events: Vec<(Origin, Event)>,
    /// The number of events after which it breaks off.
    pub(crate) breaks_after: Option<usize>,
    /// Bit n: it refuses event n, modulo 64, as a usual one.
    pub(crate) refused: u64,
    /// The number of usual events that it took.
    pub(crate) usual: usize,
}

impl All {
    fn take(&mut self, by: Origin, passed: Event) -> ControlFlow<()> {
        self.events.push((by, passed));
        if self.breaks_after == Some(self.events.len()) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl Sink for All {
    type UsualSink<'a> = UsualOf<'a>;

    fn sampled(&mut self, by: Origin, it: &Sampled) -> ControlFlow<()> {
        self.take(by, Event::Sampled(*it))
    }

    fn freed(&mut self, by: Origin, it: &Freed) -> ControlFlow<()> {
        self.take(by, Event::Freed(*it))
    }

    fn usual_sink(&mut self, by: Origin, last: LastSample) -> Option<UsualOf<'_>> {
        // A sink may break off at any event, and usual events give no occasion to.
        self.breaks_after.is_none().then_some(UsualOf {
            before: self.events.len(),
            all: self,
            by,
            last,
        })
    }
}

pub(crate) struct UsualOf<'a> {
    all: &'a mut All,
    by: Origin,
    last: LastSample,
    before: usize,
}

impl UsualOf<'_> {
    fn refuses(&self) -> bool {
        self.all.refused >> (self.all.events.len() % 64) & 1 != 0
    }

    fn take(&mut self, passed: Event) {
        self.all.events.push((self.by, passed));
    }

    fn take_freed(&mut self, at: u64, back: u64) {
        let id = self.last.id - back;
        self.take(Event::Freed(Freed { at, id }));
    }

    fn take_sampled(&mut self, at: u64, it: NextSample) {
        self.last.id += 1;
        self.last.stack = it.stack.unwrap_or(self.last.stack);
        self.take(Event::Sampled(Sampled {
            at,
            id: self.last.id,
            stack: self.last.stack,
            size: it.size,
            slack: it.slack as u32,
            counted: it.counted,
        }));
    }
}

impl UsualSink for UsualOf<'_> {
    fn sampled(&mut self, at: u64, it: NextSample) -> bool {
        let is_taken = !self.refuses();
        if is_taken {
            self.take_sampled(at, it);
        }
        is_taken
    }

    fn freed(&mut self, at: u64, back: u64) -> bool {
        let is_taken = !self.refuses();
        if is_taken {
            self.take_freed(at, back);
        }
        is_taken
    }

    fn replaced(&mut self, at: u64, back: u64, it: NextSample) -> bool {
        let is_taken = !self.refuses();
        if is_taken {
            self.take_freed(at, back);
            self.take_sampled(at, it);
        }
        is_taken
    }

    fn finish(self, samples: u64, frees: u64) {
        let taken = &self.all.events[self.before..];
        let is_sample = |(_, passed): &&(Origin, Event)| matches!(passed, Event::Sampled(_));
        assert_eq!(taken.iter().filter(is_sample).count() as u64, samples);
        assert_eq!(taken.len() as u64, samples + frees);
        self.all.usual += taken.len();
    }
}
