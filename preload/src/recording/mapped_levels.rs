//! Mapped levels: the memory of a lock-free table, one mapping for each level.
//!
//! Danger: shared memory is handed out as slices. Levels are added and never removed, under a flag
//! that no thread waits for. A forked child clears the flag, because the thread that held it does
//! not exist there.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use heapprof_core::{Growth, LEVELS, Levels, Slot, level_slots};

use crate::os::sys;

/// The levels of one table. See the module's text.
pub(crate) struct MappedLevels {
    /// Set once each, in order, before `count` passes them.
    levels: [AtomicPtr<Slot>; LEVELS],
    count: AtomicUsize,
    /// True while one thread adds a level.
    growing: AtomicBool,
}

impl MappedLevels {
    pub(crate) const fn new() -> MappedLevels {
        MappedLevels {
            levels: [const { AtomicPtr::new(std::ptr::null_mut()) }; LEVELS],
            count: AtomicUsize::new(0),
            growing: AtomicBool::new(false),
        }
    }

    /// Unmaps all levels. No other thread reads them.
    #[cfg(feature = "attach")]
    pub(crate) fn clear(&self) {
        self.count.store(0, Ordering::Release);
        for (number, level) in self.levels.iter().enumerate() {
            let memory = level.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !memory.is_null() {
                sys::unmap(memory as u64, level_slots(number) * size_of::<Slot>());
            }
        }
    }

    /// Clears the growth flag in a forked child.
    pub(crate) fn after_fork(&self) {
        self.growing.store(false, Ordering::Release);
    }
}

impl Levels for MappedLevels {
    #[inline]
    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    #[inline]
    fn level(&self, n: usize) -> Option<&'static [Slot]> {
        let level = self.levels.get(n)?.load(Ordering::Acquire);
        // SAFETY: not null, so a zeroed mapping of that many slots made below, page-aligned, never
        // unmapped, and changed through atomics only; zero is a valid (empty) slot, two integers.
        (!level.is_null()).then(|| unsafe { std::slice::from_raw_parts(level, level_slots(n)) })
    }

    #[cold]
    fn pause(&self) {
        sys::yield_now();
    }

    #[cold]
    fn grow(&self, seen: usize) -> Growth {
        if seen >= LEVELS {
            return Growth::Refused;
        }
        if self.growing.swap(true, Ordering::Acquire) {
            return Growth::Busy;
        }
        let outcome = if self.count() != seen {
            Growth::Grown // another thread was faster
        } else if let Some(memory) = sys::map_zeroed(level_slots(seen) * size_of::<Slot>()) {
            self.levels[seen].store(memory.cast(), Ordering::Release);
            self.count.store(seen + 1, Ordering::Release);
            Growth::Grown
        } else {
            Growth::Refused
        };
        self.growing.store(false, Ordering::Release);
        outcome
    }
}
