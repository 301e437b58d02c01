//! Places: the addresses of the allocator's mappings and this library's.
//!
//! Without a hint the kernel takes the highest gap that is large enough. That may be a gap which
//! the program keeps free below a stack that grows (`MAP_GROWSDOWN`). So each mapping gets a hint:
//! the next place downwards, from [`START_BELOW`].
//!
//! The places are a window. At its lower end we begin again at the top, among the gaps of mappings
//! that were unmapped since. The allocator's map of addresses has a node of two mebibytes for each
//! [`LEAF`] bytes of address space, and keeps it. If each mapping had a new place, a program with
//! limited memory would lose all of it to such nodes. The window is a few times larger than all
//! mappings together, so that most hints are right. If other memory is mapped at a hint, the kernel
//! chooses.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arch::page::{HUGE_PAGE, PAGE};

/// Where the next place ends. 0: no place was taken.
static NEXT_END: AtomicU64 = AtomicU64::new(0);
/// The lowest place so far.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Bytes of the places with a mapping.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// True after we began again at the top of the window.
static HAS_BEGUN_AGAIN: AtomicBool = AtomicBool::new(false);

/// The window begins so far below this library. The library's own place is random.
const START_BELOW: u64 = 64 << 30;
/// The window is so many times larger than all mappings.
const ROOM: u64 = 4;
/// The largest window.
const SPAN: u64 = 1 << 40;
/// Address space of one node of the allocator's map of addresses. The window begins and ends with
/// one.
const LEAF: u64 = 1 << 30;

/// Attempts to map memory at a place, before the kernel chooses.
const MOST_ATTEMPTS: u32 = 24;

/// A place for a mapping of ours.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The address, as a hint for the kernel; 0: none.
    pub(super) start: u64,
    len: u64,
    /// [`NEXT_END`] before this place was taken.
    end_before: u64,
}

impl Place {
    /// Makes the place available again: nothing is mapped there. Otherwise a program without memory
    /// would spread its blocks over all places.
    pub(super) fn give_back(self) {
        move_next_end(self.start, self.end_before);
        reduce_taken(self.len);
    }

    /// Gives the place up, because other memory is mapped there. The next place is `more` bytes
    /// lower. Returns false, and does nothing, before the first end of the window: then the other
    /// memory is not ours.
    fn skip(self, more: u64) -> bool {
        let is_after = HAS_BEGUN_AGAIN.load(Ordering::Relaxed);
        if is_after {
            move_next_end(self.start, self.start.saturating_sub(more).max(1));
            reduce_taken(self.len);
        }
        is_after
    }
}

/// Returns the upper end of the window, or 0 if there is no room for one.
fn highest() -> u64 {
    let library = (&raw const NEXT_END) as u64 & !(LEAF - 1);
    library.saturating_sub(START_BELOW)
}

/// Maps `len` bytes at the next place at which nothing is mapped. After some attempts the kernel
/// chooses. `map` maps that many bytes, with a hint, and `unmap` unmaps them.
pub(crate) fn map_at_place<E>(
    len: usize,
    map: impl Fn(u64) -> Result<u64, E>,
    unmap: impl Fn(u64),
) -> Result<u64, E> {
    let mut attempt = 0;
    loop {
        let place = take_place(len);
        let mapping = map(place.start).inspect_err(|_| place.give_back())?;
        let is_elsewhere = mapping != place.start && place.start != 0;
        // Each step is longer than the last one: there may be many small mappings.
        if !is_elsewhere || attempt == MOST_ATTEMPTS || !place.skip((len as u64) << attempt) {
            return Ok(mapping);
        }
        unmap(mapping);
        attempt += 1;
    }
}

/// Takes a place for a mapping of `len` bytes of ours.
pub(super) fn take_place(len: usize) -> Place {
    let len = (len as u64).next_multiple_of(PAGE);
    // As the kernel aligns for its huge pages.
    let alignment = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
    let highest = highest();
    let taken = TAKEN.fetch_add(len, Ordering::Relaxed).saturating_add(len);
    let window = taken.saturating_mul(ROOM).min(SPAN).next_multiple_of(LEAF);
    let lowest = highest.saturating_sub(window).max(HUGE_PAGE);
    let below = |end: u64| {
        let start = end.checked_sub(len)? & !(alignment - 1);
        (start >= lowest).then_some(start)
    };
    let mut end_before = NEXT_END.load(Ordering::Relaxed);
    loop {
        let next = (end_before != 0).then(|| below(end_before)).flatten();
        let Some(start) = next.or_else(|| below(highest)) else {
            reduce_taken(len);
            return Place {
                start: 0,
                len: 0,
                end_before,
            };
        };
        if !move_next_end(end_before, start) {
            end_before = NEXT_END.load(Ordering::Relaxed);
            continue;
        }
        if next.is_none() && end_before != 0 {
            HAS_BEGUN_AGAIN.store(true, Ordering::Relaxed);
        }
        LOWEST.fetch_min(start, Ordering::Relaxed);
        return Place {
            start,
            len,
            end_before,
        };
    }
}

/// Counts a mapping of ours at an address that was chosen by other rules, as to enlarge a block.
pub(crate) fn count_place(start: u64, len: usize) {
    if places().contains(&start) {
        TAKEN.fetch_add((len as u64).next_multiple_of(PAGE), Ordering::Relaxed);
    }
}

/// Makes the place of a mapping available again that was unmapped. Other addresses are ignored.
pub(crate) fn return_place(start: u64, len: usize) {
    let end = start + (len as u64).next_multiple_of(PAGE);
    if places().contains(&start) {
        move_next_end(start, end);
        reduce_taken(end - start);
    }
}

/// Returns the addresses of all places so far: those of the allocator's mappings and ours. Empty if
/// there are none.
pub(crate) fn places() -> Range<u64> {
    let lowest = LOWEST.load(Ordering::Relaxed);
    if lowest < highest() {
        lowest..highest()
    } else {
        0..0
    }
}

/// Sets [`NEXT_END`], unless another thread has taken a place since.
fn move_next_end(from: u64, to: u64) -> bool {
    NEXT_END
        .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

fn reduce_taken(len: u64) {
    let less = |taken: u64| Some(taken.saturating_sub(len));
    let _ = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}
