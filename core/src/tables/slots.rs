//! Levels of slots: the storage of a lock-free table that grows without moving an entry.
//!
//! ```text
//! level 0   |    4,096 slots |
//! level 1   |         16,384 slots            |          each four times the one before,
//! level 2   |                 65,536 slots                      |   made when the newest is full
//! ```
//!
//! A key has a home slot in each level, and stands within [`WINDOW`] slots of one of its homes.
//! Growth adds a level. Entries never move, so no thread waits for a rehash, and a signal handler
//! may interrupt any operation at any point. The memory comes from the caller, must be zero (an
//! empty slot is all zero), and is never given back.

use crate::primitive::atomic::AtomicU64;

/// Most levels: the last has 4,096 * 4^12 slots, 2^36.
pub const LEVELS: usize = 13;

/// Slots that are searched in one level. At the usual loads a key stands within the first few; if a
/// window is full, the level counts as full.
pub(crate) const WINDOW: usize = if cfg!(loom) { 2 } else { 32 };

/// Returns the number of slots of a level. Models and miri, which follow each slot, begin with
/// fewer.
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

/// The place of one entry. The table defines key and value; zero is empty.
#[derive(Debug, Default)]
pub struct Slot {
    pub(crate) key: AtomicU64,
    pub(crate) value: AtomicU64,
}

/// Storage of one table's levels. The caller provides the memory, and the mutual exclusion of
/// adding a level: both are delicate inside a profiled process.
pub trait Levels {
    /// Returns the number of levels. A thread that reads `n` finds levels 0 to `n - 1`.
    fn count(&self) -> usize;

    /// Returns level `n`, of [`level_slots`]`(n)` slots, if there is one.
    fn level(&self, n: usize) -> Option<&'static [Slot]>;

    /// Pauses for a moment, so that another thread can finish adding a level.
    fn pause(&self) {
        std::hint::spin_loop();
    }

    /// Adds level `seen`, all zero, if there are still only `seen`. It must not wait for another
    /// thread.
    fn grow(&self, seen: usize) -> Growth;
}

/// The outcome of adding a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// There is a new level.
    Grown,
    /// Another thread is adding it: try again in a moment.
    Busy,
    /// There is no memory, or there are no levels left.
    Refused,
}

/// Returns the levels from the newest and largest to the oldest.
#[inline]
pub(crate) fn newest_first<L: Levels>(levels: &L) -> impl Iterator<Item = &'static [Slot]> + '_ {
    (0..levels.count()).rev().filter_map(|n| levels.level(n))
}

/// Returns the window of a hash in a level.
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
        /// Most levels; 0: no limit.
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
