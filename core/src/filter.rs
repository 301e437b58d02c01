//! The filter: may there be a sample at this address?
//!
//! Model: 65,536 counters of one byte; a counter is the number of live samples whose address falls on it. Every `free` of the
//! program loads one of them; nearly all find 0 and are done. A counter that reaches 255 stays there: from then on it says
//! "maybe" for ever, which costs time and never truth.
//!
//! Neighbours share a cache line: 64 bytes of the heap have one counter, and 4 KiB have a line of counters or two, so that
//! a program whose frees go all over a small heap has little of its cache taken by this. What lies 4 MiB
//! apart would have the same counter; it has one 37 counters further, or blocks that begin at pages, which
//! use one of 64 counters only, would fall on each other (measured, with 40 % of 10,000 blocks of up to 4 KiB sampled: of
//! the frees of others three in ten found a counter taken; so it is one in fifty, and with a hash one in twenty).
//!
//! Why a table and not a property of the address: see docs/rejected.md (a reserved range needs its
//! own arenas, page alignment wastes a page per live sample).

use crate::primitive::atomic::{AtomicU8, Ordering};

/// Counters; 64 KiB, so that they stay in a second-level cache. Models and miri, which follow each of them, have two.
const COUNTERS: usize = 1 << (u64::BITS - Filter::SHIFT);

/// A counter that stays where it is.
const STUCK: u8 = u8::MAX;

/// See the module's text.
#[derive(Debug)]
#[repr(transparent)]
pub struct Filter {
    /// Moved by whoever inserts or takes a sample. Relaxed suffices: a block reaches another thread
    /// only through synchronisation of the program's own, which orders the count before the free.
    counters: [AtomicU8; COUNTERS],
}

impl Default for Filter {
    fn default() -> Self {
        Filter::new()
    }
}

impl Filter {
    /// The counter of an address is number `address * MULTIPLIER mod 2^64 >> SHIFT`, which is the sum of `address >> 6` and
    /// of `37 * address >> 22`. Public for whoever asks in assembly; the counters are bytes, the first at the filter's own
    /// address.
    pub const MULTIPLIER: u64 = (1 << 42) + (37 << 26);
    /// See [`MULTIPLIER`](Self::MULTIPLIER).
    pub const SHIFT: u32 = if cfg!(any(loom, miri)) { 63 } else { 48 };

    /// No sample anywhere.
    #[cfg(loom)]
    pub fn new() -> Self {
        Filter {
            counters: std::array::from_fn(|_| AtomicU8::new(0)),
        }
    }

    /// No sample anywhere. All zero bytes, so a static costs no room in the file.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Filter {
            counters: [const { AtomicU8::new(0) }; COUNTERS],
        }
    }

    /// False: no sample lives at `address`. True: perhaps.
    #[inline(always)]
    pub fn may_hold(&self, address: u64) -> bool {
        self.counter(address).load(Ordering::Relaxed) != 0
    }

    /// To be called before the address of a sampled block is handed to the program.
    pub fn add(&self, address: u64) {
        self.change(address, |n| if n == STUCK { None } else { Some(n + 1) });
    }

    /// To be called when the sample at `address` has been taken out of the table.
    pub fn remove(&self, address: u64) {
        self.change(address, |n| {
            if n == STUCK || n == 0 {
                None
            } else {
                Some(n - 1)
            }
        });
    }

    fn change(&self, address: u64, step: impl FnMut(u8) -> Option<u8>) {
        // A refused step (stuck) is no failure.
        let _ = self
            .counter(address)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
    }

    #[inline(always)]
    fn counter(&self, address: u64) -> &AtomicU8 {
        &self.counters[(address.wrapping_mul(Self::MULTIPLIER) >> Self::SHIFT) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_added_address_is_held_until_it_is_removed() {
        let filter = Filter::new();
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
        let filter = Filter::new();
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
        let filter = Filter::new();
        let first = filter.counters.as_ptr() as usize;
        let line = |address| (std::ptr::from_ref(filter.counter(address)) as usize - first) / 64;
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
        let filter = Filter::new();
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
    fn a_stuck_counter_never_forgets() {
        let filter = Filter::new();
        for _ in 0..300 {
            filter.add(64);
        }
        for _ in 0..300 {
            filter.remove(64);
        }
        assert!(filter.may_hold(64));
    }
}
