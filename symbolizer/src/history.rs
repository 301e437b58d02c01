//! History: a fold of the allocations and frees of a log, with their times, into what totals cannot
//! say.
//!
//! It knows the peak, temporary blocks, lifetimes, memory held over time, growth and slack. Its
//! rows are those of a [`Ledger`](heapprof_core::Ledger) that takes the same events. Memory is
//! needed for live blocks, rows and stacks, not for events.
//!
//! The state of every row at the global maximum is found in the same pass, without a copy of all
//! rows at each new maximum. Maxima are numbered. If a row is about to change, and has not changed
//! since the last maximum, it still has its state of that maximum:
//!
//! ```text
//!   total      ╱╲     ╱‾╲        maximum     1      2
//!          ___╱  ╲___╱   ╲__     row a   changes at 1, then after 2: kept as it stands before that
//!             1      2           row b   never changes after 1: at the end, it is as it was at 2
//! ```
//!
//! Imports: `heapprof_core` alone.
//!
//! Not here: which events of a log count (`read::fold`).

pub(crate) mod courses;
pub(crate) mod curve;
pub(crate) mod lifetimes;
pub(crate) mod over_time;
pub(crate) mod pages;
pub(crate) mod slope;
pub(crate) mod spikes;
pub(crate) mod temporary;

use crate::history::courses::{Courses, CoursesSoFar};
use crate::history::lifetimes::Lifetimes;
use crate::history::over_time::OverTime;
use crate::history::pages::{Pages, PagesOfBlock};
use crate::history::slope::{Slope, Sums};
use crate::history::temporary::Temporary;
use heapprof_core::{Estimate, Fixed, NumberMap, Weight};

/// The past of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Past {
    /// In use when all rows together were at their first global maximum of bytes.
    pub peak: Estimate,
    /// Freed so soon that it was [`Temporary`].
    pub temporary: Estimate,
    /// In use, integrated over time.
    pub heaptime: OverTime,
    /// Usable bytes beyond those requested, of blocks in use.
    pub slack: Estimate,
    /// How fast it grew: of all blocks, those from before the window included.
    pub growth: Slope,
    /// The pages of blocks in use, at the reading that was asked for.
    pub pages: Pages,
    /// Mapped bytes, if the row is of mappings.
    pub mapped: u64,
    /// Resident bytes of these.
    pub mapped_resident: u64,
}

impl Past {
    /// Adds the past of other samples: another process's. Peaks are each at its own moment.
    pub fn merge(&mut self, other: &Past) {
        self.peak.merge(&other.peak);
        self.temporary.merge(&other.temporary);
        self.heaptime.merge(&other.heaptime);
        self.slack.merge(&other.slack);
        self.growth.merge(&other.growth);
        self.pages.merge(&other.pages);
        self.mapped = self.mapped.saturating_add(other.mapped);
        self.mapped_resident = self.mapped_resident.saturating_add(other.mapped_resident);
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    past: Past,
    in_use: Estimate,
    growth: Sums,
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
    thread: u32,
    /// True if it came in the window, and not before.
    counts: bool,
    inherited: bool,
    /// Allocations of its thread so far, itself included.
    allocations: f64,
}

/// A sampled block that was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// The sample.
    pub id: u64,
    /// Index of its row in the ledger.
    pub row: u32,
    /// Index of its stack.
    pub stack: u32,
    /// The thread that allocated it.
    pub thread: u32,
    /// Bytes requested.
    pub size: u64,
    /// Usable bytes beyond them.
    pub slack: u64,
    /// The mean interval that it was sampled under.
    pub interval: u64,
    /// When.
    pub time_ns: u64,
    /// True if it was in use already at that time, because a forked process had it from its parent:
    /// how long it lived is not known.
    pub inherited: bool,
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
pub(crate) struct History {
    temporary: Temporary,
    /// Growth is that since then.
    from_ns: u64,
    /// Allocations of each thread, estimated: kept when asked for.
    allocations: NumberMap<u32, f64>,
    /// Nothing earlier is known, except the blocks that were in use then.
    since_ns: u64,
    rows: Vec<Row>,
    live: NumberMap<u64, Birth>,
    lifetimes: Vec<Lifetimes>,
    in_use: Estimate,
    largest: Fixed,
    maximum: u64,
    /// The courses of all stacks: kept when asked for.
    courses: Option<CoursesSoFar>,
}

impl History {
    /// Nothing happened yet.
    #[cfg(test)]
    pub(crate) fn new(temporary: Temporary) -> History {
        History::since(0, temporary)
    }

    /// Nothing happened yet in a window that begins at `from_ns`.
    pub(crate) fn since(from_ns: u64, temporary: Temporary) -> History {
        History {
            temporary,
            from_ns,
            allocations: NumberMap::default(),
            since_ns: 0,
            rows: Vec::new(),
            live: NumberMap::default(),
            lifetimes: Vec::new(),
            in_use: Estimate::default(),
            largest: Fixed::default(),
            maximum: 0,
            courses: None,
        }
    }

    /// Keeps the courses of all stacks, too.
    pub(crate) fn keep_courses(&mut self) {
        self.courses = Some(CoursesSoFar::default());
    }

    /// The courses as of that time, if they are kept: what lives then stays.
    pub(crate) fn take_courses(&mut self, time_ns: u64) -> Option<Courses> {
        let mut courses = self.courses.take()?;
        let mut live: Vec<(&u64, &Birth)> = self.live.iter().collect();
        // As in `finish`: the order of the sums is that of the samples.
        live.sort_unstable_by_key(|(id, _)| **id);
        for (_, birth) in live {
            if birth.counts {
                let weight = Weight::of(birth.size, birth.interval);
                courses.stays(birth.stack, birth.time_ns.max(self.since_ns), &weight);
            }
        }
        Some(courses.finish(self.since_ns, time_ns))
    }

    /// Says that knowledge begins at that time. Blocks in use then are reported with their own
    /// allocation times. The time before does not count for memory over time. Such blocks do not
    /// count for lifetimes: of blocks as old as these, only those that lived so long are known.
    pub(crate) fn begin_at(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
        self.from_ns = self.from_ns.max(since_ns);
    }

    /// To be called when all blocks that were in use at that time have been told, and with them the
    /// frees of inherited blocks that were gone by then. While they were told, more may have seemed
    /// to be in use than ever was at once: so the peak is looked for from here on.
    pub(crate) fn begun(&mut self) {
        self.largest = self.in_use.bytes_fixed();
        self.maximum += 1;
    }

    /// A sampled block was allocated.
    pub(crate) fn alloc(&mut self, came: &Allocation) {
        let weight = Weight::of(came.size, came.interval);
        let state = self.row(came.row);
        state.in_use.add(&weight);
        state.past.slack.add(&weight.carrying(came.slack));
        if let Some(courses) = &mut self.courses {
            courses.came(came.stack, came.time_ns.max(self.since_ns), &weight);
        }
        self.in_use.add(&weight);
        if self.in_use.bytes_fixed() > self.largest {
            self.largest = self.in_use.bytes_fixed();
            self.maximum += 1;
        }
        let mut allocations = 0.0;
        if self.temporary.before_allocations.is_some() {
            let sum = self.allocations.entry(came.thread).or_default();
            *sum += weight.objects_f64();
            allocations = *sum;
        }
        self.born(came, true, allocations);
    }

    /// A sampled block was allocated before the window. Only the growth of its row will know of it.
    pub(crate) fn alloc_before(&mut self, came: &Allocation) {
        self.row(came.row);
        self.born(came, false, 0.0);
    }

    fn born(&mut self, came: &Allocation, counts: bool, allocations: f64) {
        let birth = Birth {
            time_ns: came.time_ns,
            size: came.size,
            slack: came.slack,
            interval: came.interval,
            row: came.row,
            stack: came.stack,
            thread: came.thread,
            counts,
            inherited: came.inherited,
            allocations,
        };
        self.live.insert(came.id, birth);
    }

    /// The sample of that id was freed.
    pub(crate) fn free(&mut self, id: u64, time_ns: u64) {
        self.went(id, time_ns, true);
    }

    /// The sample of that id went with its process: nobody freed it, and how long it would have
    /// lived is not known.
    pub(crate) fn left(&mut self, id: u64, time_ns: u64) {
        self.went(id, time_ns, false);
    }

    fn went(&mut self, id: u64, time_ns: u64, is_freed: bool) {
        let Some(birth) = self.live.remove(&id) else {
            return;
        };
        let weight = Weight::of(birth.size, birth.interval);
        self.grew(&birth, &weight, time_ns);
        if !birth.counts {
            return;
        }
        let lived_ns = birth.lived_ns(time_ns);
        let since = self.allocations.get(&birth.thread).copied();
        let since = since.unwrap_or_default() - birth.allocations;
        let is_temporary = is_freed && !birth.inherited && self.temporary.holds(lived_ns, since);
        let held_ns = birth.held_ns(self.since_ns, time_ns);
        let state = self.row(birth.row);
        state.in_use.remove(&weight);
        state.past.slack.remove(&weight.carrying(birth.slack));
        state.past.heaptime.add(&weight, held_ns / 1000);
        if is_temporary {
            state.past.temporary.add(&weight);
        }
        if let Some(courses) = &mut self.courses {
            courses.went(birth.stack, time_ns, &weight);
        }
        self.in_use.remove(&weight);
        if self.knows_age_of(&birth) {
            let (lifetimes, blocks) = (self.lifetimes_of(birth.stack), weight.objects_f64());
            match is_freed {
                true => lifetimes.died(lived_ns, blocks),
                false => lifetimes.lives(lived_ns, blocks),
            }
        }
    }

    /// A reading says that of the pages of the sample of that id.
    pub(crate) fn pages(&mut self, id: u64, of: impl FnOnce(u64) -> PagesOfBlock) {
        let Some(&birth) = self.live.get(&id).filter(|birth| birth.counts) else {
            return;
        };
        let weight = Weight::of(birth.size, birth.interval);
        let usable = birth.size.saturating_add(birth.slack);
        let pages = &mut self.row(birth.row).past.pages;
        pages.add(of(birth.size), birth.size, usable, &weight);
    }

    /// Returns true if its lifetime counts: of blocks from before what is known begins, only those
    /// that lived so long are known.
    fn knows_age_of(&self, birth: &Birth) -> bool {
        !birth.inherited && birth.time_ns >= self.since_ns
    }

    /// A block was there until that time.
    fn grew(&mut self, birth: &Birth, weight: &Weight, until_ns: u64) {
        let seconds = |ns: u64| ns.saturating_sub(self.from_ns) as f64 / 1e9;
        let (from_s, to_s) = (seconds(birth.time_ns), seconds(until_ns));
        // Gone before the window: its row may have nothing else, and no sample of the growth.
        if to_s > from_s {
            self.row(birth.row).growth.add(weight, from_s, to_s);
        }
    }

    /// The blocks in use of each row that were allocated after that time.
    pub(crate) fn in_use_since(&self, time_ns: u64) -> Vec<Estimate> {
        let mut rows = vec![Estimate::default(); self.rows.len()];
        let births = self.live.values();
        for birth in births.filter(|birth| birth.counts && birth.time_ns > time_ns) {
            rows[birth.row as usize].add(&Weight::of(birth.size, birth.interval));
        }
        rows
    }

    /// The past of each row, and the lifetimes of each stack, as of `time_ns`: what lives then has
    /// lived up to then.
    pub(crate) fn finish(mut self, time_ns: u64) -> (Vec<Past>, Vec<Lifetimes>) {
        let mut live: Vec<(u64, Birth)> = self.live.drain().collect();
        // Sums of floating-point numbers depend on their order; a hash map has none.
        live.sort_unstable_by_key(|(id, _)| *id);
        for (_, birth) in live {
            let weight = Weight::of(birth.size, birth.interval);
            // A block that was there all the time did not grow.
            if birth.time_ns > self.from_ns {
                self.grew(&birth, &weight, time_ns);
            }
            if !birth.counts {
                continue;
            }
            let lived_ns = birth.lived_ns(time_ns);
            let held_ns = birth.held_ns(self.since_ns, time_ns);
            self.row(birth.row)
                .past
                .heaptime
                .add(&weight, held_ns / 1000);
            if self.knows_age_of(&birth) {
                self.lifetimes_of(birth.stack)
                    .lives(lived_ns, weight.objects_f64());
            }
        }
        for row in 0..self.rows.len() {
            self.row(row as u32);
        }
        let seconds = time_ns.saturating_sub(self.from_ns) as f64 / 1e9;
        let past = |row: &Row| Past {
            growth: row.growth.over(seconds),
            ..row.past
        };
        let pasts = self.rows.iter().map(past).collect();
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

    const MS: u64 = 1_000_000;

    fn came(id: u64, row: u32, size: u64, slack: u64, time_ns: u64) -> Allocation {
        Allocation {
            id,
            row,
            stack: row,
            thread: 0,
            size,
            slack,
            interval: 1,
            time_ns,
            inherited: false,
        }
    }

    /// Row 0: 100 from 0 to 4 ms. Row 1: 50 from 1 to 2 ms, 60 from 3 ms on.
    fn story() -> (Vec<Past>, Vec<Lifetimes>) {
        let mut history = History::new(Temporary::within(MS));
        history.alloc(&came(1, 0, 100, 12, 0));
        history.alloc(&came(2, 1, 50, 14, MS));
        history.free(2, 2 * MS);
        history.alloc(&came(3, 1, 60, 4, 3 * MS));
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
        let mut history = History::new(Temporary::default());
        history.alloc(&came(1, 0, 100, 0, 0));
        history.free(1, 1);
        history.alloc(&came(2, 1, 100, 0, 2));
        let (pasts, _) = history.finish(3);
        assert_eq!((pasts[0].peak.bytes(), pasts[1].peak.bytes()), (100, 0));
    }

    #[test]
    fn temporary_counts_the_allocations_of_its_own_thread() {
        let temporary = |n| {
            let mut history = History::new(Temporary {
                within_ns: None,
                before_allocations: Some(n),
            });
            // Blocks 1, 2, 3, 4 of thread 0. Between them one of thread 1, which does not count.
            history.alloc(&came(1, 0, 1, 0, 0));
            history.alloc(&Allocation {
                thread: 1,
                ..came(9, 0, 1000, 0, 1)
            });
            history.free(1, MS); // none since
            history.alloc(&came(2, 0, 2, 0, MS));
            history.alloc(&came(3, 0, 4, 0, MS));
            history.free(2, MS); // one since
            history.alloc(&came(4, 0, 8, 0, MS));
            history.free(3, 2 * MS); // one since
            history.free(9, 2 * MS); // none, of thread 1
            history.finish(3 * MS).0[0].temporary.bytes()
        };
        assert_eq!((temporary(0), temporary(1), temporary(2)), (0, 1001, 1007));
    }

    #[test]
    fn what_was_inherited_is_held_and_not_temporary_and_has_no_lifetime() {
        let mut history = History::new(Temporary {
            within_ns: Some(MS),
            before_allocations: Some(10),
        });
        for id in 1..=2 {
            history.alloc(&Allocation {
                inherited: true,
                ..came(id, 0, 100, 0, 0)
            });
        }
        history.free(1, MS);
        let (pasts, lifetimes) = history.finish(2 * MS);
        assert_eq!(
            (pasts[0].temporary.bytes(), pasts[0].peak.bytes()),
            (0, 200)
        );
        assert_eq!(pasts[0].heaptime.object_seconds(), 0.003);
        assert!(lifetimes.is_empty());
    }

    #[test]
    fn what_went_before_what_is_known_begins_is_in_no_peak() {
        let mut history = History::new(Temporary::default());
        history.alloc(&came(1, 0, 100, 0, 0));
        history.alloc(&came(2, 1, 30, 0, 0));
        history.begin_at(5 * MS);
        history.alloc(&came(3, 2, 50, 0, 2 * MS));
        history.free(1, MS);
        history.begun();
        history.alloc(&came(4, 2, 7, 0, 6 * MS));
        history.free(2, 7 * MS);
        let (pasts, _) = history.finish(8 * MS);
        let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
        assert_eq!(peak, [0, 30, 57]);
    }

    #[test]
    fn growth_knows_what_was_there_before_the_window() {
        let mut history = History::since(2 * MS, Temporary::default());
        history.alloc_before(&came(1, 0, 100, 0, 0));
        history.alloc_before(&came(2, 1, 50, 0, MS));
        history.alloc_before(&came(3, 1, 70, 0, MS));
        history.alloc_before(&came(4, 2, 70, 0, MS));
        history.free(3, MS);
        history.free(1, 3 * MS);
        history.alloc(&came(5, 3, 100, 0, 3 * MS));
        let (pasts, _) = history.finish(4 * MS);
        // Half the window each: 6 · 100 (1 - 2) / 8 of a millisecond's reciprocal, and the same up.
        let slopes: Vec<f64> = pasts.iter().map(|p| p.growth.bytes_per_second).collect();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.abs() + 1e-9;
        assert!(
            close(slopes[0], -75_000.0) && slopes[1..3] == [0.0, 0.0] && close(slopes[3], 75_000.0),
            "{slopes:?}"
        );
        let samples: Vec<u64> = pasts.iter().map(|p| p.growth.samples).collect();
        assert_eq!(samples, [1, 0, 0, 1]);
        assert_eq!(pasts[0].heaptime.samples, 0);
    }

    /// A log that begins at 5 ms, with a block from 2 ms that goes at 7 ms; one comes at 5 ms and
    /// goes at 9 ms, one comes at 6 ms and stays.
    #[test]
    fn what_was_before_is_known_begins_is_held_since_then_and_has_no_lifetime() {
        let mut history = History::new(Temporary::within(10 * MS));
        history.begin_at(5 * MS);
        history.alloc(&came(1, 0, 100, 0, 2 * MS));
        history.begun();
        history.alloc(&came(2, 1, 100, 0, 5 * MS));
        history.alloc(&came(3, 2, 100, 0, 6 * MS));
        history.free(1, 7 * MS);
        history.free(2, 9 * MS);
        let (pasts, lifetimes) = history.finish(10 * MS);
        let held: Vec<f64> = pasts.iter().map(|p| p.heaptime.object_seconds()).collect();
        assert_eq!(held, [0.002, 0.004, 0.004]);
        let known: Vec<(u64, u64)> = lifetimes
            .iter()
            .map(|l| (l.died_samples(), l.live_samples()))
            .collect();
        assert_eq!(known, [(0, 0), (1, 0), (0, 1)]);
        assert_eq!(lifetimes[1].mean(), Some(0.004));
        // In five milliseconds, -2 · 3 there and gone, 4 · 1 at the beginning and 4 · 1 at the end:
        // 6 (d² - b² - T (d - b)) / T³.
        let slopes: Vec<f64> = pasts.iter().map(|p| p.growth.bytes_per_second).collect();
        let per_ms = |c: f64| 6.0 * c / 125.0 * 100.0 * 1000.0;
        for (is, expected) in slopes.iter().zip([per_ms(-6.0), per_ms(-4.0), per_ms(4.0)]) {
            assert!((is / expected - 1.0).abs() < 1e-9, "{slopes:?}");
        }
    }

    /// Rows whose blocks were in use before the window, and only grew or shrank in it.
    #[test]
    fn what_was_there_before_the_window_is_held_by_nobody_in_it() {
        let mut history = History::since(2 * MS, Temporary::within(10 * MS));
        history.alloc_before(&came(1, 0, 100, 5, MS));
        history.alloc_before(&came(2, 1, 100, 5, MS));
        history.free(1, 3 * MS);
        let (pasts, lifetimes) = history.finish(4 * MS);
        for past in &pasts {
            let Past {
                peak,
                temporary,
                heaptime,
                slack,
                ..
            } = past;
            assert!(peak.is_empty() && temporary.is_empty() && slack.is_empty());
            assert_eq!(*heaptime, OverTime::default());
        }
        assert_eq!((pasts.len(), lifetimes.len()), (2, 0));
    }

    #[test]
    fn the_pasts_of_two_processes_are_added() {
        let (pasts, _) = story();
        let mut sum = pasts[0];
        sum.merge(&pasts[1]);
        assert_eq!((sum.peak.bytes(), sum.temporary.bytes()), (160, 50));
        assert_eq!((sum.slack.bytes(), sum.heaptime.samples), (4, 3));
        let growth = |n: usize| pasts[n].growth.bytes_per_second;
        assert_eq!(sum.growth.bytes_per_second, growth(0) + growth(1));
    }

    /// As above, and nothing larger comes: the peak is where what is known begins.
    #[test]
    fn where_it_begins_may_be_the_peak() {
        let mut history = History::new(Temporary::default());
        history.begin_at(5 * MS);
        history.alloc(&came(1, 0, 100, 0, 0));
        history.alloc(&came(2, 1, 30, 0, 0));
        history.free(1, MS);
        history.begun();
        history.free(2, 7 * MS);
        history.alloc(&came(3, 0, 20, 0, 8 * MS));
        let (pasts, _) = history.finish(9 * MS);
        let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
        assert_eq!(peak, [0, 30]);
    }
}
