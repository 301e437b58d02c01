//! History: a fold of the allocations and frees of a log, with their times, into what totals cannot
//! say.
//!
//! It knows the peak, temporary blocks, lifetimes, memory held over time, growth and slack. Its
//! rows are those of a [`Ledger`](heapprof_core::Ledger) that takes the same events. It remembers
//! the blocks in use for that ledger as well. Most of the time of a long log goes into looking up
//! blocks, so there is one map. Memory is needed for live blocks, rows and stacks, not for events.
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
use heapprof_core::{Estimate, Fixed, Ledger, Live, NumberMap, Weight};

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

/// The sums of a row so far. There may be tens of thousands of rows, and each event changes one:
/// what is the same in two sums stands here once, and what few logs have is not here.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    in_use: Estimate,
    /// Usable bytes beyond those requested of the samples in use, and their variance.
    slack: [Fixed; 2],
    heaptime: OverTime,
    growth: Sums,
    temporary: Estimate,
    peak: Estimate,
    /// The maximum up to which `peak` is right.
    maximum: u64,
}

impl Row {
    fn past(&self, pages: Pages, seconds: f64) -> Past {
        let [objects, _, objects_variance, _] = self.in_use.to_bits();
        let [slack, slack_variance] = self.slack.map(Fixed::to_bits);
        Past {
            peak: self.peak,
            temporary: self.temporary,
            heaptime: self.heaptime,
            slack: Estimate::from_bits(
                self.in_use.samples,
                [objects, slack, objects_variance, slack_variance],
            ),
            growth: self.growth.over(seconds),
            pages,
            ..Past::default()
        }
    }
}

/// A block in use: the ledger's sample, and what a past needs beside it. There may be a hundred
/// million.
#[derive(Debug, Clone, Copy)]
struct Birth {
    live: Live,
    time_ns: u64,
    /// The slack, with [`COUNTS`] and [`INHERITED`]. No slack comes near them.
    slack: u64,
}

const _: () = assert!(size_of::<Birth>() == 32);

/// The block came in the window, and not before.
const COUNTS: u64 = 1 << 63;
/// The block was inherited.
const INHERITED: u64 = 1 << 62;

/// A sampled block that was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// The sample.
    pub id: u64,
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
    fn counts(&self) -> bool {
        self.slack & COUNTS != 0
    }

    fn is_inherited(&self) -> bool {
        self.slack & INHERITED != 0
    }

    /// Usable bytes beyond those requested.
    fn slack(&self) -> u64 {
        self.slack & !(COUNTS | INHERITED)
    }

    fn lived_ns(&self, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.time_ns)
    }

    /// How long it lived since then.
    fn held_ns(&self, since_ns: u64, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.time_ns.max(since_ns))
    }
}

/// The thread of a block, and that thread's allocations up to it, itself included.
type Place = (u32, f64);

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It was freed.
    Freed,
    /// It went with its process: nobody freed it, and how long it would have lived is not known.
    Left,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct History {
    temporary: Temporary,
    /// Growth is that since then.
    from_ns: u64,
    /// Allocations of each thread, estimated, and how many there were at each block in use: kept
    /// when asked for.
    allocations: NumberMap<u32, f64>,
    places: NumberMap<u64, Place>,
    /// Nothing earlier is known, except the blocks that were in use then.
    since_ns: u64,
    rows: Vec<Row>,
    /// By row; may be shorter than the rows.
    pages: Vec<Pages>,
    live: NumberMap<u64, Birth>,
    lifetimes: Vec<Lifetimes>,
    in_use: Estimate,
    largest: Fixed,
    maximum: u64,
    /// The courses of all stacks: kept when asked for.
    courses: Option<CoursesSoFar>,
}

impl History {
    /// Nothing happened yet in a window that begins at `from_ns`.
    pub(crate) fn since(from_ns: u64, temporary: Temporary) -> History {
        History {
            temporary,
            from_ns,
            allocations: NumberMap::default(),
            places: NumberMap::default(),
            since_ns: 0,
            rows: Vec::new(),
            pages: Vec::new(),
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
    pub(crate) fn take_courses(&mut self, ledger: &Ledger, time_ns: u64) -> Option<Courses> {
        let mut courses = self.courses.take()?;
        for birth in self.in_order() {
            if birth.counts() {
                let block = ledger.block_of(birth.live);
                let weight = Weight::of(block.size, block.interval);
                courses.stays(block.stack, birth.time_ns.max(self.since_ns), &weight);
            }
        }
        Some(courses.finish(self.since_ns, time_ns))
    }

    /// The blocks in use by their ids. Sums of floating-point numbers depend on their order, and a
    /// hash map has none.
    fn in_order(&self) -> impl Iterator<Item = Birth> + use<> {
        let mut live: Vec<(u64, Birth)> = self.live.iter().map(|(&id, &it)| (id, it)).collect();
        live.sort_unstable_by_key(|(id, _)| *id);
        live.into_iter().map(|(_, birth)| birth)
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

    /// A sampled block was allocated. `live` and `weight` are those that the ledger has of it.
    pub(crate) fn alloc(&mut self, came: &Allocation, live: Live, weight: &Weight) {
        let state = self.row(live.row);
        state.in_use.add(weight);
        let [slack, slack_variance] = slack_of(came.slack, weight);
        state.slack[0] += slack;
        state.slack[1] += slack_variance;
        if let Some(courses) = &mut self.courses {
            courses.came(came.stack, came.time_ns.max(self.since_ns), weight);
        }
        self.in_use.add(weight);
        if self.in_use.bytes_fixed() > self.largest {
            self.largest = self.in_use.bytes_fixed();
            self.maximum += 1;
        }
        if self.temporary.before_allocations.is_some() {
            let sum = self.allocations.entry(came.thread).or_default();
            *sum += weight.objects_f64();
            self.places.insert(came.id, (came.thread, *sum));
        }
        self.born(came, live, COUNTS);
    }

    /// A sampled block was allocated before the window. Only the growth of its row will know of it.
    pub(crate) fn alloc_before(&mut self, came: &Allocation, live: Live) {
        self.row(live.row);
        self.born(came, live, 0);
    }

    fn born(&mut self, came: &Allocation, live: Live, counts: u64) {
        let inherited = if came.inherited { INHERITED } else { 0 };
        let birth = Birth {
            live,
            time_ns: came.time_ns,
            slack: came.slack & !(COUNTS | INHERITED) | counts | inherited,
        };
        self.live.insert(came.id, birth);
    }

    /// Returns the ledger's sample of a block in use that counts.
    pub(crate) fn sample(&self, id: u64) -> Option<Live> {
        let birth = self.live.get(&id)?;
        birth.counts().then_some(birth.live)
    }

    /// The block of that id went, and goes out of the ledger. Returns the ledger's sample, if the
    /// block is known and counts.
    pub(crate) fn went(
        &mut self,
        ledger: &mut Ledger,
        id: u64,
        time_ns: u64,
        end: End,
    ) -> Option<Live> {
        let birth = self.live.remove(&id)?;
        let place = match self.temporary.before_allocations {
            Some(_) => self.places.remove(&id),
            None => None,
        };
        if !birth.counts() {
            let weight = ledger.weight_of(birth.live);
            self.grew(&birth, &weight, time_ns);
            return None;
        }
        let weight = ledger.went(birth.live);
        self.grew(&birth, &weight, time_ns);
        let lived_ns = birth.lived_ns(time_ns);
        let since = place.map_or(0.0, |(thread, before)| {
            self.allocations.get(&thread).copied().unwrap_or_default() - before
        });
        let is_freed = end == End::Freed;
        let is_temporary =
            is_freed && !birth.is_inherited() && self.temporary.holds(lived_ns, since);
        let held_ns = birth.held_ns(self.since_ns, time_ns);
        let state = self.row(birth.live.row);
        state.in_use.remove(&weight);
        let [slack, slack_variance] = slack_of(birth.slack(), &weight);
        state.slack[0] -= slack;
        state.slack[1] -= slack_variance;
        state.heaptime.add(&weight, held_ns / 1000);
        if is_temporary {
            state.temporary.add(&weight);
        }
        self.in_use.remove(&weight);
        let knows_age = self.knows_age_of(&birth);
        if knows_age || self.courses.is_some() {
            let stack = ledger.block_of(birth.live).stack;
            if let Some(courses) = &mut self.courses {
                courses.went(stack, time_ns, &weight);
            }
            let blocks = weight.objects_f64();
            match end {
                _ if !knows_age => {}
                End::Freed => self.lifetimes_of(stack).died(lived_ns, blocks),
                End::Left => self.lifetimes_of(stack).lives(lived_ns, blocks),
            }
        }
        Some(birth.live)
    }

    /// A reading says that of the pages of the sample of that id.
    pub(crate) fn pages(
        &mut self,
        ledger: &mut Ledger,
        id: u64,
        of: impl FnOnce(u64) -> PagesOfBlock,
    ) {
        let Some(&birth) = self.live.get(&id).filter(|birth| birth.counts()) else {
            return;
        };
        let weight = ledger.weight_of(birth.live);
        let size = birth.live.size;
        let usable = size.saturating_add(birth.slack());
        let row = birth.live.row as usize;
        if row >= self.pages.len() {
            self.pages.resize_with(row + 1, Pages::default);
        }
        self.pages[row].add(of(size), size, usable, &weight);
    }

    /// Returns true if its lifetime counts: of blocks from before what is known begins, only those
    /// that lived so long are known.
    fn knows_age_of(&self, birth: &Birth) -> bool {
        !birth.is_inherited() && birth.time_ns >= self.since_ns
    }

    /// A block was there until that time.
    fn grew(&mut self, birth: &Birth, weight: &Weight, until_ns: u64) {
        let seconds = |ns: u64| ns.saturating_sub(self.from_ns) as f64 / 1e9;
        let (from_s, to_s) = (seconds(birth.time_ns), seconds(until_ns));
        // Gone before the window: its row may have nothing else, and no sample of the growth.
        if to_s > from_s {
            self.row(birth.live.row).growth.add(weight, from_s, to_s);
        }
    }

    /// The blocks in use of each row that were allocated after that time.
    pub(crate) fn in_use_since(&self, ledger: &Ledger, time_ns: u64) -> Vec<Estimate> {
        let mut rows = vec![Estimate::default(); self.rows.len()];
        let births = self.live.values();
        for birth in births.filter(|birth| birth.counts() && birth.time_ns > time_ns) {
            let block = ledger.block_of(birth.live);
            rows[birth.live.row as usize].add(&Weight::of(block.size, block.interval));
        }
        rows
    }

    /// The past of each row, and the lifetimes of each stack, as of `time_ns`: what lives then has
    /// lived up to then.
    pub(crate) fn finish(mut self, ledger: &Ledger, time_ns: u64) -> (Vec<Past>, Vec<Lifetimes>) {
        let live = self.in_order();
        self.live = NumberMap::default();
        for birth in live {
            let block = ledger.block_of(birth.live);
            let weight = Weight::of(block.size, block.interval);
            // A block that was there all the time did not grow.
            if birth.time_ns > self.from_ns {
                self.grew(&birth, &weight, time_ns);
            }
            if !birth.counts() {
                continue;
            }
            let lived_ns = birth.lived_ns(time_ns);
            let held_ns = birth.held_ns(self.since_ns, time_ns);
            self.row(birth.live.row)
                .heaptime
                .add(&weight, held_ns / 1000);
            if self.knows_age_of(&birth) {
                self.lifetimes_of(block.stack)
                    .lives(lived_ns, weight.objects_f64());
            }
        }
        for row in 0..self.rows.len() {
            self.row(row as u32);
        }
        let seconds = time_ns.saturating_sub(self.from_ns) as f64 / 1e9;
        let pages = self
            .pages
            .into_iter()
            .chain(std::iter::repeat(Pages::default()));
        let rows = self.rows.iter().zip(pages);
        let pasts = rows.map(|(row, pages)| row.past(pages, seconds));
        (pasts.collect(), self.lifetimes)
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
            row.peak = row.in_use;
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

/// The bytes and the variance that the slack of a block with that weight stands for.
fn slack_of(slack: u64, weight: &Weight) -> [Fixed; 2] {
    let carried = weight.carrying(slack);
    [carried.bytes_fixed(), carried.bytes_variance_fixed()]
}

#[cfg(test)]
mod tests {
    use heapprof_core::SizeClass;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A block of the stack, and of the row, of that number.
    fn came(id: u64, stack: u32, size: u64, slack: u64, time_ns: u64) -> Allocation {
        Allocation {
            id,
            stack,
            thread: 0,
            size,
            slack,
            interval: 1,
            time_ns,
            inherited: false,
        }
    }

    /// A history with its ledger, whose rows are the stacks.
    struct Told {
        history: History,
        ledger: Ledger,
    }

    impl Told {
        fn new(temporary: Temporary) -> Told {
            Told::since(0, temporary)
        }

        fn since(from_ns: u64, temporary: Temporary) -> Told {
            let mut ledger = Ledger::new();
            for stack in 0..4 {
                ledger.row(stack, SizeClass(0));
            }
            Told {
                history: History::since(from_ns, temporary),
                ledger,
            }
        }

        fn alloc(&mut self, came: &Allocation) {
            let live = self.ledger.sample(came.stack, came.size, came.interval);
            let weight = self.ledger.came(live);
            self.history.alloc(came, live, &weight);
        }

        fn alloc_before(&mut self, came: &Allocation) {
            let live = self.ledger.sample(came.stack, came.size, came.interval);
            self.history.alloc_before(came, live);
        }

        fn free(&mut self, id: u64, time_ns: u64) {
            self.history.went(&mut self.ledger, id, time_ns, End::Freed);
        }

        fn finish(self, time_ns: u64) -> (Vec<Past>, Vec<Lifetimes>) {
            self.history.finish(&self.ledger, time_ns)
        }
    }

    /// Row 0: 100 from 0 to 4 ms. Row 1: 50 from 1 to 2 ms, 60 from 3 ms on.
    fn story() -> (Vec<Past>, Vec<Lifetimes>) {
        let mut history = Told::new(Temporary::within(MS));
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
        let mut history = Told::new(Temporary::default());
        history.alloc(&came(1, 0, 100, 0, 0));
        history.free(1, 1);
        history.alloc(&came(2, 1, 100, 0, 2));
        let (pasts, _) = history.finish(3);
        assert_eq!((pasts[0].peak.bytes(), pasts[1].peak.bytes()), (100, 0));
    }

    #[test]
    fn temporary_counts_the_allocations_of_its_own_thread() {
        let temporary = |n| {
            let mut history = Told::new(Temporary {
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
        let mut history = Told::new(Temporary {
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
        let mut history = Told::new(Temporary::default());
        history.alloc(&came(1, 0, 100, 0, 0));
        history.alloc(&came(2, 1, 30, 0, 0));
        history.history.begin_at(5 * MS);
        history.alloc(&came(3, 2, 50, 0, 2 * MS));
        history.free(1, MS);
        history.history.begun();
        history.alloc(&came(4, 2, 7, 0, 6 * MS));
        history.free(2, 7 * MS);
        let (pasts, _) = history.finish(8 * MS);
        let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
        assert_eq!(peak, [0, 30, 57]);
    }

    #[test]
    fn growth_knows_what_was_there_before_the_window() {
        let mut history = Told::since(2 * MS, Temporary::default());
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
        let mut history = Told::new(Temporary::within(10 * MS));
        history.history.begin_at(5 * MS);
        history.alloc(&came(1, 0, 100, 0, 2 * MS));
        history.history.begun();
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
        let mut history = Told::since(2 * MS, Temporary::within(10 * MS));
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
        let mut history = Told::new(Temporary::default());
        history.history.begin_at(5 * MS);
        history.alloc(&came(1, 0, 100, 0, 0));
        history.alloc(&came(2, 1, 30, 0, 0));
        history.free(1, MS);
        history.history.begun();
        history.free(2, 7 * MS);
        history.alloc(&came(3, 0, 20, 0, 8 * MS));
        let (pasts, _) = history.finish(9 * MS);
        let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
        assert_eq!(peak, [0, 30]);
    }
}
