//! The filter: may there be a sample at this address?
//!
//! Model: 65,536 counters of one byte, indexed by a hash of the address; a counter is the number of
//! live samples whose address falls on it. Every `free` of the program loads one of them; nearly
//! all find 0 and are done. A counter that reaches 255 stays there: from then on it says "maybe"
//! for ever, which costs time and never truth.
//!
//! Why a table and not a property of the address: see docs/rejected.md (a reserved range needs its
//! own arenas, page alignment wastes a page per live sample).

use crate::primitive::atomic::{AtomicU8, Ordering};

/// Counters; 64 KiB, so that they stay in a second-level cache. Models and miri, which follow each of them, have two.
const COUNTERS: usize = 1 << (32 - Filter::SHIFT);

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
    /// The counter of an address is number `(address mod 2^32) * MULTIPLIER mod 2^32 >> SHIFT`. Public for whoever
    /// asks in assembly; the counters are bytes, the first at the filter's own address.
    pub const MULTIPLIER: u32 = 0x9e37_79b1;
    /// See [`MULTIPLIER`](Self::MULTIPLIER).
    pub const SHIFT: u32 = if cfg!(any(loom, miri)) { 31 } else { 16 };

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
        // A multiplication spreads the low 32 bits over the top 16 of them (Fibonacci hashing, Knuth vol. 3,
        // 6.4). Half an address suffices: what lies a multiple of 4 GiB apart may well share a counter.
        let hash = (address as u32).wrapping_mul(Self::MULTIPLIER);
        &self.counters[(hash >> Self::SHIFT) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
