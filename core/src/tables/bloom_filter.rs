//! Bloom filter: a counting one with one hash function, over the addresses of live samples.
//!
//! Glossary: Bloom filter.
//!
//! Model: an array of one-byte counters; a counter is about the live samples whose addresses map to
//! it. Every `free` of the program loads one counter. Nearly all are 0, and the free is done. The
//! values are:
//!
//! | value | live samples |
//! | --- | --- |
//! | 0 | none |
//! | 1 to 127 | one, whose address has this [tag] |
//! | 128 | one of unknown tag: there were more |
//! | 129 to 254 | two to 127 |
//! | 255 | stuck after that many: the answer stays "maybe", which only costs time |
//!
//! So the free of a sample's neighbour is nearly always answered here, and hardly ever in the table
//! behind. A lookup there loads memory that is in no cache, at several places after much churn.
//!
//! Neighbours share a counter, and a cache line of counters. The filter's unit is the number of
//! bytes that share a counter: a power of two, at least [`Unit::SMALLEST`]. With a small unit few
//! frees of other blocks find a nonzero counter. With a large unit the counters take little of the
//! program's cache if its frees go all over a large heap. The best unit depends on the distance
//! between samples: [`BloomFilter::unit_for`].
//!
//! Addresses a million units apart would share a counter. Instead each such step adds 37 counters.
//! Otherwise blocks that begin at pages, which use one in 64 counters, would fall on each other.
//!
//! Rejected: a property of the address in place of a table (docs/rejected.md). A reserved range
//! needs its own arenas, and page alignment wastes a page per live sample.

use crate::primitive::atomic::{AtomicU8, AtomicU64, Ordering};

/// Number of counters. Only counters of the program's heap are touched, a cache line for 64 units.
/// (Models and miri, which follow each counter, have two.)
const COUNTERS: usize = 1 << BloomFilter::BITS;

/// A counter of one sample whose tag is unknown.
const ONE: u8 = 128;
/// A counter that never changes again.
const STUCK: u8 = u8::MAX;

/// Returns a counter's note of its only sample: 1 to 127.
#[inline(always)]
fn tag(address: u64) -> u8 {
    ((address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as u8).max(1)
}

/// See the module's text.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct BloomFilter {
    /// The counter of an address has the number `address * multiplier mod 2^64 >> SHIFT`. Until a
    /// unit is set the multiplier is 0, and every address has the first counter.
    ///
    /// It has a cache line of its own: all threads read it, and no thread writes beside it. It
    /// comes first because assembly reaches it with a shorter instruction there.
    multiplier: CacheLine<AtomicU64>,
    /// The thread that inserts or takes a sample changes its counter. Relaxed suffices: a block
    /// reaches another thread only through synchronisation of the program's own, which orders the
    /// count before the free.
    counters: [AtomicU8; COUNTERS],
}

/// A value on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct CacheLine<T>(T);

impl Default for BloomFilter {
    fn default() -> Self {
        BloomFilter::new()
    }
}

/// Bytes of address space that share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit(u32);

impl Unit {
    /// The smallest unit, in bits.
    pub const SMALLEST: Unit = Unit(7);
    /// A page. With a larger unit, blocks that begin at neighbouring pages would share a counter.
    const LARGEST: Unit = Unit(12);
    /// The unit if every block is a sample: the largest with which no counter of the smallest
    /// blocks reaches 255.
    const OF_ALL: Unit = Unit(10);

    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        1 << self.0
    }

    /// Returns the multiplier for the counter number `address / unit + 37 * address / (1048576 *
    /// unit)`.
    fn multiplier(self) -> u64 {
        let one = 1u64 << BloomFilter::SHIFT; // bytes, if the unit were one
        let further = (one >> BloomFilter::BITS).wrapping_mul(37);
        one.wrapping_add(further) >> self.0
    }
}

impl BloomFilter {
    /// Bits of a counter's number.
    const BITS: u32 = if cfg!(any(loom, miri)) { 1 } else { 20 };
    /// See [`MULTIPLIER_AT`](Self::MULTIPLIER_AT).
    pub const SHIFT: u32 = u64::BITS - Self::BITS;
    /// Offset of the multiplier, for assembly. An address times that word, shifted right by
    /// [`SHIFT`](Self::SHIFT), is the number of its counter. The counters are bytes, from
    /// [`COUNTERS_AT`](Self::COUNTERS_AT) on.
    pub const MULTIPLIER_AT: usize = std::mem::offset_of!(BloomFilter, multiplier);
    /// Offset of the first counter.
    pub const COUNTERS_AT: usize = std::mem::offset_of!(BloomFilter, counters);

    /// Returns the unit for samples that are `interval` bytes apart on average: a 128th of the
    /// interval.
    ///
    /// In a heap of up to a million units, one free in a hundred of other blocks then finds a
    /// nonzero counter. With units below [`Unit::SMALLEST`] the counters would take more of the
    /// cache than they save lookups. If every block is a sample there are no other blocks, and only
    /// the use of the cache counts.
    pub fn unit_for(interval: u64) -> Unit {
        if interval <= 1 {
            return Unit::OF_ALL;
        }
        let log2 = (interval >> 7).checked_ilog2().unwrap_or(0);
        Unit(log2.clamp(Unit::SMALLEST.0, Unit::LARGEST.0))
    }

    /// Sets the unit before there is any sample, and adds `held` for good. Those addresses may have
    /// been added under another unit; no thread misses them at any time.
    pub fn set_unit(&self, unit: Unit, held: impl Iterator<Item = u64>) {
        let multiplier = unit.multiplier();
        for address in held {
            Self::add_to(self.counter(address, multiplier), address);
        }
        // Release: a thread that reads the multiplier sees these counts.
        self.multiplier.0.store(multiplier, Ordering::Release);
    }

    /// Returns a filter without samples.
    #[cfg(loom)]
    pub fn new() -> Self {
        BloomFilter {
            counters: std::array::from_fn(|_| AtomicU8::new(0)),
            multiplier: CacheLine(AtomicU64::new(0)),
        }
    }

    /// Returns a filter without samples. It is all zero bytes, so a static takes no room in the
    /// file.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        BloomFilter {
            counters: [const { AtomicU8::new(0) }; COUNTERS],
            multiplier: CacheLine(AtomicU64::new(0)),
        }
    }

    /// Returns false if no sample lives at `address`, and true if one may.
    #[inline(always)]
    pub fn may_hold(&self, address: u64) -> bool {
        let counter = self.counter_of(address).load(Ordering::Relaxed);
        counter != 0 && (counter >= ONE || counter == tag(address))
    }

    /// Adds an address. Call it before the address of a sampled block is handed to the program.
    pub fn add(&self, address: u64) {
        Self::add_to(self.counter_of(address), address);
    }

    /// Removes an address that was added. Call it when its sample has been taken out of the table.
    pub fn remove(&self, address: u64) {
        // Branch-free: on a busy cache line a branch here is unpredictable.
        change(self.counter_of(address), |n| {
            if n <= ONE {
                0
            } else {
                n - u8::from(n != STUCK)
            }
        });
    }

    /// Removes all addresses. No other thread adds or removes one meanwhile.
    pub fn clear(&self) {
        for counter in &self.counters {
            if counter.load(Ordering::Relaxed) != 0 {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Returns the place of the counter, for a prefetch before [`add`](Self::add).
    #[inline(always)]
    pub fn place_of(&self, address: u64) -> *const u8 {
        std::ptr::from_ref(self.counter_of(address)).cast()
    }

    fn add_to(counter: &AtomicU8, address: u64) {
        let tag = tag(address);
        change(counter, |n| {
            if n == 0 {
                tag
            } else {
                n.max(ONE).saturating_add(1)
            }
        });
    }

    /// Acquire: a thread that reads a multiplier sees the counts of [`set_unit`](Self::set_unit)
    /// under it. A thread that has a sample's address reads the last multiplier, which is older
    /// than all samples.
    #[inline(always)]
    fn counter_of(&self, address: u64) -> &AtomicU8 {
        self.counter(address, self.multiplier.0.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn counter(&self, address: u64, multiplier: u64) -> &AtomicU8 {
        &self.counters[(address.wrapping_mul(multiplier) >> Self::SHIFT) as usize]
    }
}

fn change(counter: &AtomicU8, step: impl Fn(u8) -> u8) {
    let step = |n| Some(step(n));
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step); // it is never refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A Bloom filter of its own for each place in the text: it is too large for a test's stack.
    macro_rules! filter {
        ($unit:expr) => {{
            static BLOOM_FILTER: BloomFilter = BloomFilter::new();
            BLOOM_FILTER.set_unit($unit, std::iter::empty());
            &BLOOM_FILTER
        }};
    }

    #[test]
    fn an_added_address_is_held_until_it_is_removed() {
        let filter = filter!(Unit::SMALLEST);
        // So few that no counter sticks: miri's filter has two.
        let most = if cfg!(miri) { 200 } else { 5000 };
        let addresses: Vec<u64> = (1..most).map(|i| 0x7f00_0000_0000 + i * 48).collect();
        for &a in &addresses {
            filter.add(a);
        }
        assert!(addresses.iter().all(|&a| filter.may_hold(a)));
        for &a in &addresses {
            filter.remove(a);
        }
        assert!(!addresses.iter().any(|&a| filter.may_hold(a)));
    }

    proptest! {
        /// Blocks of few counters, so many that some stick. A live sample is always held, and a
        /// counter that never stuck becomes 0 again.
        #[test]
        fn a_live_sample_is_held(steps in prop::collection::vec((any::<bool>(), 0..600u64), 0..if cfg!(miri) { 50 } else { 2000 })) {
            let filter = filter!(Unit::LARGEST);
            // of the case before
            filter.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
            let address = |place: u64| 0x7f00_0000_0000 + place * 16;
            let (mut live, mut most) = (BTreeMap::<u64, BTreeSet<u64>>::new(), BTreeMap::new());
            for (adds, place) in steps {
                let counter = std::ptr::from_ref(filter.counter_of(address(place))) as u64;
                let those = live.entry(counter).or_default();
                if adds && those.insert(place) {
                    filter.add(address(place));
                } else if !adds && those.remove(&place) {
                    filter.remove(address(place));
                }
                let most: &mut usize = most.entry(counter).or_default();
                *most = those.len().max(*most);
                prop_assert!(those.iter().all(|&place| filter.may_hold(address(place))));
                if those.is_empty() && *most < 128 {
                    prop_assert_eq!(filter.counter_of(address(place)).load(Ordering::Relaxed), 0);
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn few_strangers_are_held() {
        let filter = filter!(Unit::SMALLEST);
        for i in 0..10_000u64 {
            filter.add(0x5500_0000_0000 + i * 4096);
        }
        // With so many of the counters set, 1 % of other addresses hit one, and one in 127 of those
        // has its tag.
        // as far as all counters reach
        let strangers = || (0..100_000u64).map(|i| 0x7f12_3456_0000 + i * 1344);
        let falls = |&address: &u64| filter.counter_of(address).load(Ordering::Relaxed) != 0;
        let fall = strangers().filter(falls).count();
        assert!((500..2000).contains(&fall), "{fall}");
        let held = strangers().filter(|&address| filter.may_hold(address));
        let held = held.count();
        assert!(held < fall / 40, "{held} of {fall}");
    }

    /// A page in which one block is a sample.
    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn a_neighbour_is_hardly_ever_held() {
        let filter = filter!(Unit::LARGEST);
        let mut held = 0;
        for page in 0..256u64 {
            let begin = 0x7f00_0000_0000 + page * 4096;
            let sample = begin + page * 16;
            filter.add(sample);
            let blocks = (0..256).map(|i| begin + i * 16);
            held += blocks.filter(|&it| filter.may_hold(it)).count() - 1;
        }
        // One in 127 of 65,280 addresses.
        assert!((300..800).contains(&held), "{held}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn a_page_has_two_cache_lines_of_counters_at_most() {
        let filter = filter!(Unit::SMALLEST);
        let first = filter.counters.as_ptr() as usize;
        let cache_line =
            |address| (std::ptr::from_ref(filter.counter_of(address)) as usize - first) / 64;
        for page in 0..5000u64 {
            let begin = 0x7f00_0000_0000 + page * 4096;
            let cache_lines: BTreeSet<usize> =
                (0..256).map(|i| cache_line(begin + i * 16)).collect();
            assert!(cache_lines.len() <= 2, "{cache_lines:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn blocks_at_pages_do_not_fall_on_each_other() {
        // 1 GiB of pages, of which one in eight is sampled.
        let filter = filter!(Unit::SMALLEST);
        let pages = (0..262_144u64).map(|page| 0x7f12_3450_0000 + page * 4096);
        for page in pages.clone().step_by(8) {
            filter.add(page);
        }
        let others = pages.enumerate().filter(|&(i, _)| i % 8 != 0);
        let fall = others.filter(|&(_, page)| {
            let counter = filter.counter_of(page);
            counter.load(Ordering::Relaxed) != 0
        });
        let fall = fall.count();
        assert!(fall < 262_144 / 10, "{fall}");
    }

    #[test]
    fn what_was_held_before_the_unit_is_set_is_held_after_it() {
        static BLOOM_FILTER: BloomFilter = BloomFilter::new();
        let early: Vec<u64> = (0..100).map(|i| 0x7f00_0000_0000 + i * 48).collect();
        early.iter().for_each(|&address| BLOOM_FILTER.add(address));
        for unit in [Unit::SMALLEST, Unit::LARGEST] {
            assert!(early.iter().all(|&address| BLOOM_FILTER.may_hold(address)));
            BLOOM_FILTER.set_unit(unit, early.iter().copied());
        }
        assert!(early.iter().all(|&address| BLOOM_FILTER.may_hold(address)));
        if !cfg!(miri) {
            assert!(!BLOOM_FILTER.may_hold(0x7f00_0100_0000));
        }
    }

    #[test]
    fn units_follow_the_interval() {
        let bytes = |interval| BloomFilter::unit_for(interval).bytes();
        assert_eq!([0, 1].map(bytes), [1024; 2]);
        assert_eq!([2, 4096, 32_767].map(bytes), [128; 3]);
        assert_eq!([32_768, 65_536, 100_000].map(bytes), [256, 512, 512]);
        assert_eq!([512 << 10, u64::MAX].map(bytes), [4096; 2]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn where_all_are_samples_the_smallest_blocks_do_not_stick() {
        let filter = filter!(BloomFilter::unit_for(1));
        let blocks = || (0..65_536u64).map(|i| 0x7f00_0000_0000 + i * 16);
        blocks().for_each(|block| filter.add(block));
        blocks().for_each(|block| filter.remove(block));
        assert!(!blocks().any(|block| filter.may_hold(block)));
    }

    /// Neighbouring units have neighbouring counters, and no more counters than units, plus the 37
    /// in between.
    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn each_unit_has_the_counter_after_the_last_ones() {
        static BLOOM_FILTER: BloomFilter = BloomFilter::new();
        for interval in [1, 4096, 65_536, 524_288, 1 << 30] {
            let unit = BloomFilter::unit_for(interval);
            BLOOM_FILTER.set_unit(unit, std::iter::empty());
            let first = BLOOM_FILTER.counters.as_ptr() as usize;
            let number =
                |address| std::ptr::from_ref(BLOOM_FILTER.counter_of(address)) as usize - first;
            let follows = |n: &u64| {
                let begin = 0x7f12_3000_0000 + n * unit.bytes();
                (number(begin) + 1) % COUNTERS == number(begin + unit.bytes())
            };
            let units = COUNTERS as u64;
            let follow = (0..units).filter(follows).count();
            assert_eq!(follow + 37, COUNTERS, "{unit:?}");
        }
    }

    #[test]
    fn a_stuck_counter_never_forgets() {
        let filter = filter!(Unit::SMALLEST);
        for _ in 0..300 {
            filter.add(64);
        }
        for _ in 0..300 {
            filter.remove(64);
        }
        assert!(filter.may_hold(64) && filter.may_hold(80));
    }
}
