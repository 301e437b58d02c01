//! The levels of our lock-free tables: their memory, mapped for them alone.
//!
//! Danger: shared memory handed out as slices. Levels are only ever added, under a flag that nobody waits
//! for; in a forked child the flag is cleared, since whoever held it is not there.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use heapprof_core::{Growth, LEVELS, Levels, Slot, level_slots};

use crate::os::sys;

/// See the module's text.
pub(crate) struct Mapped {
    /// Set once each, in order, before `count` reaches beyond them.
    levels: [AtomicPtr<Slot>; LEVELS],
    count: AtomicUsize,
    /// Held by the one thread that adds a level.
    growing: AtomicBool,
}

impl Mapped {
    pub(crate) const fn new() -> Mapped {
        Mapped {
            levels: [const { AtomicPtr::new(std::ptr::null_mut()) }; LEVELS],
            count: AtomicUsize::new(0),
            growing: AtomicBool::new(false),
        }
    }

    /// In a forked child.
    pub(crate) fn after_fork(&self) {
        self.growing.store(false, Ordering::Release);
    }
}

impl Levels for Mapped {
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
            Growth::Grown // somebody was faster
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
