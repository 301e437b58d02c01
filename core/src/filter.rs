//! The filter: may there be a sample at this address?
//!
//! Model: 65,536 counters of one byte; a counter is the number of live samples whose address falls on it. Every `free` of the
//! program loads one of them; nearly all find 0 and are done. A counter that reaches 255 stays there: from then on it says
//! "maybe" for ever, which costs time and never truth.
//!
//! Neighbours share a counter, and a cache line of counters: how many is the filter's unit, a power of two of bytes, 64 at
//! least. A small one has few frees of others find a counter taken; a large one takes little of the program's cache where its
//! frees go all over a large heap. What suits depends on how far apart samples are: [`Filter::unit_for`].
//!
//! What lies 65,536 units apart would have the same counter; it has one 37 counters further, or blocks that begin at pages, which
//! use one of 64 counters only, would fall on each other (measured, with 40 % of 10,000 blocks of up to 4 KiB sampled: of
//! the frees of others three in ten found a counter taken; so it is one in fifty, and with a hash one in twenty).
//!
//! Why a table and not a property of the address: see docs/rejected.md (a reserved range needs its
//! own arenas, page alignment wastes a page per live sample).

use crate::primitive::atomic::{AtomicU8, AtomicU64, Ordering};

/// Counters; 64 KiB, so that they stay in a second-level cache. Models and miri, which follow each of them, have two.
const COUNTERS: usize = 1 << (u64::BITS - Filter::SHIFT);

/// A counter that stays where it is.
const STUCK: u8 = u8::MAX;

/// See the module's text.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Filter {
    /// Moved by whoever inserts or takes a sample. Relaxed suffices: a block reaches another thread
    /// only through synchronisation of the program's own, which orders the count before the free.
    counters: [AtomicU8; COUNTERS],
    /// The counter of an address is number `address * multiplier mod 2^64 >> SHIFT`. 0, which is all that there is before a
    /// unit is set: everything has the first. In a line of its own: all read it, and nobody writes what is beside it.
    multiplier: AtomicU64,
}

impl Default for Filter {
    fn default() -> Self {
        Filter::new()
    }
}

/// Bytes of address space that share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit(u32);

impl Unit {
    /// 64 bytes.
    pub const SMALLEST: Unit = Unit(6);
    /// A page: blocks that begin at pages would have every other counter unused beyond it.
    const LARGEST: Unit = Unit(12);

    /// How many bytes.
    pub fn bytes(self) -> u64 {
        1 << self.0
    }

    /// The counters' numbers are the sum of `address / unit` and of `37 * address / (65536 * unit)`.
    fn multiplier(self) -> u64 {
        ((1 << 48) + (37 << 32)) >> self.0
    }
}

impl Filter {
    /// See [`MULTIPLIER_AT`](Self::MULTIPLIER_AT).
    pub const SHIFT: u32 = if cfg!(any(loom, miri)) { 63 } else { 48 };
    /// For whoever asks in assembly: an address times the word that lies so many bytes behind the filter's beginning, shifted
    /// right by [`SHIFT`](Self::SHIFT), is the number of its counter. The counters are bytes, the first at the beginning.
    pub const MULTIPLIER_AT: usize = std::mem::offset_of!(Filter, multiplier);

    /// The unit for samples that are `interval` bytes apart on average: a 128th of that, so that of the frees of others one in a
    /// hundred finds a counter taken, in a heap of up to 65,536 units.
    pub fn unit_for(interval: u64) -> Unit {
        let log2 = (interval >> 7).checked_ilog2().unwrap_or(0);
        Unit(log2.clamp(Unit::SMALLEST.0, Unit::LARGEST.0))
    }

    /// Sets the unit, before there is any sample, and adds `held` for good: they may have been added under another one, and are never
    /// missed, whoever asks at the same time.
    pub fn set_unit(&self, unit: Unit, held: impl Iterator<Item = u64>) {
        let multiplier = unit.multiplier();
        for address in held {
            Self::add_to(self.counter(address, multiplier));
        }
        // Release: whoever reads it sees these.
        self.multiplier.store(multiplier, Ordering::Release);
    }

    /// No sample anywhere.
    #[cfg(loom)]
    pub fn new() -> Self {
        Filter {
            counters: std::array::from_fn(|_| AtomicU8::new(0)),
            multiplier: AtomicU64::new(0),
        }
    }

    /// No sample anywhere. All zero bytes, so a static costs no room in the file.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Filter {
            counters: [const { AtomicU8::new(0) }; COUNTERS],
            multiplier: AtomicU64::new(0),
        }
    }

    /// False: no sample lives at `address`. True: perhaps.
    #[inline(always)]
    pub fn may_hold(&self, address: u64) -> bool {
        self.counter_of(address).load(Ordering::Relaxed) != 0
    }

    /// To be called before the address of a sampled block is handed to the program.
    pub fn add(&self, address: u64) {
        Self::add_to(self.counter_of(address));
    }

    /// To be called when the sample at `address` has been taken out of the table.
    pub fn remove(&self, address: u64) {
        change(self.counter_of(address), |n| {
            if n == STUCK || n == 0 {
                None
            } else {
                Some(n - 1)
            }
        });
    }

    fn add_to(counter: &AtomicU8) {
        change(counter, |n| if n == STUCK { None } else { Some(n + 1) });
    }

    /// Acquire: what is held for good is there under a multiplier that is seen. Whoever has the address of a sample sees the last.
    #[inline(always)]
    fn counter_of(&self, address: u64) -> &AtomicU8 {
        self.counter(address, self.multiplier.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn counter(&self, address: u64, multiplier: u64) -> &AtomicU8 {
        &self.counters[(address.wrapping_mul(multiplier) >> Self::SHIFT) as usize]
    }
}

fn change(counter: &AtomicU8, step: impl FnMut(u8) -> Option<u8>) {
    // A refused step (stuck) is no failure.
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn with_unit(unit: Unit) -> Filter {
        let filter = Filter::new();
        filter.set_unit(unit, std::iter::empty());
        filter
    }

    #[test]
    fn an_added_address_is_held_until_it_is_removed() {
        let filter = with_unit(Unit::SMALLEST);
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

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn few_strangers_are_held() {
        let filter = with_unit(Unit::SMALLEST);
        for i in 0..650u64 {
            filter.add(0x5500_0000_0000 + i * 4096);
        }
        // 650 of 65,536 counters are set: about 1 % of other addresses fall on one.
        let strangers = (0..100_000u64)
            .filter(|i| filter.may_hold(0x7f12_3456_0000 + i * 16))
            .count();
        assert!((500..2000).contains(&strangers), "{strangers}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn a_page_has_two_lines_of_counters_at_most() {
        let filter = with_unit(Unit::SMALLEST);
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
        // 64 MiB of pages, of which one in eight is sampled.
        let filter = with_unit(Unit::SMALLEST);
        let pages = (0..16384u64).map(|page| 0x7f12_3450_0000 + page * 4096);
        for page in pages.clone().step_by(8) {
            filter.add(page);
        }
        let held = pages.enumerate();
        let held = held.filter(|&(i, page)| i % 8 != 0 && filter.may_hold(page));
        let held = held.count();
        assert!(held < 16384 / 10, "{held}");
    }

    #[test]
    fn what_was_held_before_the_unit_is_set_is_held_after_it() {
        let filter = Filter::new();
        let early: Vec<u64> = (0..100).map(|i| 0x7f00_0000_0000 + i * 48).collect();
        early.iter().for_each(|&address| filter.add(address));
        for unit in [Unit::SMALLEST, Unit::LARGEST] {
            assert!(early.iter().all(|&address| filter.may_hold(address)));
            filter.set_unit(unit, early.iter().copied());
        }
        assert!(early.iter().all(|&address| filter.may_hold(address)));
        if !cfg!(miri) {
            assert!(!filter.may_hold(0x7f00_0100_0000));
        }
    }

    #[test]
    fn units_follow_the_interval() {
        let bytes = |interval| Filter::unit_for(interval).bytes();
        assert_eq!([1, 4096, 16_383].map(bytes), [64; 3]);
        assert_eq!([16_384, 65_536, 100_000].map(bytes), [128, 512, 512]);
        assert_eq!([512 << 10, u64::MAX].map(bytes), [4096; 2]);
    }

    /// Counters of neighbours are neighbours, and no more than there are units: but 37 in 65,536, which come in between.
    #[test]
    #[cfg_attr(miri, ignore = "its filter has two counters")]
    fn each_unit_has_the_counter_after_the_last_ones() {
        for interval in [1, 65_536, 524_288, 1 << 30] {
            let unit = Filter::unit_for(interval);
            let filter = with_unit(unit);
            let first = filter.counters.as_ptr() as usize;
            let number = |address| std::ptr::from_ref(filter.counter_of(address)) as usize - first;
            let follows = |n: &u64| {
                let begin = 0x7f12_3000_0000 + n * unit.bytes();
                (number(begin) + 1) % COUNTERS == number(begin + unit.bytes())
            };
            let units = 65_536;
            assert_eq!((0..units).filter(follows).count(), 65_536 - 37, "{unit:?}");
        }
    }

    #[test]
    fn a_stuck_counter_never_forgets() {
        let filter = with_unit(Unit::SMALLEST);
        for _ in 0..300 {
            filter.add(64);
        }
        for _ in 0..300 {
            filter.remove(64);
        }
        assert!(filter.may_hold(64));
    }
}
