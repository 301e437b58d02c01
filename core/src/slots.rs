//! Levels of slots: room for a lock-free table that grows without ever moving an entry.
//!
//! ```text
//! level 0   |    4,096 slots |
//! level 1   |         16,384 slots            |          each four times the one before,
//! level 2   |                 65,536 slots                      |   made when the newest is full
//! ```
//!
//! A key belongs at a home place in each level and stands within [`WINDOW`] slots of one of them.
//! Growth adds a level; entries stay where they are, so nobody ever waits for a rehash, and a
//! signal handler may interrupt any operation at any point. The memory comes from the caller, must
//! be zero (an empty slot is all zero), and is never given back.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Levels there can be: 4,096 * 4^12 slots in the last, 2^36.
pub const LEVELS: usize = 13;

/// Slots that are looked at in one level. At the loads the tables reach, a key stands within the
/// first few; a window that is full means the level is.
pub(crate) const WINDOW: usize = 32;

/// Number of slots of a level.
pub const fn level_slots(level: usize) -> usize {
    4096 << (2 * level)
}

/// One place for one entry. What key and value mean is the table's business; zero is empty.
#[derive(Debug, Default)]
pub struct Slot {
    pub(crate) key: AtomicU64,
    pub(crate) value: AtomicU64,
}

/// The levels of one table.
#[derive(Debug)]
pub(crate) struct Levels {
    /// Set once each, in order. `OnceLock` never waits here: only the holder of `growing` sets.
    levels: [OnceLock<&'static [Slot]>; LEVELS],
    /// How many are set. Released after the level itself, so whoever reads n finds n levels.
    count: AtomicUsize,
    /// Held by the one thread that adds a level.
    growing: AtomicBool,
}

/// Outcome of asking for another level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// There is a level that was not there before.
    Grown,
    /// Another thread is at it: try again in a moment.
    Busy,
    /// There is no memory, or there are no levels left.
    Refused,
}

impl Levels {
    pub(crate) const fn new() -> Self {
        Levels {
            levels: [const { OnceLock::new() }; LEVELS],
            count: AtomicUsize::new(0),
            growing: AtomicBool::new(false),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The levels from the newest (and largest) to the oldest.
    #[inline]
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &'static [Slot]> + '_ {
        (0..self.count())
            .rev()
            .filter_map(|i| self.levels[i].get().copied())
    }

    /// The window of a hash in a level.
    #[inline]
    pub(crate) fn window(level: &'static [Slot], hash: u64) -> impl Iterator<Item = &'static Slot> {
        // Lengths are powers of two; the top bits of a multiplicative hash are its best.
        let mask = level.len() - 1;
        let home = (hash >> 28) as usize;
        (0..WINDOW).map(move |i| &level[(home + i) & mask])
    }

    /// Adds a level if there are still only `seen`. `memory(slots)` gives that many zero slots.
    pub(crate) fn grow(
        &self,
        seen: usize,
        memory: impl FnOnce(usize) -> Option<&'static [Slot]>,
    ) -> Growth {
        if seen >= LEVELS {
            return Growth::Refused;
        }
        if self.count() != seen {
            return Growth::Grown;
        }
        if self.growing.swap(true, Ordering::Acquire) {
            return Growth::Busy;
        }
        let outcome = if self.count() != seen {
            Growth::Grown // somebody was faster
        } else {
            match memory(level_slots(seen)) {
                Some(level) if level.len() == level_slots(seen) => {
                    // Cannot fail: level `seen` is set only while `growing` is held and `count` is
                    // `seen`, and then `count` moves on.
                    let _ = self.levels[seen].set(level);
                    self.count.store(seen + 1, Ordering::Release);
                    Growth::Grown
                }
                _ => Growth::Refused,
            }
        };
        self.growing.store(false, Ordering::Release);
        outcome
    }
}

/// Spreads a key over 64 bits.
#[inline]
pub(crate) fn spread(key: u64) -> u64 {
    let mixed = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
