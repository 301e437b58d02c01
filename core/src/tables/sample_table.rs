//! Sample table: a map from the address of a live sampled block to its sample.
//!
//! Model: a slot is Empty, Gone, Reserved or Full(address, id); [`crate::tables::slots`] defines
//! its place. The allocator hands an address out once at a time, so it is in the table at most
//! once. An insertion need not look for the same address. Only the thread that frees a block takes
//! its address.
//!
//! ```text
//!  Empty ──insert──> Reserved ──publish──> Full ──take──> Reserved ──leave──> Gone ──insert──> …
//!                        ↑                                    │
//!                        └────────────────fill────────────────┘
//! ```
//!
//! The thread that takes a sample out keeps its slot as a [`Vacant`] until it leaves the slot.
//! Allocators tend to hand out the last freed block. The next sample at that address then needs no
//! locked instruction.
//!
//! A window is searched up to its first Empty slot. A slot never becomes Empty again. So every slot
//! that was not Empty before an entry when it was made is still not Empty.
//!
//! Callers: the hook inserts before the pointer is returned, and takes before the block is freed
//! (Law 2). All steps are lock-free, and a signal handler that performs the same steps may
//! interrupt them anywhere.
//!
//! Not here: the meaning of an id, and what happens if the table cannot grow (the hook counts it).

use crate::primitive::atomic::Ordering;

use crate::tables::slots::{Growth, Levels, Slot, newest_first, spread, window};

const EMPTY: u64 = 0;
const GONE: u64 = 1;
const RESERVED: u64 = 2;

/// Most tries while another thread adds a level. That thread maps memory, which takes microseconds
/// unless it is preempted; [`Levels::pause`] lets it run.
const GROWTH_TRIES: usize = 100_000;

/// The slot of a sample that was taken out of the table. No other thread can take or find it. Its
/// address returns to the table only by [`fill`](Self::fill), or by an insertion elsewhere.
#[derive(Debug)]
#[repr(C)] // hooks pass it to `extern "C"` functions, which no unwinding leaves
#[must_use = "nobody can use a place that is never left"]
pub struct Vacant {
    slot: &'static Slot,
    address: u64,
}

impl Vacant {
    /// Returns the address of the taken sample.
    #[inline(always)]
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Puts sample `id` at the address, as [`SampleTable::insert`] does. Only the owner of the
    /// block may call it.
    #[inline(always)]
    pub fn fill(self, id: u64) {
        self.slot.value.store(id, Ordering::Relaxed);
        // Release: a thread that finds the address finds the id.
        self.slot.key.store(self.address, Ordering::Release);
    }

    /// Gives the slot back.
    #[inline(always)]
    pub fn leave(self) {
        self.slot.key.store(GONE, Ordering::Release);
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct SampleTable<L> {
    levels: L,
}

impl<L: Levels> SampleTable<L> {
    /// Returns a table without samples, in these levels.
    pub const fn new(levels: L) -> Self {
        SampleTable { levels }
    }

    /// Returns the levels.
    pub fn levels(&self) -> &L {
        &self.levels
    }

    /// Inserts sample `id` at `address`, which must be above 2 and not in the table. Returns false
    /// if there is no room and no memory.
    #[inline]
    pub fn insert(&self, address: u64, id: u64) -> bool {
        debug_assert!(address > RESERVED);
        let hash = spread(address);
        // Nearly always the entry is at home in the newest level.
        let at_home = self.home(hash);
        at_home.is_some_and(|slot| Self::fill(slot, address, id))
            || self.insert_somewhere(hash, address, id)
    }

    /// Returns the most likely place of `address`, for a prefetch before [`insert`](Self::insert).
    #[inline(always)]
    pub fn place_of(&self, address: u64) -> Option<*const u8> {
        let home = self.home(spread(address))?;
        Some(std::ptr::from_ref(home).cast())
    }

    /// Returns the home slot of a hash in the newest level.
    #[inline(always)]
    fn home(&self, hash: u64) -> Option<&'static Slot> {
        let newest = newest_first(&self.levels).next()?;
        window(newest, hash).next()
    }

    #[inline(never)]
    fn insert_somewhere(&self, hash: u64, address: u64, id: u64) -> bool {
        for _ in 0..GROWTH_TRIES {
            let seen = self.levels.count();
            // Only the newest level: the older levels drain, and a table that shrank is mostly
            // empty.
            if let Some(level) = newest_first(&self.levels).next()
                && window(level, hash).any(|slot| Self::fill(slot, address, id))
            {
                return true;
            }
            match self.levels.grow(seen) {
                Growth::Grown => {}
                Growth::Busy => self.levels.pause(),
                Growth::Refused => return false,
            }
        }
        false
    }

    /// Puts the sample into a slot if it is free. Returns false if it is not.
    #[inline(always)]
    fn fill(slot: &Slot, address: u64, id: u64) -> bool {
        let key = slot.key.load(Ordering::Relaxed);
        // Acquire pairs with the Release that left Gone: the last reader of `value` is done before
        // another value is written.
        let is_mine = key <= GONE
            && slot
                .key
                .compare_exchange(key, RESERVED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if is_mine {
            slot.value.store(id, Ordering::Relaxed);
            // Release: a thread that finds the address finds the id.
            slot.key.store(address, Ordering::Release);
        }
        is_mine
    }

    /// Takes the sample at `address` out of the table, if there is one. Returns its id and its
    /// slot.
    #[inline]
    pub fn take(&self, address: u64) -> Option<(u64, Vacant)> {
        let slot = self.find(address)?;
        let id = slot.value.load(Ordering::Relaxed);
        // Release, as in `leave`: the block is freed after this, and another thread may get it at
        // once.
        slot.key.store(RESERVED, Ordering::Release);
        Some((id, Vacant { slot, address }))
    }

    /// Replaces the sample at `address` by `id`, if there is one, and returns the old id. Only the
    /// owner of the block may call it, so that no other thread takes the sample meanwhile.
    #[inline]
    pub fn replace(&self, address: u64, id: u64) -> Option<u64> {
        let slot = self.find(address)?;
        let was = slot.value.load(Ordering::Relaxed);
        // No Release is needed: a thread that frees the block later got it from this thread, after
        // this store.
        slot.value.store(id, Ordering::Relaxed);
        Some(was)
    }

    /// Returns true if a sample lives at `address`.
    pub fn holds(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    /// Passes each sample's address and id to `visit`, until that returns false. Samples come and
    /// go meanwhile: a sample that is there all the time is passed once, another one perhaps. An id
    /// may be that of a sample that is gone.
    pub fn each(&self, visit: &mut dyn FnMut(u64, u64) -> bool) {
        for slot in newest_first(&self.levels).flatten() {
            let address = slot.key.load(Ordering::Acquire);
            if address > RESERVED {
                let id = slot.value.load(Ordering::Relaxed);
                if !visit(address, id) {
                    return;
                }
            }
        }
    }

    #[inline]
    fn find(&self, address: u64) -> Option<&'static Slot> {
        if address <= RESERVED {
            return None;
        }
        let hash = spread(address);
        self.home(hash)
            .filter(|slot| slot.key.load(Ordering::Acquire) == address)
            .or_else(|| self.find_somewhere(hash, address))
    }

    #[inline(never)]
    fn find_somewhere(&self, hash: u64, address: u64) -> Option<&'static Slot> {
        for level in newest_first(&self.levels) {
            for slot in window(level, hash) {
                match slot.key.load(Ordering::Acquire) {
                    key if key == address => return Some(slot),
                    EMPTY => break,
                    _ => {}
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::slots::testing::Leaked;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Takes the sample at `address`, and leaves its slot.
    fn take(table: &SampleTable<Leaked>, address: u64) -> Option<u64> {
        let (id, vacant) = table.take(address)?;
        assert_eq!(vacant.address(), address);
        vacant.leave();
        Some(id)
    }

    #[test]
    fn what_is_inserted_is_taken_once() {
        let table = SampleTable::<Leaked>::default();
        assert!(table.insert(0x1000, 7));
        assert!(table.holds(0x1000));
        assert_eq!(take(&table, 0x1000), Some(7));
        assert_eq!(take(&table, 0x1000), None);
        assert!(table.insert(0x1000, 8));
        assert_eq!(table.replace(0x1000, 9), Some(8));
        assert_eq!(table.replace(0x2000, 9), None);
        assert_eq!(take(&table, 0x1000), Some(9));
    }

    #[test]
    fn each_sample_in_the_table_is_visited_until_it_is_enough() {
        let table = SampleTable::<Leaked>::default();
        for sample in 1..=500 {
            assert!(table.insert(sample << 12, sample));
        }
        for sample in (2..=500).step_by(2) {
            assert_eq!(take(&table, sample << 12), Some(sample));
        }
        let mut visited = Vec::new();
        table.each(&mut |address, id| {
            assert_eq!(address, id << 12);
            visited.push(id);
            true
        });
        visited.sort_unstable();
        assert!(visited.into_iter().eq((1..500).step_by(2)));
        let mut most = 3;
        table.each(&mut |_, _| {
            most -= 1;
            most > 0
        });
        assert_eq!(most, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn it_grows_and_keeps_what_it_has() {
        let table = SampleTable::<Leaked>::default();
        let address = |i: u64| 0x7f00_0000_0000 + i * 64;
        for i in 0..200_000 {
            assert!(table.insert(address(i), i));
        }
        assert!(table.levels.count() >= 3);
        for i in 0..200_000 {
            assert_eq!(take(&table, address(i)), Some(i));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn churn_at_a_steady_size_does_not_grow_it() {
        let table = SampleTable::<Leaked>::default();
        let live = 500u64;
        for i in 0..2_000_000u64 {
            assert!(table.insert(0x10_0000 + i % 7919 * 16 + (i / 7919) * 0x100_0000, i,));
            if i >= live {
                let j = i - live;
                let address = 0x10_0000 + j % 7919 * 16 + (j / 7919) * 0x100_0000;
                assert_eq!(take(&table, address), Some(j));
            }
        }
        assert_eq!(table.levels.count(), 1);
    }

    #[test]
    fn without_memory_it_says_so_and_keeps_working() {
        let table = SampleTable::<Leaked>::default();
        table.levels.most.store(1, Ordering::Relaxed);
        assert!(!table.insert(64, 1));
        table.levels.most.store(0, Ordering::Relaxed);
        assert!(table.insert(64, 1));
        assert_eq!(take(&table, 64), Some(1));
    }

    #[test]
    fn threads_do_not_disturb_each_other() {
        // Miri, which finds races that the machine may never show, takes a second for a thousand.
        let (rounds, most) = if cfg!(miri) { (2, 50) } else { (20, 2000) };
        let table = SampleTable::<Leaked>::default();
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..rounds {
                        for i in 0..most {
                            let address = (t << 40) + (i + 1) * 16;
                            assert!(table.insert(address, t * 1_000_000 + round * 2000 + i,));
                        }
                        for i in 0..most {
                            let address = (t << 40) + (i + 1) * 16;
                            assert_eq!(
                                take(table, address),
                                Some(t * 1_000_000 + round * 2000 + i)
                            );
                        }
                    }
                });
            }
        });
    }

    proptest! {
        /// Against a map: random inserts and takes over few addresses, so that slots are reused at
        /// once or later.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), any::<bool>(), 1u64..60), 0..if cfg!(miri) { 100 } else { 400 })) {
            let table = SampleTable::<Leaked>::default();
            let mut model = HashMap::new();
            let mut kept: Option<Vacant> = None;
            for (id, (insert, keeps, place)) in steps.into_iter().enumerate() {
                let address = place * 16;
                if insert && !model.contains_key(&address) {
                    match kept.take_if(|kept| kept.address() == address) {
                        Some(kept) if keeps => kept.fill(id as u64),
                        other => {
                            prop_assert!(table.insert(address, id as u64));
                            kept = kept.or(other);
                        }
                    }
                    model.insert(address, id as u64);
                } else if let Some((taken, vacant)) = table.take(address) {
                    prop_assert_eq!(Some(taken), model.remove(&address));
                    prop_assert!(!table.holds(address));
                    let left = if keeps { kept.replace(vacant) } else { Some(vacant) };
                    left.into_iter().for_each(Vacant::leave);
                } else {
                    prop_assert!(!model.contains_key(&address));
                }
            }
            for address in (1..60).map(|place| place * 16) {
                let taken = table.take(address).map(|(id, vacant)| {
                    vacant.leave();
                    id
                });
                prop_assert_eq!(taken, model.remove(&address));
            }
            prop_assert!(model.is_empty());
        }
    }

    /// The numbers of empty, gone and reserved slots are no addresses of blocks.
    #[test]
    fn no_sample_lives_where_no_block_does() {
        let table = SampleTable::<Leaked>::default();
        assert!(table.insert(0x1000, 7));
        for address in EMPTY..=RESERVED {
            assert!(!table.holds(address));
            assert_eq!(take(&table, address), None);
        }
        // Also after there was a slot of each kind.
        assert_eq!(take(&table, 0x1000), Some(7));
        assert!(table.insert(0x2000, 8));
        let (_, kept) = table.take(0x2000).unwrap();
        for address in EMPTY..=RESERVED {
            assert_eq!(table.replace(address, 9), None);
        }
        kept.leave();
    }
}
