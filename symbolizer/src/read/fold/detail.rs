//! Detail keeper: collects the rows by thread, the events of sampled blocks, and the spikes during
//! a fold.

use heapprof_core::{Estimate, Ledger, NumberMap, Row, SizeClass};
use heapprof_format::{Alloc, Free};

use crate::history::spikes::{Point, SpikesSoFar};
use crate::model::detail::{Block, Detail, Detailed, Event, ThreadRow};
use crate::model::special_threads::NOT_KEPT;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    wanted: Detail,
    ledger: Ledger,
    /// (stack, thread) -> the number that the ledger knows it by, and back.
    number_of: NumberMap<(u32, u32), u32>,
    pairs: Vec<(u32, u32)>,
    events: Vec<Event>,
    spikes: SpikesSoFar,
}

impl Keeper {
    pub(crate) fn of(wanted: Detail) -> Self {
        Keeper {
            wanted,
            ..Keeper::default()
        }
    }

    /// The account by thread. Its rows are in the order of [`Detailed::threads`].
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A block came from the stack of that index.
    pub(crate) fn alloc(&mut self, alloc: &Alloc, stack: u32) {
        if self.wanted.threads {
            let number = self.number(stack, alloc.thread);
            self.ledger
                .alloc(alloc.id, number, alloc.size, alloc.interval);
        }
        if self.wanted.events {
            self.events.push(Event {
                time_ns: alloc.time_ns,
                thread: alloc.thread,
                id: alloc.id,
                came: Some(Block {
                    stack,
                    size: alloc.size,
                    interval: alloc.interval,
                }),
            });
        }
    }

    /// Blocks came and went before what is known begins; of which threads is not known.
    pub(crate) fn passed(&mut self, stack: u32, class: SizeClass, freed: &Estimate) {
        if self.wanted.threads && !freed.is_empty() {
            let number = self.number(stack, NOT_KEPT);
            self.ledger.passed(number, class, freed);
        }
    }

    fn number(&mut self, stack: u32, thread: u32) -> u32 {
        let pairs = &mut self.pairs;
        *self
            .number_of
            .entry((stack, thread))
            .or_insert_with_key(|&pair| {
                pairs.push(pair);
                pairs.len() as u32 - 1
            })
    }

    /// A block that is known went.
    pub(crate) fn free(&mut self, free: &Free) {
        if self.wanted.threads {
            self.ledger.free(free.id);
        }
        if self.wanted.events {
            self.events.push(Event {
                time_ns: free.time_ns,
                thread: free.thread,
                id: free.id,
                came: None,
            });
        }
    }

    /// The bytes in use are these behind a record. If they `begin`, they were in use before the
    /// first event.
    #[inline]
    pub(crate) fn in_use(&mut self, begin: bool, point: impl FnOnce() -> Point) {
        match (self.wanted.spikes, begin) {
            (false, _) => {}
            (true, false) => self.spikes.at(point()),
            (true, true) => self.spikes.begin(point()),
        }
    }

    pub(crate) fn finish(self) -> Detailed {
        let threads = self.ledger.rows().map(|row| {
            let (stack, thread) = self.pairs[row.stack as usize];
            ThreadRow {
                thread,
                row: Row { stack, ..row },
            }
        });
        Detailed {
            threads: self.wanted.threads.then(|| threads.collect()),
            events: self.wanted.events.then_some(self.events),
            spikes: (self.wanted.spikes).then(|| self.spikes.finish()),
        }
    }
}
