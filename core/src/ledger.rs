//! Ledger: a fold of allocations and frees into totals by stack and size class.
//!
//! Glossary: ledger.
//!
//! Model: events come in the order in which they were queued. An allocation adds its weight to the
//! row of (stack, size class) and is remembered by its id. A free subtracts the same weight from
//! what is in use.
//!
//! There is one implementation for two users. The writer inside the process runs it to make dumps,
//! and the reader of a log runs it to replay the log. Their sums are equal to the last bit.
//!
//! A free with an unknown id is not an error. Its block was allocated before the log began (a fork,
//! a rotated segment), or its allocation was lost and counted. A free never comes before its
//! allocation: a sample is sent before its pointer is returned (Law 2), and `Merge` keeps that
//! order.

use crate::sampling::estimate::Estimate;
use crate::sampling::estimates::Estimates;
use crate::sampling::fixed::Fixed;
use crate::sampling::size_class::SizeClass;
use crate::sampling::weight::Weight;
use crate::sampling::weight_cache::WeightCache;
use crate::tables::block_map::BlockMap;
use crate::tables::number_hash::NumberMap;

/// The numbers of a row: everything ever allocated, and the part in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Allocated since the start, freed or not.
    pub allocated: Estimate,
    /// Allocated and not yet freed.
    pub in_use: Estimate,
}

impl Totals {
    /// Adds another row's numbers.
    pub fn merge(&mut self, other: &Totals) {
        self.allocated.merge(&other.allocated);
        self.in_use.merge(&other.in_use);
    }
}

/// One row of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Number of the stack.
    pub stack: u32,
    /// Class of the requested sizes.
    pub class: SizeClass,
    /// The numbers.
    pub totals: Totals,
}

/// A sample in use. There may be a hundred million.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Live {
    /// Requested bytes.
    pub size: u64,
    /// Index into the rows.
    pub row: u32,
    /// Index into the known intervals, which are few.
    interval: u32,
}

const _: () = assert!(size_of::<Live>() == 16);

/// A sample as it was recorded, without its time and thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Number of the stack.
    pub stack: u32,
    /// Requested bytes.
    pub size: u64,
    /// Mean interval that the block was sampled under, in bytes.
    pub interval: u64,
}

/// The numbers of a row's sums.
const ALLOCATED: usize = 0;
/// See [`ALLOCATED`].
const FREED: usize = 1;

/// Sums of a row. An allocation and a free change one of the two each; their difference is in use.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    allocated: Estimate,
    freed: Estimate,
}

impl Sums {
    fn in_use(&self) -> Estimate {
        self.allocated.without(&self.freed)
    }

    fn totals(&self) -> Totals {
        Totals {
            allocated: self.allocated,
            in_use: self.in_use(),
        }
    }
}

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    rows: Vec<(u32, SizeClass)>,
    /// By row: the sums [`ALLOCATED`] and [`FREED`].
    sums: Estimates<2>,
    row_of: NumberMap<(u32, u8), u32>,
    live: BlockMap<Live>,
    /// Mean intervals of samples, in bytes, in order of appearance; the index of each; and the
    /// index of the last one. A budget makes thousands in an hour.
    intervals: Vec<u64>,
    place_of_interval: NumberMap<u64, u32>,
    last_interval: u32,
    total: Sums,
    weights: WeightCache,
}

impl Ledger {
    /// Returns a ledger without allocations.
    pub fn new() -> Self {
        Ledger::default()
    }

    /// Adds the allocation of a sampled block of `size` bytes under `interval`, by the stack of
    /// that number. Returns the index of its row, and its weight.
    pub fn alloc(&mut self, id: u64, stack: u32, size: u64, interval: u64) -> (u32, Weight) {
        let row = self.row(stack, SizeClass::of(size));
        (row, self.alloc_in(row, id, size, interval))
    }

    /// Adds an allocation to a known row, which is that of the block's stack and class. Returns the
    /// weight.
    pub fn alloc_in(&mut self, row: u32, id: u64, size: u64, interval: u64) -> Weight {
        let live = self.sample(row, size, interval);
        let weight = self.add_allocation(live);
        self.live.insert(id, live);
        weight
    }

    /// Subtracts the sample of that id from what is in use. Returns the sample if it is known.
    pub fn free(&mut self, id: u64) -> Option<Live> {
        let live = self.live.remove(id)?;
        self.add_free(live);
        Some(live)
    }

    /// Returns a sample of a row, for a caller that remembers samples by their ids itself. Nothing
    /// is added.
    #[inline]
    pub fn sample(&mut self, row: u32, size: u64, interval: u64) -> Live {
        Live {
            size,
            row,
            interval: self.interval(interval),
        }
    }

    /// Adds the allocation of a sample. Returns its weight.
    #[inline]
    pub fn add_allocation(&mut self, live: Live) -> Weight {
        let weight = self.weight_of(live);
        self.sums.add(live.row as usize, ALLOCATED, &weight);
        self.total.allocated.add(&weight);
        weight
    }

    /// Subtracts a sample that was [added](Self::add_allocation) from what is in use. Returns its
    /// weight.
    #[inline]
    pub fn add_free(&mut self, live: Live) -> Weight {
        let weight = self.weight_of(live);
        self.sums.add(live.row as usize, FREED, &weight);
        self.total.freed.add(&weight);
        weight
    }

    /// Adds what that stack allocated and freed in that class before this ledger began. Returns the
    /// index of its row.
    ///
    /// If each block that was then in use is added by [`alloc`](Self::alloc), the ledger equals the
    /// whole one.
    pub fn passed(&mut self, stack: u32, class: SizeClass, freed: &Estimate) -> u32 {
        let row = self.row(stack, class);
        self.sums.merge(row as usize, freed);
        self.total.allocated.merge(freed);
        self.total.freed.merge(freed);
        row
    }

    /// Returns the index of the row of that stack and class. A missing row is added, with nothing
    /// in it: it may be the row of blocks from before the account began.
    pub fn row(&mut self, stack: u32, class: SizeClass) -> u32 {
        let rows = &mut self.rows;
        *self.row_of.entry((stack, class.0)).or_insert_with(|| {
            rows.push((stack, class));
            rows.len() as u32 - 1
        })
    }

    /// Returns the stack of a row.
    #[inline]
    pub fn stack_at(&self, row: u32) -> u32 {
        self.rows[row as usize].0
    }

    /// Returns what is in use by a row.
    #[inline]
    pub fn in_use_at(&self, row: u32) -> Estimate {
        self.sums_at(row as usize).in_use()
    }

    /// Returns the number of different intervals of its samples.
    pub fn intervals(&self) -> usize {
        self.intervals.len()
    }

    /// Returns the longest mean interval of a sample, in bytes.
    pub fn longest_interval(&self) -> Option<u64> {
        self.intervals.iter().copied().max()
    }

    /// Returns [`Weight::of`], from a cache of frequent sizes.
    pub fn weight(&mut self, size: u64, interval: u64) -> Weight {
        self.weights.of(size, interval)
    }

    /// Returns a sample in use as it was recorded.
    pub fn block(&self, id: u64) -> Option<Block> {
        self.live.get(id).map(|&live| self.block_of(live))
    }

    /// Returns a sample of this ledger as it was recorded.
    #[inline]
    pub fn block_of(&self, live: Live) -> Block {
        Block {
            stack: self.stack_at(live.row),
            size: live.size,
            interval: self.intervals[live.interval as usize],
        }
    }

    /// Returns all rows, in the order of their first samples. A row may have nothing in use.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row> {
        (0..self.rows.len()).map(|index| self.row_of_index(index))
    }

    /// Returns the row at an index of [`rows`](Self::rows). Indices never change.
    pub fn row_at(&self, index: usize) -> Option<Row> {
        (index < self.rows.len()).then(|| self.row_of_index(index))
    }

    fn row_of_index(&self, index: usize) -> Row {
        let (stack, class) = self.rows[index];
        Row {
            stack,
            class,
            totals: self.sums_at(index).totals(),
        }
    }

    fn sums_at(&self, index: usize) -> Sums {
        let [allocated, freed] = self.sums.get(index);
        Sums { allocated, freed }
    }

    /// Returns the sum of all rows.
    #[inline]
    pub fn total(&self) -> Totals {
        self.total.totals()
    }

    /// Returns the bytes in use of all rows together, exact to the last bit.
    #[inline]
    pub fn bytes_in_use(&self) -> Fixed {
        self.total.allocated.bytes_fixed() - self.total.freed.bytes_fixed()
    }

    /// Returns the variance of that number.
    #[inline]
    pub fn bytes_in_use_variance(&self) -> Fixed {
        self.total.allocated.bytes_variance_fixed() - self.total.freed.bytes_variance_fixed()
    }

    /// Returns the sum of all frees.
    pub fn freed(&self) -> &Estimate {
        &self.total.freed
    }

    /// Returns the number of samples in use.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Returns the weight of a sample of this ledger.
    #[inline]
    pub fn weight_of(&mut self, live: Live) -> Weight {
        let interval = self.intervals[live.interval as usize];
        self.weights.of(live.size, interval)
    }

    /// Returns the index of an interval, which mostly is the last one.
    #[inline]
    fn interval(&mut self, interval: u64) -> u32 {
        if self.intervals.get(self.last_interval as usize) != Some(&interval) {
            self.last_interval = self.number_of_interval(interval);
        }
        self.last_interval
    }

    #[inline(never)]
    fn number_of_interval(&mut self, interval: u64) -> u32 {
        let intervals = &mut self.intervals;
        *self.place_of_interval.entry(interval).or_insert_with(|| {
            intervals.push(interval);
            intervals.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_free_takes_out_of_use_and_leaves_the_total() {
        let mut ledger = Ledger::new();
        ledger.alloc(1, 0, 100, 1);
        ledger.alloc(2, 0, 100, 1);
        ledger.alloc(3, 1, 5000, 1);
        assert_eq!(ledger.free(2).map(|live| live.size), Some(100));
        let row = ledger.rows().next().unwrap().totals;
        assert_eq!((row.allocated.objects(), row.allocated.bytes()), (2, 200));
        assert_eq!((row.in_use.objects(), row.in_use.bytes()), (1, 100));
        assert_eq!(ledger.total().in_use.bytes(), 5100);
        assert_eq!(ledger.freed().bytes(), 100);
    }

    #[test]
    fn an_unknown_free_is_ignored() {
        let mut ledger = Ledger::new();
        assert_eq!(ledger.free(9), None);
        assert_eq!(ledger.total(), Totals::default());
    }

    #[test]
    fn a_caller_may_remember_samples_itself() {
        let (mut own, mut ledger) = (Ledger::new(), Ledger::new());
        let samples = [(0, 100, 1), (1, 5000, 4096), (0, 100, 4096)];
        for (id, (stack, size, interval)) in (0..).zip(samples) {
            let (row, weight) = ledger.alloc(id, stack, size, interval);
            let own_row = own.row(stack, SizeClass::of(size));
            let live = own.sample(own_row, size, interval);
            assert_eq!((live.row, own.weight_of(live)), (row, weight));
            let block = Block {
                stack,
                size,
                interval,
            };
            assert_eq!(own.block_of(live), block);
            assert_eq!(own.add_allocation(live), weight);
            if id == 1 {
                ledger.free(id);
                assert_eq!(own.add_free(live), weight);
            }
        }
        assert!(own.rows().eq(ledger.rows()));
        assert_eq!((own.total(), own.live()), (ledger.total(), 0));
    }

    proptest! {
        /// A ledger that resumes from another's state is equal to it, to the last bit.
        #[test]
        fn it_goes_on_from_a_checkpoint(
            steps in prop::collection::vec((0u32..4, 0u64..3000, 1u64..4096, any::<prop::sample::Index>(), any::<bool>()), 1..if cfg!(miri) { 40 } else { 200 }),
            at in any::<prop::sample::Index>(),
        ) {
            let mut whole = Ledger::new();
            let mut resumed = Ledger::new();
            let mut live: Vec<u64> = Vec::new();
            let at = at.index(steps.len());
            for (id, (stack, size, interval, which, free)) in steps.into_iter().enumerate() {
                let is_resumed = id > at;
                if id == at {
                    for row in whole.rows() {
                        let freed = row.totals.allocated.without(&row.totals.in_use);
                        let freed = Estimate::from_bits(freed.samples, freed.to_bits());
                        resumed.passed(row.stack, row.class, &freed);
                    }
                    for &id in &live {
                        let block = whole.block(id).unwrap();
                        resumed.alloc(id, block.stack, block.size, block.interval);
                    }
                }
                let id = id as u64;
                if free && !live.is_empty() {
                    let gone = live.swap_remove(which.index(live.len()));
                    whole.free(gone);
                    if is_resumed || id == at as u64 { resumed.free(gone); }
                } else {
                    live.push(id);
                    whole.alloc(id, stack, size, interval);
                    if is_resumed || id == at as u64 { resumed.alloc(id, stack, size, interval); }
                }
            }
            prop_assert!(whole.rows().eq(resumed.rows()));
            prop_assert_eq!(whole.total(), resumed.total());
            prop_assert_eq!(whole.freed(), resumed.freed());
        }

        /// Against a model that keeps every block, at interval 1, where everything is exact.
        #[test]
        fn it_agrees_with_a_list_of_blocks(
            steps in prop::collection::vec((0u32..4, 0u64..3000, any::<prop::sample::Index>(), any::<bool>()), 0..if cfg!(miri) { 60 } else { 300 })
        ) {
            let mut ledger = Ledger::new();
            let mut live: Vec<(u64, u32, u64)> = Vec::new();
            let mut allocated: BTreeMap<(u32, u8), (u64, u64)> = BTreeMap::new();
            for (id, (stack, size, which, free)) in steps.into_iter().enumerate() {
                let id = id as u64;
                if free && !live.is_empty() {
                    let (gone, ..) = live.swap_remove(which.index(live.len()));
                    prop_assert!(ledger.free(gone).is_some());
                } else {
                    live.push((id, stack, size));
                    let entry = allocated.entry((stack, SizeClass::of(size).0)).or_default();
                    entry.0 += 1;
                    entry.1 += size;
                    ledger.alloc(id, stack, size, 1);
                }
            }
            prop_assert_eq!(ledger.live(), live.len());
            prop_assert_eq!(ledger.rows().len(), allocated.len());
            for row in ledger.rows() {
                let &(objects, bytes) = &allocated[&(row.stack, row.class.0)];
                prop_assert_eq!(row.totals.allocated.objects(), objects);
                prop_assert_eq!(row.totals.allocated.bytes(), bytes);
                let mine = || live.iter().filter(|(_, stack, size)| {
                    *stack == row.stack && SizeClass::of(*size) == row.class
                });
                prop_assert_eq!(row.totals.in_use.objects(), mine().count() as u64);
                prop_assert_eq!(row.totals.in_use.bytes(), mine().map(|b| b.2).sum::<u64>());
            }
        }
    }

    #[test]
    fn a_row_is_found_by_its_index_and_the_longest_interval_is_known() {
        let mut ledger = Ledger::new();
        assert_eq!((ledger.longest_interval(), ledger.row_at(0)), (None, None));
        for (id, interval) in [(1, 4096), (2, 1), (3, 65_536), (4, 512)] {
            ledger.alloc(id, id as u32, 100, interval);
        }
        assert_eq!(ledger.longest_interval(), Some(65_536));
        assert_eq!(ledger.row_at(2), ledger.rows().nth(2));
        assert_eq!(ledger.row_at(2).map(|row| row.stack), Some(3));
        assert_eq!(ledger.row_at(4), None);
    }

    #[test]
    fn rows_of_two_processes_are_added() {
        let mut one = Ledger::new();
        one.alloc(1, 0, 100, 1);
        let mut other = Ledger::new();
        other.alloc(1, 0, 7, 1);
        other.alloc(2, 0, 8, 1);
        other.free(2);
        let mut sum = one.total();
        sum.merge(&other.total());
        assert_eq!((sum.allocated.objects(), sum.allocated.bytes()), (3, 115));
        assert_eq!((sum.in_use.objects(), sum.in_use.bytes()), (2, 107));
    }
}
