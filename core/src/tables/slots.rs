//! Slots: levels of memory for a lock-free table that grows without moving an entry.
//!
//! ```text
//! level 0   |    4,096 slots |
//! level 1   |         16,384 slots            |          each four times the one before,
//! level 2   |                 65,536 slots                      |   made when the newest is full
//! ```
//!
//! A key has a home slot in each level and stands within [`WINDOW`] slots of one of them. Growth
//! adds a level, and entries stay where they are. So no thread waits for a rehash, and a signal
//! handler may interrupt any operation at any point. The memory comes from the caller, must be zero
//! (an empty slot is all zero), and is never given back.

use crate::primitive::atomic::AtomicU64;

/// Levels there can be: 4,096 * 4^12 slots in the last, 2^36.
pub const LEVELS: usize = 13;

/// Slots that are looked at in one level. At the loads the tables reach, a key stands within the
/// first few; a window that is full means the level is.
pub(crate) const WINDOW: usize = if cfg!(loom) { 2 } else { 32 };

/// Number of slots of a level. Models and miri, which follow each of them, begin with fewer.
pub const fn level_slots(level: usize) -> usize {
    let first = if cfg!(loom) {
        2
    } else if cfg!(miri) {
        64
    } else {
        4096
    };
    first << (2 * level)
}

/// One place for one entry. The table defines the meaning of key and value; zero is empty.
#[derive(Debug, Default)]
pub struct Slot {
    pub(crate) key: AtomicU64,
    pub(crate) value: AtomicU64,
}

/// Where the levels of one table are kept. The memory and the one moment of exclusion, adding a
/// level, are the caller's: inside a profiled process both are delicate.
pub trait Levels {
    /// How many levels there are. Whoever reads `n` finds levels 0 to `n - 1`.
    fn count(&self) -> usize;

    /// Level `n`, of [`level_slots`]`(n)` slots, if there is one.
    fn level(&self, n: usize) -> Option<&'static [Slot]>;

    /// Lets another thread get on with adding a level, for a moment.
    fn pause(&self) {
        std::hint::spin_loop();
    }

    /// Adds level `seen`, all zero, if there are still only `seen`. Must not wait for another
    /// thread.
    fn grow(&self, seen: usize) -> Growth;
}

/// Outcome of asking for another level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// There is a level that was not there before.
    Grown,
    /// Another thread is at it: try again in a moment.
    Busy,
    /// There is no memory, or there are no levels left.
    Refused,
}

/// The levels from the newest (and largest) to the oldest.
#[inline]
pub(crate) fn newest_first<L: Levels>(levels: &L) -> impl Iterator<Item = &'static [Slot]> + '_ {
    (0..levels.count()).rev().filter_map(|n| levels.level(n))
}

/// The window of a hash in a level.
#[inline]
pub(crate) fn window(level: &'static [Slot], hash: u64) -> impl Iterator<Item = &'static Slot> {
    // Lengths are powers of two; the high half of a multiplicative hash is its best.
    let mask = level.len() - 1;
    let home = (hash >> 28) as usize;
    (0..WINDOW).map(move |i| &level[(home + i) & mask])
}

/// Spreads a key over 64 bits.
#[inline]
pub(crate) fn spread(key: u64) -> u64 {
    let mixed = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Levels for tests: leaked memory, an ordinary lock.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Growth, LEVELS, Levels, Slot, level_slots};
    use std::sync::RwLock;

    #[derive(Default)]
    pub(crate) struct Leaked {
        levels: RwLock<Vec<&'static [Slot]>>,
        /// Grow no further than that many levels; 0: without bound.
        pub(crate) most: std::sync::atomic::AtomicUsize,
    }

    impl Levels for Leaked {
        fn count(&self) -> usize {
            self.levels.read().unwrap().len()
        }
        fn level(&self, n: usize) -> Option<&'static [Slot]> {
            self.levels.read().unwrap().get(n).copied()
        }
        fn grow(&self, seen: usize) -> Growth {
            let mut levels = self.levels.write().unwrap();
            let most = self.most.load(std::sync::atomic::Ordering::Relaxed);
            if levels.len() != seen {
                return Growth::Grown;
            }
            if seen == LEVELS || most != 0 && seen >= most - 1 {
                return Growth::Refused;
            }
            let fresh = (0..level_slots(seen)).map(|_| Slot::default());
            levels.push(Box::leak(fresh.collect::<Box<[_]>>()));
            Growth::Grown
        }
    }
}
