//! Filter: a table of counters that tells for most addresses that no live sample is there.
//!
//! Model: a counter has one byte. It is about the live samples whose address falls on it. Every
//! `free` of the program loads one counter; nearly all are 0, and the free is done. The values:
//!
//! | value | live samples |
//! | --- | --- |
//! | 0 | none |
//! | 1 to 127 | one, whose address has this [tag] |
//! | 128 | one with an unknown tag: there were more |
//! | 129 to 254 | two to 127 |
//! | 255 | saturated once: from then on "maybe" for ever, which costs time and never truth |
//!
//! So the free of a sample's neighbour asks twice here, and hardly ever in the sample table behind
//! it. A question to the table loads a line of memory that is in no cache. Where samples have come
//! and gone for long, it loads more than one.
//!
//! Neighbours share a counter, and a cache line of counters. The filter's unit says how many: a
//! power of two of bytes, with a lower bound. With a small unit few frees of other blocks find a
//! counter taken. With a large unit the counters take little of the program's cache if its frees
//! are spread over a large heap. The best unit depends on the distance between samples:
//! [`Filter::unit_for`].
//!
//! Blocks that begin at pages would fall on few counters, and on each other, if addresses as many
//! units apart as there are counters had the same counter. So each such step moves the counter on
//! by some more.
//!
//! A table is used instead of a property of the address: see docs/rejected.md (a reserved range
//! needs its own arenas, page alignment wastes a page per live sample).

use crate::primitive::atomic::{AtomicU8, AtomicU64, Ordering};

/// How many counters there are. Only those on which the program's heap falls are ever touched, a
/// cache line for 64 units. (Models and miri, which follow each counter, have two.)
const COUNTERS: usize = 1 << Filter::BITS;

/// A counter of one sample whose tag is not known.
const ONE: u8 = 128;
/// A counter that stays where it is.
const STUCK: u8 = u8::MAX;

/// Returns the tag of an address, which a counter holds if it has a single sample: 1 to 127.
#[inline(always)]
fn tag(address: u64) -> u8 {
    ((address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as u8).max(1)
}

/// See the module's text.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Filter {
    /// The counter of an address is number `address * multiplier mod 2^64 >> SHIFT`. 0, which is
    /// all that there is before a unit is set: everything has the first. In a line of its own: all
    /// read it, and nobody writes what is beside it. First, because assembly reaches it with a
    /// shorter instruction there.
    multiplier: Line<AtomicU64>,
    /// Changed by the threads that insert or take samples. Relaxed suffices: a block reaches
    /// another thread only through a synchronisation of the program, which orders the count before
    /// the free.
    counters: [AtomicU8; COUNTERS],
}

/// Alone on a line of the cache.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

impl Default for Filter {
    fn default() -> Self {
        Filter::new()
    }
}

/// Bytes of address space that share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit(u32);

impl Unit {
    /// 128 bytes.
    pub const SMALLEST: Unit = Unit(7);
    /// A page: beyond it blocks that begin at neighbouring pages would share a counter.
    const LARGEST: Unit = Unit(12);
    /// Where every block is a sample: as large as can be without a counter of the smallest blocks
    /// reaching 255.
    const OF_ALL: Unit = Unit(10);

    /// How many bytes.
    pub fn bytes(self) -> u64 {
        1 << self.0
    }

    /// The counters' numbers are the sum of `address / unit` and of
    /// `37 * address / (1048576 * unit)`.
    fn multiplier(self) -> u64 {
        let one = 1u64 << Filter::SHIFT; // bytes, were the unit one
        let further = (one >> Filter::BITS).wrapping_mul(37);
        one.wrapping_add(further) >> self.0
    }
}

impl Filter {
    /// Bits of a counter's number.
    const BITS: u32 = if cfg!(any(loom, miri)) { 1 } else { 20 };
    /// See [`MULTIPLIER_AT`](Self::MULTIPLIER_AT).
    pub const SHIFT: u32 = u64::BITS - Self::BITS;
    /// Offset of the multiplier, for a caller in assembly. An address times the multiplier, shifted
    /// right by [`SHIFT`](Self::SHIFT), is the number of the address's counter. The counters are
    /// bytes, from [`COUNTERS_AT`](Self::COUNTERS_AT) on.
    pub const MULTIPLIER_AT: usize = std::mem::offset_of!(Filter, multiplier);
    /// Where the first counter is.
    pub const COUNTERS_AT: usize = std::mem::offset_of!(Filter, counters);

    /// The unit for samples that are `interval` bytes apart on average: a 128th of that, so that of
    /// the frees of others one in a hundred finds a counter taken, in a heap of up to a million
    /// units; 128 bytes at least: of smaller ones the counters take more of the cache than they
    /// spare questions. Where every block is a sample there are no others, and all that counts is
    /// how much of the cache is taken.
    pub fn unit_for(interval: u64) -> Unit {
        if interval <= 1 {
            return Unit::OF_ALL;
        }
        let log2 = (interval >> 7).checked_ilog2().unwrap_or(0);
        Unit(log2.clamp(Unit::SMALLEST.0, Unit::LARGEST.0))
    }

    /// Sets the unit, before there is any sample, and adds `held` for good. These addresses may
    /// have been added under another unit, and no thread that asks meanwhile misses them.
    pub fn set_unit(&self, unit: Unit, held: impl Iterator<Item = u64>) {
        let multiplier = unit.multiplier();
        for address in held {
            Self::add_to(self.counter(address, multiplier), address);
        }
        // Release: a thread that reads the multiplier sees these counts.
        self.multiplier.0.store(multiplier, Ordering::Release);
    }

    /// No sample anywhere.
    #[cfg(loom)]
    pub fn new() -> Self {
        Filter {
            counters: std::array::from_fn(|_| AtomicU8::new(0)),
            multiplier: Line(AtomicU64::new(0)),
        }
    }

    /// No sample anywhere. All zero bytes, so a static costs no room in the file.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Filter {
            counters: [const { AtomicU8::new(0) }; COUNTERS],
            multiplier: Line(AtomicU64::new(0)),
        }
    }

    /// False: no sample lives at `address`. True: perhaps.
    #[inline(always)]
    pub fn may_hold(&self, address: u64) -> bool {
        let counter = self.counter_of(address).load(Ordering::Relaxed);
        counter != 0 && (counter >= ONE || counter == tag(address))
    }

    /// To be called before the address of a sampled block is handed to the program.
    pub fn add(&self, address: u64) {
        Self::add_to(self.counter_of(address), address);
    }

    /// To be called when the sample at `address`, which was added, has been taken out of the table.
    pub fn remove(&self, address: u64) {
        // Without branches: in a busy line, which way they go is anybody's guess.
        change(self.counter_of(address), |n| {
            if n <= ONE {
                0
            } else {
                n - u8::from(n != STUCK)
            }
        });
    }

    /// Returns the place of the address's counter, for a prefetch before [adding](Self::add) the
    /// address.
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
    /// under it. A thread with the address of a sample reads the last multiplier, because it was
    /// set before there were samples.
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

    /// One of its own for each place in the text, with that unit: it is too large for a test's
    /// stack.
    macro_rules! filter {
        ($unit:expr) => {{
            static FILTER: Filter = Filter::new();
            FILTER.set_unit($unit, std::iter::empty());
            &FILTER
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
        /// Blocks of few counters, so many that some stick: one that lives is always held, and a
        /// counter that never stuck knows when it has none.
        #[test]
        fn who_lives_is_held(steps in prop::collection::vec((any::<bool>(), 0..600u64), 0..if cfg!(miri) { 50 } else { 2000 })) {
            let filter = filter!(Unit::LARGEST);
            // The counts of the case before.
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
        // That many of a million counters are set: on one of them fall 1 % of other addresses, of
        // which one in 127 has the same tag.
        // As far as all counters reach.
        let strangers = || (0..100_000u64).map(|i| 0x7f12_3456_0000 + i * 1344);
        let falls = |&address: &u64| filter.counter_of(address).load(Ordering::Relaxed) != 0;
        let fall = strangers().filter(falls).count();
        assert!((500..2000).contains(&fall), "{fall}");
        let held = strangers().filter(|&address| filter.may_hold(address));
        let held = held.count();
        assert!(held < fall / 40, "{held} of {fall}");
    }

    /// Counts the blocks of a page that are asked about, if one block of it is a sample.
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
        // One in 127 of the addresses has the same tag.
        assert!((300..800).contains(&held), "{held}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn a_page_has_two_lines_of_counters_at_most() {
        let filter = filter!(Unit::SMALLEST);
        let first = filter.counters.as_ptr() as usize;
        let line = |address| (std::ptr::from_ref(filter.counter_of(address)) as usize - first) / 64;
        for page in 0..5000u64 {
            let begin = 0x7f00_0000_0000 + page * 4096;
            let lines: BTreeSet<usize> = (0..256).map(|i| line(begin + i * 16)).collect();
            assert!(lines.len() <= 2, "{lines:?}");
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
        static FILTER: Filter = Filter::new();
        let early: Vec<u64> = (0..100).map(|i| 0x7f00_0000_0000 + i * 48).collect();
        early.iter().for_each(|&address| FILTER.add(address));
        for unit in [Unit::SMALLEST, Unit::LARGEST] {
            assert!(early.iter().all(|&address| FILTER.may_hold(address)));
            FILTER.set_unit(unit, early.iter().copied());
        }
        assert!(early.iter().all(|&address| FILTER.may_hold(address)));
        if !cfg!(miri) {
            assert!(!FILTER.may_hold(0x7f00_0100_0000));
        }
    }

    #[test]
    fn units_follow_the_interval() {
        let bytes = |interval| Filter::unit_for(interval).bytes();
        assert_eq!([0, 1].map(bytes), [1024; 2]);
        assert_eq!([2, 4096, 32_767].map(bytes), [128; 3]);
        assert_eq!([32_768, 65_536, 100_000].map(bytes), [256, 512, 512]);
        assert_eq!([512 << 10, u64::MAX].map(bytes), [4096; 2]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn where_all_are_samples_the_smallest_blocks_do_not_stick() {
        let filter = filter!(Filter::unit_for(1));
        let blocks = || (0..65_536u64).map(|i| 0x7f00_0000_0000 + i * 16);
        blocks().for_each(|block| filter.add(block));
        blocks().for_each(|block| filter.remove(block));
        assert!(!blocks().any(|block| filter.may_hold(block)));
    }

    /// Counters of neighbours are neighbours, and no more than there are units: but 37 of all,
    /// which come in between.
    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn each_unit_has_the_counter_after_the_last_ones() {
        static FILTER: Filter = Filter::new();
        for interval in [1, 4096, 65_536, 524_288, 1 << 30] {
            let unit = Filter::unit_for(interval);
            FILTER.set_unit(unit, std::iter::empty());
            let first = FILTER.counters.as_ptr() as usize;
            let number = |address| std::ptr::from_ref(FILTER.counter_of(address)) as usize - first;
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
