//! Large blocks that a thread freed, for the next that it asks for: up to a mebibyte, in four threads at a time.
//!
//! A program that allocates a buffer for each piece of work, and frees it, has jemalloc take it out of a range of free pages and put it back, split, merged,
//! entered in its map and its heaps: four thousand instructions, and less than two hundred here. jemalloc could keep such blocks itself (`tcache_max`), twenty of
//! each size in each thread, which is too much (docs/rejected.md).
//!
//! What is kept is in use for jemalloc, so it must be little: a block of each of [`CLASSES`] sizes, [`ROOM`] pages in all, in [`STASHES`] of the threads; one
//! that was not asked for while jemalloc looked through the thread's cache twice is given back, and so is all that a thread has at its end, and what all have when the program does nothing (`writer/idle_purge.rs`).
//! A block is given to who asks for as many pages, or for a sixteenth less.
//!
//! Danger: whoever has taken a block out of its place owns it, so each place changes in one instruction. A stash is the thread's that holds it. Others
//! come there to empty it, and signal handlers of that thread at any time.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::large;
use crate::allocator::mallctl::PAGE;
use crate::state::thread::{self, Thread};

/// How many threads have one at a time.
const STASHES: usize = 4;
/// Pages that one may hold: that of the largest block, too.
const ROOM: usize = (1 << 20) / PAGE;
/// Eight to each doubling of the pages, from eight up to [`ROOM`].
const CLASSES: usize = 8 * (ROOM.ilog2() - 3) as usize + 1;
/// A block may have so much more than was asked for, as a part of that.
const MORE: usize = 16;

/// How often a thread that found all of them taken does not ask again.
const PATIENCE: u8 = 100;
/// It ends, and asks no more: nobody would empty what a signal handler puts there now.
const NEVER: u8 = u8::MAX;

#[repr(align(64))]
struct Stash {
    is_held: AtomicBool,
    /// Pages of what is there, or was when it was last counted.
    pages: AtomicU32,
    blocks: [AtomicU64; CLASSES],
}

static ALL: [Stash; STASHES] = [const {
    Stash {
        is_held: AtomicBool::new(false),
        pages: AtomicU32::new(0),
        blocks: [const { AtomicU64::new(0) }; CLASSES],
    }
}; STASHES];

/// A block and its pages, in a word; none is 0. Blocks are aligned to 64 bytes, and addresses have 48 bits.
#[derive(Clone, Copy)]
struct Kept(u64);

impl Kept {
    const PAGES: u64 = (1 << 16) - 1;
    /// jemalloc has looked through the thread's cache, and nobody had asked for the block.
    const OLD: u64 = 1 << 16;

    fn new(ptr: *mut c_void, pages: usize) -> Kept {
        Kept((ptr.expose_provenance() as u64) << 16 | pages as u64)
    }

    fn ptr(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut((self.0 >> 16) as usize & !(large::ALIGNMENT - 1))
    }

    fn pages(self) -> usize {
        (self.0 & Kept::PAGES) as usize
    }
}

/// The place of blocks of so many pages, from eight on.
#[inline(always)]
fn class(pages: usize) -> usize {
    let doublings = usize::BITS - 1 - (pages | 8).leading_zeros() - 3;
    (pages >> doublings) - 8 + 8 * doublings as usize
}

/// This thread's; `None`: it has none.
#[inline(always)]
fn held(thread: &Thread) -> Option<&'static Stash> {
    ALL.get(usize::from(thread.stash.get()).wrapping_sub(1))
}

/// A block of `pages` pages, or somewhat more; null: there is none.
#[inline(always)]
pub(crate) fn take(pages: usize) -> *mut c_void {
    let Some(stash) = held(thread::current()) else {
        return null_mut();
    };
    if pages > ROOM {
        return null_mut();
    }
    // Of the next class a block may be as near as of this.
    for place in stash.blocks.iter().skip(class(pages)).take(2) {
        let kept = Kept(place.load(Ordering::Relaxed));
        // Of none it is more than any.
        if kept.pages().wrapping_sub(pages) <= pages / MORE && clear(place, kept) {
            let left = stash
                .pages
                .load(Ordering::Relaxed)
                .saturating_sub(kept.pages() as u32);
            stash.pages.store(left, Ordering::Relaxed);
            return kept.ptr();
        }
    }
    null_mut()
}

/// Whether what was there is the caller's now.
fn clear(place: &AtomicU64, kept: Kept) -> bool {
    place
        .compare_exchange(kept.0, 0, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Keeps a block that has so many pages. False: there is no room for it.
#[inline(always)]
pub(crate) fn put(ptr: *mut c_void, pages: usize) -> bool {
    let thread = thread::current();
    if pages > ROOM {
        return false;
    }
    let Some(stash) = held(thread).or_else(|| hold(thread)) else {
        return false;
    };
    let sum = stash.pages.load(Ordering::Relaxed) as usize + pages;
    if sum > ROOM {
        return false;
    }
    let kept = Kept::new(ptr, pages);
    let Some(place) = stash.blocks.get(class(pages)) else {
        return false;
    };
    let is_kept = place.load(Ordering::Relaxed) == 0
        && place
            .compare_exchange(0, kept.0, Ordering::Release, Ordering::Relaxed)
            .is_ok();
    if is_kept {
        stash.pages.store(sum as u32, Ordering::Relaxed);
    }
    is_kept
}

/// One that no thread has, for this; `None`: there is none, or this thread ends.
#[cold]
#[inline(never)]
fn hold(thread: &Thread) -> Option<&'static Stash> {
    let wait = thread.stash_wait.get();
    if wait == NEVER {
        return None;
    }
    thread.stash_wait.set(wait.saturating_sub(1));
    if wait > 0 {
        return None;
    }
    for (number, stash) in (1..).zip(&ALL) {
        if !stash.is_held.load(Ordering::Relaxed) && !stash.is_held.swap(true, Ordering::Acquire) {
            if thread.stash.get() == 0 {
                thread.stash.set(number);
            } else {
                // A signal handler came between and has taken one.
                stash.is_held.store(false, Ordering::Release);
            }
            return held(thread);
        }
    }
    thread.stash_wait.set(PATIENCE);
    None
}

/// As jemalloc looks through this thread's cache: gives back what nobody asked for since it did twice, and the stash, when there is nothing in it.
pub(crate) fn look(thread: &Thread) {
    let Some(stash) = held(thread) else { return };
    let mut pages = 0;
    for place in &stash.blocks {
        let kept = Kept(place.load(Ordering::Relaxed));
        if kept.0 & Kept::OLD != 0 {
            give_back(place, kept);
        } else if kept.0 != 0 {
            let old = kept.0 | Kept::OLD;
            // Who came between has it.
            let _ = place.compare_exchange(kept.0, old, Ordering::Relaxed, Ordering::Relaxed);
            pages += kept.pages();
        }
    }
    stash.pages.store(pages as u32, Ordering::Relaxed);
    if pages == 0 {
        release(thread, stash);
    }
}

/// The end of a thread.
pub(crate) fn leave(thread: &Thread) {
    thread.stash_wait.set(NEVER);
    if let Some(stash) = held(thread) {
        empty(stash);
        release(thread, stash);
    }
}

/// Gives back what is in all of them.
pub(crate) fn empty_all() {
    ALL.iter().for_each(empty);
}

/// Bytes that they hold.
pub(crate) fn bytes() -> usize {
    let kept = ALL.iter().flat_map(|stash| &stash.blocks);
    kept.map(|place| Kept(place.load(Ordering::Relaxed)).pages() * PAGE)
        .sum()
}

/// In a forked child, where this thread is the only one. What others had is for whom takes theirs.
pub(crate) fn after_fork(thread: &Thread) {
    let own = thread.stash.get();
    for (number, stash) in (1..).zip(&ALL) {
        stash.is_held.store(number == own, Ordering::Relaxed);
    }
}

fn empty(stash: &Stash) {
    for place in &stash.blocks {
        give_back(place, Kept(place.load(Ordering::Relaxed)));
    }
    // Its thread may be writing another number just now: it will count, when jemalloc looks.
    stash.pages.store(0, Ordering::Relaxed);
}

fn release(thread: &Thread, stash: &Stash) {
    thread.stash.set(0);
    stash.pages.store(0, Ordering::Relaxed);
    stash.is_held.store(false, Ordering::Release);
}

fn give_back(place: &AtomicU64, kept: Kept) {
    if kept.0 != 0 && clear(place, kept) {
        // SAFETY: a block of jemalloc's that the program has freed, and that was nobody else's.
        unsafe { sys::free(kept.ptr()) };
    }
}
