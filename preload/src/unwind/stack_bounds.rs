//! The readable part of the stack that is being walked.
//!
//! Danger: reading memory whose extent nobody tells us. `pthread_getattr_np` would, but takes locks
//! and allocates, so it cannot be asked inside malloc.
//!
//! Model: a thread's own stack is one readable piece from its stack pointer up to an anchor: for the
//! main thread the vectors the kernel put there, for others the thread descriptor, which glibc
//! keeps at the top of each other thread's stack. Where that begins, the descriptor says, once our own thread has learnt in which words
//! ([`learn`]): a stack pointer below is on a foreign stack, and until then each is taken for one. Every page between is asked
//! before the first read whether it can be read (`sys::is_readable`); the answer holds for the life of the thread,
//! because nobody unmaps a piece of a stack in use. If the anchor is not reached, the thread
//! runs on a foreign stack (a signal stack, a coroutine), which may be gone tomorrow: there each page
//! is asked anew in each walk.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heapprof_core::Words;

use crate::arch::registers::{descriptor_word, thread_pointer};
use crate::os::sys;
use crate::state::thread::Thread;

const PAGE: u64 = 4096;

/// Pages between a stack pointer and its anchor beyond which we do not ask: 64 MiB at a time.
const PAGES_AT_A_TIME: u64 = 16384;

/// On a foreign stack, pages between what is known and a word of the next frame beyond which we do not ask: 1 MiB. Where a walk is led
/// astray, by a frame pointer that is none, the question would be for each page of somebody's pool, in every walk.
const PAGES_OF_A_FRAME: u64 = 256;

/// Address above all frames of the main thread; set at boot.
static MAIN_ANCHOR: AtomicU64 = AtomicU64::new(0);
/// Its thread descriptor, which is elsewhere: among the libraries, where what lies below it is anybody's, and may be unmapped.
static MAIN_DESCRIPTOR: AtomicU64 = AtomicU64::new(0);

/// At boot, in the main thread: remembers where its stack ends: `argv`, which the kernel puts above the first
/// frame.
pub(crate) fn remember_main(argv: u64) {
    MAIN_ANCHOR.store(argv, Ordering::Relaxed);
    MAIN_DESCRIPTOR.store(thread_pointer(), Ordering::Relaxed);
}

/// Where the descriptor of a thread has the lowest address of the memory that its stack is in, and in the next word how many bytes that is.
/// Or [`NOT_LOOKED_FOR`], or [`NOT_FOUND`].
static BLOCK_AT: AtomicUsize = AtomicUsize::new(NOT_LOOKED_FOR);
const NOT_LOOKED_FOR: usize = 0;
const NOT_FOUND: usize = usize::MAX;

/// How much of the descriptor is looked at. It has been longer since glibc 2.4; musl's is 200 bytes long.
const LOOKED_AT: usize = if cfg!(target_env = "musl") { 192 } else { 2048 };

/// Our own thread's stack is less than that, or nothing is learnt of it: it is how a length is told from an address.
const MOST_OF_OURS: u64 = 16 << 20;

/// In a thread of our own, whose stack glibc made: finds out where the descriptor says what memory that is. If not exactly one pair of words
/// can be that, it is not known.
pub(crate) fn learn() {
    let descriptor = thread_pointer();
    let local = 0u8;
    let sp = &raw const local as u64; // near enough
    let is_it = |&at: &usize| {
        let (start, len) = (word_of_descriptor(at), word_of_descriptor(at + 8));
        let is_whole_pages = start % PAGE == 0 && len % PAGE == 0;
        let holds = |address| start < address && address - start < len;
        is_whole_pages && len < MOST_OF_OURS && holds(sp) && holds(descriptor)
    };
    let mut found = (8..LOOKED_AT).step_by(8).filter(is_it);
    let at = match (found.next(), found.next()) {
        (Some(at), None) => at,
        _ => NOT_FOUND,
    };
    BLOCK_AT.store(at, Ordering::Relaxed);
}

/// What of a stack may be read.
pub(crate) struct Readable {
    /// First and last-plus-one readable address.
    low: u64,
    high: u64,
    /// On a foreign stack: nothing is known beyond `high`, but it may be asked.
    foreign: bool,
}

impl Readable {
    /// Around the stack pointer `sp` of this thread.
    #[inline(always)]
    pub(crate) fn around(thread: &Thread, sp: u64) -> Readable {
        let (low, high) = (thread.stack_low.get(), thread.stack_high.get());
        // Nearly always: within what was found readable before. No anchor lies between its ends but at the upper one. 0..0 at first.
        if (low..high).contains(&sp) {
            return Readable {
                low: sp,
                high,
                foreign: false,
            };
        }
        Readable::around_anew(thread, sp)
    }

    #[inline(never)]
    fn around_anew(thread: &Thread, sp: u64) -> Readable {
        let own = match own_block() {
            OwnBlock::Is(block) => block.contains(&sp).then_some(block.end),
            OwnBlock::NotYetKnown => None,
            OwnBlock::Unknown => anchor_above(sp),
        };
        // Asked also within its own block, which has a guard: a stack pointer that a signal interrupted may be in there.
        let own = own.filter(|&anchor| reaches(thread, sp, anchor));
        Readable {
            low: sp,
            high: own.unwrap_or(sp),
            foreign: own.is_none(),
        }
    }

    /// Whether `address` is in what is known of the stack.
    pub(crate) fn holds(&self, address: u64) -> bool {
        (self.low..self.high).contains(&address)
    }

    /// The word at `address`, if it is within the stack.
    #[inline(always)]
    pub(crate) fn word(&mut self, address: u64) -> Result<u64, ()> {
        if address < self.low || address >= self.high.saturating_sub(7) {
            self.extend(address)?;
        }
        // SAFETY: eight bytes from `address` lie within low..high, and every page of that range was found readable: of this thread's own
        // stack between its stack pointer and its anchor, which stays; or of the foreign stack that it is running on, during this walk.
        // What lies above such a stack may be another thread's, which can unmap it in the moment between the question and the load: a
        // walk comes there only where it was led astray, and no more than `PAGES_OF_A_FRAME` at a time. Unaligned, because a wrong
        // unwind table may name any address.
        Ok(unsafe { (address as *const u64).read_unaligned() })
    }

    /// [`word`](Self::word) for many words, of which nearly all lie in what is known to be readable now.
    #[inline(always)]
    pub(crate) fn words(&mut self) -> impl FnMut(u64) -> Option<u64> + '_ {
        let low = self.low;
        let length = self.high.saturating_sub(7).saturating_sub(low);
        move |address| {
            if address.wrapping_sub(low) >= length {
                return self.word(address).ok();
            }
            // SAFETY: as in `word`; what is readable only grows.
            Some(unsafe { (address as *const u64).read_unaligned() })
        }
    }

    /// Whether it is this thread's own, of which all that may be read is known.
    pub(crate) fn is_own(&self) -> bool {
        !self.foreign
    }

    /// Whether all these words are in what is known to be readable now, and have their values.
    #[inline(always)]
    pub(crate) fn hold(&self, words: Words<'_>) -> bool {
        if words.start < self.low || words.end > self.high {
            return false;
        }
        // All of them, and not up to the first that does not: mostly they do, and so there is one branch.
        let mut differences = 0;
        for word in words.words {
            // SAFETY: as in `word`: all of the list's bytes are from `start` to `end` (`Words`), and so in low..high.
            let value = unsafe { (word.at as *const u64).read_unaligned() };
            differences |= value ^ word.value;
        }
        differences == 0
    }

    /// Asks the kernel about the pages of a foreign stack up to `address`.
    #[cold]
    fn extend(&mut self, address: u64) -> Result<(), ()> {
        if !self.foreign || address < self.low {
            return Err(());
        }
        let wanted = address.checked_add(8).ok_or(())?;
        if wanted - self.high > PAGES_OF_A_FRAME * PAGE {
            return Err(());
        }
        while self.high < wanted {
            if !sys::is_readable(self.high & !7) {
                return Err(());
            }
            self.high = (self.high & !(PAGE - 1)) + PAGE;
        }
        Ok(())
    }
}

/// The word of this thread's descriptor at `at`, below [`LOOKED_AT`].
#[inline(always)]
fn word_of_descriptor(at: usize) -> u64 {
    // SAFETY: within this thread's descriptor.
    unsafe { descriptor_word(at) }
}

/// Whether this is the main thread.
fn is_main(descriptor: u64) -> bool {
    descriptor == MAIN_DESCRIPTOR.load(Ordering::Relaxed)
}

/// From where on this thread's own stack may be, up to its descriptor.
enum OwnBlock {
    Is(Range<u64>),
    /// Our own thread has not run yet: what is remembered of this one now, it would have for life.
    NotYetKnown,
    Unknown,
}

fn own_block() -> OwnBlock {
    let descriptor = thread_pointer();
    if is_main(descriptor) {
        return OwnBlock::Unknown;
    }
    let at = match BLOCK_AT.load(Ordering::Relaxed) {
        NOT_LOOKED_FOR => return OwnBlock::NotYetKnown,
        NOT_FOUND => return OwnBlock::Unknown,
        at => at,
    };
    let (start, len) = (word_of_descriptor(at), word_of_descriptor(at + 8));
    if start > 0 && start < descriptor && descriptor - start < len {
        OwnBlock::Is(start..descriptor)
    } else {
        OwnBlock::Unknown
    }
}

/// This thread's anchor, if it lies above `sp`.
fn anchor_above(sp: u64) -> Option<u64> {
    let descriptor = thread_pointer();
    let anchor = match is_main(descriptor) {
        true => MAIN_ANCHOR.load(Ordering::Relaxed),
        false => descriptor,
    };
    (anchor > sp).then_some(anchor)
}

/// Whether both stack pointers, the lower one first, are on this thread's own stack.
pub(crate) fn is_own(thread: &Thread, low: u64, high: u64) -> bool {
    let anchor = match own_block() {
        OwnBlock::Is(block) => block.contains(&low).then_some(block.end),
        OwnBlock::NotYetKnown => None,
        OwnBlock::Unknown => anchor_above(low),
    };
    anchor.is_some_and(|anchor| high < anchor && reaches(thread, low, anchor))
}

/// Whether all between `sp` and `anchor` can be read. Remembers the answer in the thread.
fn reaches(thread: &Thread, sp: u64, anchor: u64) -> bool {
    let known = thread.stack_low.get();
    if thread.stack_high.get() == anchor && sp >= known && known != 0 {
        return true;
    }
    // From here up to what is known already, or to the anchor.
    let end = if thread.stack_high.get() == anchor && known != 0 {
        known
    } else {
        anchor
    };
    let first = sp & !(PAGE - 1);
    if end.saturating_sub(first) > PAGES_AT_A_TIME * PAGE {
        return false;
    }
    // What is below a hole stays foreign as long as that is there: a question for each page of a pool of other stacks would be
    // thousands, in every walk.
    let hole = thread.stack_hole.get();
    if (first..end).contains(&hole) && !sys::is_readable(hole) {
        return false;
    }
    let mut page = first;
    while page < end {
        if !sys::is_readable(page) {
            // The uppermost tells most.
            if page > hole || hole >= anchor {
                thread.stack_hole.set(page);
            }
            return false;
        }
        page += PAGE;
    }
    thread.stack_low.set(first);
    thread.stack_high.set(anchor);
    true
}
