//! Stack set: the stacks whose frames the writer has. A known stack costs one small event.
//!
//! Model: a slot holds the hash of a stack, or 0. Hashes are added and never removed. A thread adds
//! a stack *after* it queued the frames. So for a thread that finds the stack here, the frames come
//! first in the queue. Two threads that send one stack at once send it twice, which the writer
//! notices.

use crate::primitive::atomic::Ordering;

use crate::tables::slots::{Growth, Levels, newest_first, spread, window};

/// See the module's text.
#[derive(Debug, Default)]
pub struct StackSet<L> {
    levels: L,
}

impl<L: Levels> StackSet<L> {
    /// Returns an empty set, in these levels.
    pub const fn new(levels: L) -> Self {
        StackSet { levels }
    }

    /// Returns the memory of the set.
    pub fn levels(&self) -> &L {
        &self.levels
    }

    /// Returns true if the stack of that hash (not 0) was sent.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let home = spread(hash);
        newest_first(&self.levels).any(|level| {
            window(level, home)
                .map(|slot| slot.key.load(Ordering::Acquire))
                .take_while(|&key| key != 0)
                .any(|key| key == hash)
        })
    }

    /// Adds the stack of that hash (not 0). If there is no memory, or another thread is adding
    /// memory, the stack stays unknown. It is then sent again next time, which is only slow.
    pub fn insert(&self, hash: u64) {
        let home = spread(hash);
        loop {
            let seen = self.levels.count();
            if let Some(level) = newest_first(&self.levels).next() {
                for slot in window(level, home) {
                    match slot
                        .key
                        .compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire)
                    {
                        Ok(_) => return,
                        Err(key) if key == hash => return,
                        Err(_) => {}
                    }
                }
            }
            if self.levels.grow(seen) != Growth::Grown {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::slots::testing::Leaked;

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn it_knows_what_it_was_told_and_nothing_else() {
        let set = StackSet::<Leaked>::default();
        let hash = |i: u64| spread(i + 1) | 1;
        for i in 0..50_000 {
            assert!(!set.contains(hash(i)));
            set.insert(hash(i));
            assert!(set.contains(hash(i)));
        }
        assert!((0..50_000).all(|i| set.contains(hash(i))));
        assert!(!(50_000..60_000).any(|i| set.contains(hash(i))));
    }

    #[test]
    fn without_memory_it_forgets_and_goes_on() {
        let set = StackSet::<Leaked>::default();
        set.levels.most.store(1, Ordering::Relaxed);
        set.insert(5);
        assert!(!set.contains(5));
        set.levels.most.store(0, Ordering::Relaxed);
        set.insert(5);
        assert!(set.contains(5));
    }
}
