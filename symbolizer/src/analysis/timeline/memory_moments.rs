//! Memory moments: the readings of the memory that are nearest to the moments of a timeline, each
//! with the blocks in use at its time.
//!
//! ```text
//!   moments    ┊              ┊        ^ peak       ┊
//!   readings     r  r  r  r  r  r  r  r  r  r  r  r
//!   kept         r           r  r     r  r        r      the first and the last of each part
//! ```

use std::collections::VecDeque;

use heapprof_core::{BlockMap, Weight};
use heapprof_format::{Alloc, Event, Free, MemoryReading, Record};

use crate::analysis::resident_memory::BlocksInUse;
use crate::analysis::timeline::companion::Companion;
use crate::model::profile::Profile;
use crate::read::fold::{Fold, LARGEST_BLOCK};

/// A reading, with the blocks in use at its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryMoment {
    /// The reading.
    pub reading: MemoryReading,
    /// The blocks; `None`: nothing is sampled.
    pub blocks: Option<BlocksInUse>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct MemoryMoments {
    /// The moments, ascending, in nanoseconds.
    moments: Vec<u64>,
    /// Readings whose time is not reached.
    waiting: VecDeque<MemoryReading>,
    /// Each with the number of moments before it.
    kept: Vec<(usize, MemoryMoment)>,
    /// The blocks in use that have slack.
    slack_of: BlockMap<Slack>,
    /// Their sums, of all blocks and of those from other allocators.
    slack: f64,
    slack_elsewhere: f64,
    /// The last block. Its stack is known with the next event.
    newest: Option<u64>,
    /// The rows of the whole profile whose blocks are of [other
    /// allocators](Profile::is_elsewhere).
    rows_elsewhere: Vec<usize>,
    /// True for the stacks of such blocks, by number.
    stacks_elsewhere: Vec<bool>,
}

/// The slack of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Slack {
    bytes: f64,
    is_elsewhere: bool,
}

impl MemoryMoments {
    /// Those that are nearest to the moments, of the log that has that profile.
    pub(crate) fn near(mut moments: Vec<u64>, whole: &Profile) -> MemoryMoments {
        moments.sort_unstable();
        let rows = whole.rows.iter().enumerate();
        let elsewhere = rows.filter(|(_, row)| whole.is_elsewhere(row.stack));
        let stacks = 0..whole.stacks.len() as u32;
        MemoryMoments {
            moments,
            waiting: VecDeque::new(),
            kept: Vec::new(),
            slack_of: BlockMap::default(),
            slack: 0.0,
            slack_elsewhere: 0.0,
            newest: None,
            rows_elsewhere: elsewhere.map(|(index, _)| index).collect(),
            stacks_elsewhere: stacks.map(|stack| whole.is_elsewhere(stack)).collect(),
        }
    }

    /// Returns the readings in the order of time.
    pub(crate) fn finish(self) -> Vec<MemoryMoment> {
        self.kept.into_iter().map(|(_, moment)| moment).collect()
    }

    /// Notes whose block the newest one is.
    fn place_newest(&mut self, fold: &Fold) {
        let Some(id) = self.newest.take() else {
            return;
        };
        let stack = fold.ledger().block(id).map(|block| block.stack as usize);
        let is_elsewhere = stack.and_then(|stack| self.stacks_elsewhere.get(stack));
        if let Some(slack) = self.slack_of.get_mut(id)
            && is_elsewhere == Some(&true)
        {
            slack.is_elsewhere = true;
            self.slack_elsewhere += slack.bytes;
        }
    }

    fn keep(&mut self, reading: MemoryReading, fold: &Fold) {
        let total = fold.ledger().total().in_use;
        let elsewhere = (self.rows_elsewhere.iter())
            .filter_map(|&row| fold.ledger().row_at(row))
            .map(|row| row.totals.in_use.bytes_f64());
        let has_samples = fold.ledger().rows().len() > 0;
        let moment = MemoryMoment {
            reading,
            blocks: has_samples.then(|| BlocksInUse {
                requested: total.bytes_f64(),
                error: total.bytes_error(),
                slack: self.slack,
                elsewhere: elsewhere.sum::<f64>() + self.slack_elsewhere,
                interval: fold.ledger().longest_interval().unwrap_or(1),
                untouched: None,
            }),
        };
        let part = self.moments.partition_point(|ns| *ns < reading.time_ns);
        match &mut self.kept[..] {
            [.., (first, _), (last, kept)] if *first == part && *last == part => {
                // A whole one stays, since few are.
                if reading.is_whole() || !kept.reading.is_whole() {
                    *kept = moment;
                }
            }
            _ => self.kept.push((part, moment)),
        }
    }
}

impl Companion for MemoryMoments {
    fn record(&mut self, record: &Record) {
        if let Record::Memory(reading) = record {
            self.waiting.push_back(**reading);
        }
    }

    fn event(&mut self, event: &Event, fold: &Fold) {
        self.place_newest(fold);
        let (Event::Alloc(Alloc { time_ns, .. }) | Event::Free(Free { time_ns, .. })) = *event;
        while !fold.is_resuming()
            && let Some(&reading) = self.waiting.front().filter(|it| it.time_ns < time_ns)
        {
            self.waiting.pop_front();
            self.keep(reading, fold);
        }
        match event {
            Event::Alloc(alloc) if alloc.slack > 0 && alloc.size <= LARGEST_BLOCK => {
                let weight = Weight::of(alloc.size, alloc.interval);
                let slack = weight
                    .carrying(alloc.slack.min(LARGEST_BLOCK))
                    .bytes_fixed();
                let bytes = slack.to_f64();
                self.slack += bytes;
                let is_elsewhere = false;
                self.slack_of.insert(
                    alloc.id,
                    Slack {
                        bytes,
                        is_elsewhere,
                    },
                );
                self.newest = Some(alloc.id);
            }
            Event::Free(free) => {
                if let Some(slack) = self.slack_of.remove(free.id) {
                    self.slack -= slack.bytes;
                    if slack.is_elsewhere {
                        self.slack_elsewhere -= slack.bytes;
                    }
                }
            }
            Event::Alloc(_) => {}
        }
    }

    fn end(&mut self, fold: &Fold) {
        self.place_newest(fold);
        while let Some(reading) = self.waiting.pop_front() {
            self.keep(reading, fold);
        }
    }
}
