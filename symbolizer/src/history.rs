//! History: a fold of the allocations and frees of a log, with their times, into what totals cannot
//! say.
//!
//! It knows the peak, temporary blocks, lifetimes, memory held over time, growth and slack. Its
//! rows are those of a [`Ledger`](heapprof_core::Ledger) that takes the same events. It remembers
//! the blocks in use for that ledger as well. Most of the time of a long log goes into looking up
//! blocks, so there is one map. Memory is needed for live blocks, rows and stacks, not for events.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `birth` | a block in use |
//! | `rows` | the sums of each row so far, and its state at the peak |
//! | `past` | what comes of a row at the end |
//! | `past_numbers` | the numbers of a past that are asked for |
//!
//! Imports: `heapprof_core` alone.
//!
//! Not here: which events of a log count (`read::fold`).

mod birth;
pub(crate) mod courses;
pub(crate) mod curve;
pub(crate) mod lifetimes;
pub(crate) mod over_time;
pub(crate) mod pages;
pub(crate) mod past;
pub(crate) mod past_numbers;
mod rows;
pub(crate) mod slope;
pub(crate) mod spikes;
pub(crate) mod steps;
pub(crate) mod temporary;

use crate::history::birth::{Birth, COUNTS, INHERITED};
use crate::history::courses::{Courses, CoursesSoFar};
use crate::history::lifetimes::Lifetimes;
use crate::history::pages::{Pages, PagesOfBlock};
use crate::history::past_numbers::PastNumbers;
use crate::history::rows::{Rows, slack_of};
use crate::history::temporary::Temporary;
use heapprof_core::{BlockMap, Estimate, Fixed, Ledger, Live, NumberMap, Weight};

pub(crate) use birth::Allocation;
pub use past::Past;

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
    numbers: PastNumbers,
    /// Growth is that since then.
    from_ns: u64,
    /// Allocations of each thread, estimated, and how many there were at each block in use: kept
    /// when asked for.
    allocations: NumberMap<u32, f64>,
    places: NumberMap<u64, Place>,
    /// Nothing earlier is known, except the blocks that were in use then.
    since_ns: u64,
    rows: Rows,
    /// By row; may be shorter than the rows.
    pages: Vec<Pages>,
    live: BlockMap<Birth>,
    lifetimes: Vec<Lifetimes>,
    /// The most bytes in use.
    largest: Fixed,
    /// The courses of all stacks: kept when asked for.
    courses: Option<CoursesSoFar>,
}

impl History {
    /// Nothing happened yet in a window that begins at `from_ns`.
    pub(crate) fn since(from_ns: u64, temporary: Temporary) -> History {
        History {
            temporary,
            numbers: PastNumbers::default(),
            from_ns,
            allocations: NumberMap::default(),
            places: NumberMap::default(),
            since_ns: 0,
            rows: Rows::default(),
            pages: Vec::new(),
            live: BlockMap::default(),
            lifetimes: Vec::new(),
            largest: Fixed::default(),
            courses: None,
        }
    }

    /// Keeps these numbers alone.
    pub(crate) fn keep(&mut self, numbers: PastNumbers) {
        self.numbers = numbers;
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
                courses.stays(block.stack, birth.time_ns, &weight);
            }
        }
        Some(courses.finish(time_ns))
    }

    /// The blocks in use by their ids. Sums of floating-point numbers depend on their order, and a
    /// hash map has none.
    fn in_order(&self) -> impl Iterator<Item = Birth> + use<> {
        let mut live: Vec<(u64, Birth)> = self.live.iter().map(|(id, &it)| (id, it)).collect();
        live.sort_unstable_by_key(|(id, _)| *id);
        live.into_iter().map(|(_, birth)| birth)
    }

    /// Says that knowledge begins at that time. Blocks in use then are reported with their own
    /// allocation times. The time before does not count for memory over time. Such blocks do not
    /// count for lifetimes: of blocks as old as these, only those that lived so long are known.
    pub(crate) fn begin_at(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
        self.from_ns = self.from_ns.max(since_ns);
        if let Some(courses) = &mut self.courses {
            courses.begin_at(since_ns);
        }
    }

    /// To be called when all blocks that were in use at that time have been told, and with them the
    /// frees of inherited blocks that were gone by then. While they were told, more may have seemed
    /// to be in use than ever was at once: so the peak is looked for from here on.
    pub(crate) fn begun(&mut self, ledger: &Ledger) {
        self.largest = ledger.bytes_in_use();
        self.rows.reach_maximum();
    }

    /// A sampled block was allocated, and comes into the ledger. `live` is the ledger's sample of
    /// it. Returns its weight.
    pub(crate) fn alloc(
        &mut self,
        ledger: &mut Ledger,
        allocation: &Allocation,
        live: Live,
    ) -> Weight {
        self.rows.add(live.row);
        if self.numbers.peak {
            self.rows.keep_state_at_maximum(live.row, ledger);
        }
        let weight = ledger.add_allocation(live);
        if self.numbers.slack {
            let sum = self.rows.slack(live.row);
            let [slack, variance] = slack_of(allocation.slack, &weight);
            sum[0] += slack;
            sum[1] += variance;
        }
        if let Some(courses) = &mut self.courses {
            courses.alloc(allocation.stack, allocation.time_ns, &weight);
        }
        if self.numbers.peak && ledger.bytes_in_use() > self.largest {
            self.largest = ledger.bytes_in_use();
            self.rows.reach_maximum();
        }
        if self.temporary.before_allocations.is_some() {
            let sum = self.allocations.entry(allocation.thread).or_default();
            *sum += weight.objects_f64();
            self.places.insert(allocation.id, (allocation.thread, *sum));
        }
        self.born(allocation, live, COUNTS);
        weight
    }

    /// A sampled block was allocated before the window. Only the growth of its row will know of it.
    pub(crate) fn alloc_before(&mut self, allocation: &Allocation, live: Live) {
        self.rows.add(live.row);
        self.born(allocation, live, 0);
    }

    fn born(&mut self, allocation: &Allocation, live: Live, counts: u64) {
        let inherited = if allocation.inherited { INHERITED } else { 0 };
        let birth = Birth {
            live,
            time_ns: allocation.time_ns,
            slack: allocation.slack & !(COUNTS | INHERITED) | counts | inherited,
        };
        self.live.insert(allocation.id, birth);
    }

    /// Returns the ledger's sample of a block in use that counts.
    pub(crate) fn sample(&self, id: u64) -> Option<Live> {
        let birth = self.live.get(id)?;
        birth.counts().then_some(birth.live)
    }

    /// The block of that id went, and goes out of the ledger. Returns the ledger's sample, if the
    /// block is known and counts.
    pub(crate) fn block_ended(
        &mut self,
        ledger: &mut Ledger,
        id: u64,
        time_ns: u64,
        end: End,
    ) -> Option<Live> {
        let birth = self.live.remove(id)?;
        let place = match self.temporary.before_allocations {
            Some(_) => self.places.remove(&id),
            None => None,
        };
        let row = birth.live.row;
        if !birth.counts() {
            let weight = ledger.weight_of(birth.live);
            self.grew(&birth, &weight, time_ns);
            return None;
        }
        if self.numbers.peak {
            self.rows.keep_state_at_maximum(row, ledger);
        }
        let weight = ledger.add_free(birth.live);
        self.grew(&birth, &weight, time_ns);
        if self.numbers.slack {
            let sum = self.rows.slack(row);
            let [slack, variance] = slack_of(birth.slack(), &weight);
            sum[0] -= slack;
            sum[1] -= variance;
        }
        if self.numbers.heaptime {
            let held_ns = birth.held_ns(self.since_ns, time_ns);
            self.rows.heaptime(row).add(&weight, held_ns / 1000);
        }
        let lived_ns = birth.lived_ns(time_ns);
        if self.numbers.temporary && end == End::Freed && !birth.is_inherited() {
            let since = place.map_or(0.0, |(thread, before)| {
                self.allocations.get(&thread).copied().unwrap_or_default() - before
            });
            if self.temporary.holds(lived_ns, since) {
                self.rows.temporary().add(row as usize, 0, &weight);
            }
        }
        if let Some(courses) = &mut self.courses {
            courses.free(ledger.stack_at(row), time_ns, &weight);
        }
        if self.knows_age_of(&birth) {
            let lifetimes = self.lifetimes_of(ledger.stack_at(row));
            match end {
                End::Freed => lifetimes.died(lived_ns, weight.objects_f64()),
                End::Left => lifetimes.lives(lived_ns, weight.objects_f64()),
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
        let Some(&birth) = self.live.get(id).filter(|birth| birth.counts()) else {
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

    /// Returns true if its lifetime is asked for, and counts: of blocks from before what is known
    /// begins, only those that lived so long are known.
    fn knows_age_of(&self, birth: &Birth) -> bool {
        self.numbers.lifetimes && !birth.is_inherited() && birth.time_ns >= self.since_ns
    }

    /// A block was there until that time.
    fn grew(&mut self, birth: &Birth, weight: &Weight, until_ns: u64) {
        if !self.numbers.growth {
            return;
        }
        let seconds = |ns: u64| ns.saturating_sub(self.from_ns) as f64 / 1e9;
        let (from_s, to_s) = (seconds(birth.time_ns), seconds(until_ns));
        // Gone before the window: its row may have nothing else, and no sample of the growth.
        if to_s > from_s {
            self.rows.growth(birth.live.row).add(weight, from_s, to_s);
        }
    }

    /// The blocks in use of each row that were allocated after that time.
    pub(crate) fn in_use_since(&self, ledger: &Ledger, time_ns: u64) -> Vec<Estimate> {
        let mut rows = vec![Estimate::default(); self.rows.len()];
        let births = self.live.iter().map(|(_, birth)| birth);
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
        self.live = BlockMap::default();
        let seconds = time_ns.saturating_sub(self.from_ns) as f64 / 1e9;
        for birth in live {
            let block = ledger.block_of(birth.live);
            let weight = Weight::of(block.size, block.interval);
            // A block that was there all the time did not grow.
            if birth.time_ns > self.from_ns {
                self.grew(&birth, &weight, time_ns);
            } else if self.numbers.growth && birth.counts() {
                let growth = self.rows.growth(birth.live.row);
                growth.stayed(&weight, seconds);
            }
            if !birth.counts() {
                continue;
            }
            if self.numbers.heaptime {
                let held_ns = birth.held_ns(self.since_ns, time_ns);
                self.rows
                    .heaptime(birth.live.row)
                    .add(&weight, held_ns / 1000);
            }
            if self.knows_age_of(&birth) {
                self.lifetimes_of(block.stack)
                    .lives(birth.lived_ns(time_ns), weight.objects_f64());
            }
        }
        let pasts = self.rows.pasts(ledger, self.pages, self.numbers, seconds);
        (pasts, self.lifetimes)
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
mod tests;
