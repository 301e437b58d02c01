//! Extras keeper: collects the rows by thread, the events of sampled blocks, and the spikes during
//! a fold.

use heapprof_core::{BlockMap, Estimate, Fixed, Ledger, Live, NumberMap, Row, SizeClass};
use heapprof_format::{Alloc, Free};

use crate::history::spikes::{Point, SpikesSoFar};
use crate::model::extras::{Block, Event, Extras, ThreadRow, WantedExtras};
use crate::model::special_threads::NOT_KEPT;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keeper {
    wanted: WantedExtras,
    ledger: Ledger,
    /// (stack, thread) -> the number that the ledger knows it by, and back.
    number_of: NumberMap<(u32, u32), u32>,
    pairs: Vec<(u32, u32)>,
    /// By row of the whole account: the thread of its first block.
    first: Vec<Option<FirstThread>>,
    /// The rows of blocks in use that another thread allocated.
    of_others: BlockMap<u32>,
    events: Vec<Event>,
    spikes: SpikesSoFar,
}

/// The thread that allocated the first block of a row. Most rows have no other, so only the blocks
/// of others are remembered one by one.
#[derive(Debug, Clone, Copy)]
struct FirstThread {
    thread: u32,
    /// The row of its blocks, in the account by thread.
    row: u32,
    has_others: bool,
}

impl Keeper {
    pub(crate) fn of(wanted: WantedExtras) -> Self {
        Keeper {
            wanted,
            ..Keeper::default()
        }
    }

    /// The account by thread. Its rows are in the order of [`Extras::threads`].
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A block was allocated by the stack of that index, into that row of the whole account.
    pub(crate) fn alloc(&mut self, alloc: &Alloc, stack: u32, row: u32) {
        if self.wanted.threads {
            let own = self.row_of_thread(alloc, stack, row as usize);
            let live = self.ledger.sample(own, alloc.size, alloc.interval);
            self.ledger.add_allocation(live);
        }
        if self.wanted.events {
            self.events.push(Event {
                time_ns: alloc.time_ns,
                thread: alloc.thread,
                id: alloc.id,
                allocated: Some(Block {
                    stack,
                    size: alloc.size,
                    interval: alloc.interval,
                }),
            });
        }
    }

    /// The row of an allocated block, in the account by thread.
    #[inline]
    fn row_of_thread(&mut self, alloc: &Alloc, stack: u32, row: usize) -> u32 {
        match self.first.get(row) {
            Some(Some(first)) if first.thread == alloc.thread => first.row,
            _ => self.row_of_new_thread(alloc, stack, row),
        }
    }

    #[inline(never)]
    fn row_of_new_thread(&mut self, alloc: &Alloc, stack: u32, row: usize) -> u32 {
        let number = self.number(stack, alloc.thread);
        let own = self.ledger.row(number, SizeClass::of(alloc.size));
        if row >= self.first.len() {
            self.first.resize(row + 1, None);
        }
        match &mut self.first[row] {
            Some(first) => {
                first.has_others = true;
                self.of_others.insert(alloc.id, own);
            }
            none => {
                *none = Some(FirstThread {
                    thread: alloc.thread,
                    row: own,
                    has_others: false,
                });
            }
        }
        own
    }

    /// Blocks were allocated and freed before what is known begins; by which threads is not known.
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

    /// A block was freed that the whole account knows.
    pub(crate) fn free(&mut self, free: &Free, live: Live, whole: &Ledger) {
        if self.wanted.threads
            && let Some(Some(first)) = self.first.get(live.row as usize)
        {
            let other = match first.has_others {
                true => self.of_others.remove(free.id),
                false => None,
            };
            let block = whole.block_of(live);
            let own = other.unwrap_or(first.row);
            let live = self.ledger.sample(own, block.size, block.interval);
            self.ledger.add_free(live);
        }
        if self.wanted.events {
            self.events.push(Event {
                time_ns: free.time_ns,
                thread: free.thread,
                id: free.id,
                allocated: None,
            });
        }
    }

    /// Returns true if the spikes change with so many bytes in use, behind a record. If they
    /// `begin`, they were in use before the first event.
    #[inline]
    pub(crate) fn has_spike_at(&self, begin: bool, bytes: Fixed) -> bool {
        self.wanted.spikes && (begin || self.spikes.may_change_at(bytes))
    }

    /// These blocks are in use behind a record.
    pub(crate) fn in_use(&mut self, begin: bool, here: Point) {
        match (self.wanted.spikes, begin) {
            (false, _) => {}
            (true, false) => self.spikes.at(here),
            (true, true) => self.spikes.begin(here),
        }
    }

    pub(crate) fn finish(self) -> Extras {
        let threads = self.ledger.rows().map(|row| {
            let (stack, thread) = self.pairs[row.stack as usize];
            ThreadRow {
                thread,
                row: Row { stack, ..row },
            }
        });
        Extras {
            threads: self.wanted.threads.then(|| threads.collect()),
            events: self.wanted.events.then_some(self.events),
            spikes: (self.wanted.spikes).then(|| self.spikes.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_core::Totals;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against an account of all blocks by stack, thread and class.
        #[test]
        fn rows_are_divided_by_the_thread_that_allocated(
            steps in prop::collection::vec((0u32..3, 0u32..3, 1u64..40, any::<prop::sample::Index>(), any::<bool>()), 1..200)
        ) {
            let mut keeper = Keeper::of(WantedExtras { threads: true, ..WantedExtras::default() });
            let (mut whole, mut by_thread) = (Ledger::new(), Ledger::new());
            let mut live: Vec<u64> = Vec::new();
            for (id, (stack, thread, size, which, is_free)) in (0..).zip(steps) {
                if is_free && !live.is_empty() {
                    let id = live.swap_remove(which.index(live.len()));
                    by_thread.free(id);
                    let gone = whole.free(id).unwrap();
                    keeper.free(&Free { time_ns: 0, thread: 7, id }, gone, &whole);
                } else {
                    live.push(id);
                    let (row, _) = whole.alloc(id, stack, size, 1);
                    by_thread.alloc(id, 10 * stack + thread, size, 1);
                    let alloc = Alloc { time_ns: 0, thread, id, stack, size, slack: 0, interval: 1 };
                    keeper.alloc(&alloc, stack, row);
                }
            }
            let expected: BTreeMap<(u32, u8), Totals> = by_thread.rows()
                .map(|row| ((row.stack, row.class.0), row.totals))
                .collect();
            let threads = keeper.finish().threads.unwrap();
            let found: BTreeMap<(u32, u8), Totals> = threads.iter()
                .map(|it| ((10 * it.row.stack + it.thread, it.row.class.0), it.row.totals))
                .collect();
            prop_assert_eq!(found.len(), threads.len());
            prop_assert_eq!(found, expected);
        }
    }
}
