//! The history: a fold of allocations and frees with their times into what the four totals do not
//! say: the peak, what was freed at once, how long blocks lived, memory held over time, slack.
//!
//! Rows are those of a [`Ledger`](crate::Ledger) that is told the same events; memory is needed for
//! live blocks, rows and stacks, whatever the number of events.
//!
//! The state of every row at the global maximum is found in the same pass, without a copy of all
//! rows at each new one. Maxima are numbered. A row that is about to change, and has not changed
//! since the last maximum, is at this moment as it was then:
//!
//! ```text
//!   total      ╱╲     ╱‾╲        maximum     1      2
//!          ___╱  ╲___╱   ╲__     row a   changes at 1, then after 2: kept as it stands before that
//!             1      2           row b   never changes after 1: at the end, it is as it was at 2
//! ```

use crate::lifetimes::Lifetimes;
use crate::number_hash::NumberMap;
use crate::weight::{Estimate, Fixed, OverTime, Weight};

/// What a row's past says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Past {
    /// In use when all rows together were at their first global maximum of bytes.
    pub peak: Estimate,
    /// Freed within the time that counts as temporary.
    pub temporary: Estimate,
    /// In use, integrated over time.
    pub heaptime: OverTime,
    /// Usable bytes beyond those requested, of blocks in use.
    pub slack: Estimate,
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    past: Past,
    in_use: Estimate,
    /// The maximum up to which `past.peak` is right.
    maximum: u64,
}

#[derive(Debug, Clone, Copy)]
struct Birth {
    time_ns: u64,
    size: u64,
    slack: u64,
    interval: u64,
    row: u32,
    stack: u32,
}

impl Birth {
    fn lived_ns(&self, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.time_ns)
    }

    /// How long it lived since then.
    fn held_ns(&self, since_ns: u64, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.time_ns.max(since_ns))
    }
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct History {
    temporary_ns: u64,
    /// What was before is not known, but for blocks that were in use then.
    since_ns: u64,
    rows: Vec<Row>,
    live: NumberMap<u64, Birth>,
    lifetimes: Vec<Lifetimes>,
    in_use: Estimate,
    largest: Fixed,
    maximum: u64,
}

impl History {
    /// Nothing happened yet. A block that is freed `temporary_ns` after it was allocated, or
    /// sooner, is temporary.
    pub fn new(temporary_ns: u64) -> History {
        History {
            temporary_ns,
            since_ns: 0,
            rows: Vec::new(),
            live: NumberMap::default(),
            lifetimes: Vec::new(),
            in_use: Estimate::default(),
            largest: Fixed::default(),
            maximum: 0,
        }
    }

    /// What is known begins at that time. Blocks that were in use then are told as allocated at the times they were;
    /// what they held before does not count, nor do they for lifetimes: of blocks as old as they are, only those
    /// that lived so long are known.
    pub fn begin_at(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
    }

    /// A sampled block was allocated; `row` is the ledger's.
    #[expect(clippy::too_many_arguments, reason = "they are what an allocation is")]
    pub fn alloc(
        &mut self,
        id: u64,
        row: u32,
        stack: u32,
        size: u64,
        slack: u64,
        interval: u64,
        time_ns: u64,
    ) {
        let weight = Weight::of(size, interval);
        let state = self.row(row);
        state.in_use.add(&weight);
        state.past.slack.add(&weight.carrying(slack));
        self.in_use.add(&weight);
        if self.in_use.bytes_fixed() > self.largest {
            self.largest = self.in_use.bytes_fixed();
            self.maximum += 1;
        }
        let birth = Birth {
            time_ns,
            size,
            slack,
            interval,
            row,
            stack,
        };
        self.live.insert(id, birth);
    }

    /// The sample of that id was freed.
    pub fn free(&mut self, id: u64, time_ns: u64) {
        let Some(birth) = self.live.remove(&id) else {
            return;
        };
        let weight = Weight::of(birth.size, birth.interval);
        let lived_ns = birth.lived_ns(time_ns);
        let held_ns = birth.held_ns(self.since_ns, time_ns);
        let is_temporary = lived_ns <= self.temporary_ns;
        let state = self.row(birth.row);
        state.in_use.remove(&weight);
        state.past.slack.remove(&weight.carrying(birth.slack));
        state.past.heaptime.add(&weight, held_ns / 1000);
        if is_temporary {
            state.past.temporary.add(&weight);
        }
        self.in_use.remove(&weight);
        if birth.time_ns >= self.since_ns {
            self.lifetimes_of(birth.stack)
                .died(lived_ns, weight.objects_f64());
        }
    }

    /// The past of each row, and the lifetimes of each stack, as of `time_ns`: what lives then has
    /// lived up to then.
    pub fn finish(mut self, time_ns: u64) -> (Vec<Past>, Vec<Lifetimes>) {
        let mut live: Vec<(u64, Birth)> = self.live.drain().collect();
        // Sums of floating-point numbers depend on their order; a hash map has none.
        live.sort_unstable_by_key(|(id, _)| *id);
        for (_, birth) in live {
            let weight = Weight::of(birth.size, birth.interval);
            let lived_ns = birth.lived_ns(time_ns);
            let held_ns = birth.held_ns(self.since_ns, time_ns);
            self.row(birth.row)
                .past
                .heaptime
                .add(&weight, held_ns / 1000);
            if birth.time_ns >= self.since_ns {
                self.lifetimes_of(birth.stack)
                    .lives(lived_ns, weight.objects_f64());
            }
        }
        for row in 0..self.rows.len() {
            self.row(row as u32);
        }
        let pasts = self.rows.iter().map(|row| row.past).collect();
        (pasts, self.lifetimes)
    }

    /// The row, about to be changed.
    fn row(&mut self, index: u32) -> &mut Row {
        let index = index as usize;
        if index >= self.rows.len() {
            // A row that was not there at any maximum so far had nothing in use then.
            let maximum = self.maximum;
            self.rows.resize_with(index + 1, || Row {
                maximum,
                ..Row::default()
            });
        }
        let row = &mut self.rows[index];
        if row.maximum < self.maximum {
            row.past.peak = row.in_use;
            row.maximum = self.maximum;
        }
        row
    }

    fn lifetimes_of(&mut self, stack: u32) -> &mut Lifetimes {
        let index = stack as usize;
        if index >= self.lifetimes.len() {
            self.lifetimes.resize_with(index + 1, Lifetimes::default);
        }
        &mut self.lifetimes[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 0: 100 from 0 to 4 ms. Row 1: 50 from 1 to 2 ms, 60 from 3 ms on.
    fn story() -> (Vec<Past>, Vec<Lifetimes>) {
        const MS: u64 = 1_000_000;
        let mut history = History::new(MS);
        history.alloc(1, 0, 0, 100, 12, 1, 0);
        history.alloc(2, 1, 1, 50, 14, 1, MS);
        history.free(2, 2 * MS);
        history.alloc(3, 1, 1, 60, 4, 1, 3 * MS);
        history.free(1, 4 * MS);
        history.finish(10 * MS)
    }

    #[test]
    fn every_row_is_as_it_was_at_the_global_maximum() {
        let (pasts, _) = story();
        let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
        assert_eq!(peak, [100, 60]);
    }

    #[test]
    fn memory_is_held_for_as_long_as_blocks_live() {
        let (pasts, _) = story();
        let held: Vec<f64> = pasts.iter().map(|p| p.heaptime.byte_seconds()).collect();
        assert_eq!(held, [0.4, 0.05 + 0.42]);
        assert_eq!(pasts[1].heaptime.object_seconds(), 0.008);
    }

    #[test]
    fn what_is_freed_soon_is_temporary_and_what_lives_has_slack() {
        let (pasts, _) = story();
        assert_eq!(
            (
                pasts[0].temporary.objects(),
                pasts[1].temporary.bytes(),
                pasts[0].slack.bytes(),
                pasts[1].slack.bytes()
            ),
            (0, 50, 0, 4)
        );
    }

    #[test]
    fn the_first_of_equal_maxima_counts() {
        let mut history = History::new(0);
        history.alloc(1, 0, 0, 100, 0, 1, 0);
        history.free(1, 1);
        history.alloc(2, 1, 1, 100, 0, 1, 2);
        let (pasts, _) = history.finish(3);
        assert_eq!((pasts[0].peak.bytes(), pasts[1].peak.bytes()), (100, 0));
    }
}
