//! Stack bounds: the readable part of the stack that is being walked.
//!
//! Danger: reads of memory whose extent is not documented. `pthread_getattr_np` tells it, but takes
//! locks and allocates, so it is not callable inside malloc.
//!
//! Model: a thread's own stack is one readable range, from its stack pointer up to an anchor. For
//! the main thread, the anchor is the vectors that the kernel put there. For other threads it is
//! the thread descriptor, which glibc keeps at the top of their stacks. The descriptor also
//! contains the stack's lowest address; our own thread learns in which word ([`learn`]). A stack
//! pointer below that address is on a foreign stack. Until the word is known, each stack counts as
//! foreign.
//!
//! Each page of the range is checked before the first read (`sys::is_readable`). The result holds
//! for the life of the thread, because a stack in use is never unmapped. If the anchor is not
//! reachable, the thread runs on a foreign stack (a signal stack, a coroutine), which may be
//! unmapped later. Its pages are checked again in each walk.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heapprof_core::Words;

use crate::arch::registers::{descriptor_word, thread_pointer};
use crate::os::sys::{self, PAGE};
use crate::state::thread::Thread;

/// Most pages between a stack pointer and its anchor that are checked at once.
const PAGES_AT_A_TIME: u64 = 16384;

/// On a foreign stack, most pages that are checked between the known part and a word of the next
/// frame. A walk that follows a wrong frame pointer would otherwise check every page of a memory
/// pool, each time.
const PAGES_OF_A_FRAME: u64 = 256;

/// Address above all frames of the main thread; set at boot.
static MAIN_ANCHOR: AtomicU64 = AtomicU64::new(0);
/// The main thread's descriptor. It is not on the stack but among the libraries, where the memory
/// below it is foreign and may be unmapped.
static MAIN_DESCRIPTOR: AtomicU64 = AtomicU64::new(0);

/// At boot, in the main thread: remembers the end of its stack. That is `argv`, which the kernel
/// puts above the first frame.
pub(crate) fn remember_main(argv: u64) {
    MAIN_ANCHOR.store(argv, Ordering::Relaxed);
    MAIN_DESCRIPTOR.store(thread_pointer(), Ordering::Relaxed);
}

/// In a running process: remembers the end of the main thread's stack, and that thread's pointer.
#[cfg(feature = "attach")]
pub(crate) fn remember_main_thread(argv: u64, pointer: u64) {
    MAIN_ANCHOR.store(argv, Ordering::Relaxed);
    MAIN_DESCRIPTOR.store(pointer, Ordering::Relaxed);
}

/// Offset in a thread's descriptor of the lowest address of the stack's memory; the next word is
/// the length in bytes. Or [`NOT_SEARCHED`], or [`NOT_FOUND`].
static BLOCK_AT: AtomicUsize = AtomicUsize::new(NOT_SEARCHED);
const NOT_SEARCHED: usize = 0;
const NOT_FOUND: usize = usize::MAX;

/// Number of the descriptor's bytes that are searched. glibc's descriptor is longer; musl's is 200
/// bytes long.
const DESCRIPTOR_BYTES: usize = if cfg!(target_env = "musl") { 192 } else { 2048 };

/// Upper limit of our own thread's stack size, which distinguishes a length from an address. If the
/// stack is larger, nothing is learnt.
const MAX_OWN_STACK: u64 = 16 << 20;

/// In a thread of our own, on a stack that glibc made: finds the words of the descriptor that
/// contain the stack's memory. If not exactly one pair of words matches, the offset stays unknown.
pub(crate) fn learn() {
    let descriptor = thread_pointer();
    let local = 0u8;
    let sp = &raw const local as u64; // close enough
    let is_it = |&at: &usize| {
        let (start, len) = (word_of_descriptor(at), word_of_descriptor(at + 8));
        let is_whole_pages = start % PAGE == 0 && len % PAGE == 0;
        let holds = |address| start < address && address - start < len;
        is_whole_pages && len < MAX_OWN_STACK && holds(sp) && holds(descriptor)
    };
    let mut found = (8..DESCRIPTOR_BYTES).step_by(8).filter(is_it);
    let at = match (found.next(), found.next()) {
        (Some(at), None) => at,
        _ => NOT_FOUND,
    };
    BLOCK_AT.store(at, Ordering::Relaxed);
}

/// Returns the offset in a thread's descriptor of the lowest address of the stack's memory, if it
/// is known. The next word is the length.
pub(crate) fn block_of_descriptor() -> Option<u64> {
    match BLOCK_AT.load(Ordering::Relaxed) {
        NOT_SEARCHED | NOT_FOUND => None,
        at => Some(at as u64),
    }
}

/// The part of a stack that may be read.
pub(crate) struct ReadableStack {
    /// The first readable address, and the end of the readable range.
    low: u64,
    high: u64,
    /// On a foreign stack: nothing is known beyond `high`, but further pages can be checked.
    foreign: bool,
}

impl ReadableStack {
    /// Returns the readable part around the stack pointer `sp` of this thread.
    #[inline(always)]
    pub(crate) fn around(thread: &Thread, sp: u64) -> ReadableStack {
        let (low, high) = (thread.stack_low.get(), thread.stack_high.get());
        // The frequent case: `sp` is within the range that is known to be readable. No anchor lies
        // inside that range, only at its upper end. Initially the range is 0..0.
        if (low..high).contains(&sp) {
            return ReadableStack {
                low: sp,
                high,
                foreign: false,
            };
        }
        ReadableStack::find_bounds(thread, sp)
    }

    #[inline(never)]
    fn find_bounds(thread: &Thread, sp: u64) -> ReadableStack {
        let own = match own_block() {
            OwnBlock::Known(block) => block.contains(&sp).then_some(block.end),
            OwnBlock::Pending => None,
            OwnBlock::Unknown => anchor_above(sp),
        };
        // The pages are checked within the thread's own block, too, because it has a guard page.
        // The stack pointer of interrupted code may be in there.
        let own = own.filter(|&anchor| is_readable_up_to(thread, sp, anchor));
        ReadableStack {
            low: sp,
            high: own.unwrap_or(sp),
            foreign: own.is_none(),
        }
    }

    /// Returns true if `address` is in the known part of the stack.
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.low..self.high).contains(&address)
    }

    /// Returns the word at `address`, if it is within the stack.
    #[inline(always)]
    pub(crate) fn word(&mut self, address: u64) -> Result<u64, ()> {
        if address < self.low || address >= self.high.saturating_sub(7) {
            self.extend(address)?;
        }
        // SAFETY: eight bytes from `address` lie within low..high, and every page of that range is
        // readable. It is this thread's own stack between its stack pointer and its anchor,
        // which stays mapped. Or it is the foreign stack that the thread runs on during this walk.
        // Memory above a foreign stack may belong to another thread, which can unmap it between the
        // check and the load. A walk reads there only if it follows wrong data, and at most
        // `PAGES_OF_A_FRAME` at a time. The load is unaligned, because a wrong unwind table may
        // give any address.
        Ok(unsafe { (address as *const u64).read_unaligned() })
    }

    /// Returns a function like [`word`](Self::word) for many words, nearly all of which lie in the
    /// part that is known to be readable now.
    #[inline(always)]
    pub(crate) fn words(&mut self) -> impl FnMut(u64) -> Option<u64> + '_ {
        let low = self.low;
        let length = self.high.saturating_sub(7).saturating_sub(low);
        move |address| {
            if address.wrapping_sub(low) >= length {
                return self.word(address).ok();
            }
            // SAFETY: the argument of `word`; the readable part only grows.
            Some(unsafe { (address as *const u64).read_unaligned() })
        }
    }

    /// Returns true if this is the thread's own stack, whose readable part is completely known.
    pub(crate) fn is_own(&self) -> bool {
        !self.foreign
    }

    /// Returns true if all these words lie in the part that is known to be readable now, and have
    /// their values.
    #[inline(always)]
    pub(crate) fn match_all(&self, words: Words<'_>) -> bool {
        if words.start < self.low || words.end > self.high {
            return false;
        }
        // Compares all words, and does not stop at the first difference: mostly there is none, so
        // one branch suffices.
        let mut differences = 0;
        for word in words.words {
            // SAFETY: the argument of `word`; all bytes of the list lie between `start` and `end`
            // (`Words`), and so in low..high.
            let value = unsafe { (word.at as *const u64).read_unaligned() };
            differences |= value ^ word.value;
        }
        differences == 0
    }

    /// Checks the pages of a foreign stack up to `address`.
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

/// Returns the word of this thread's descriptor at `at`, below [`DESCRIPTOR_BYTES`].
#[inline(always)]
fn word_of_descriptor(at: usize) -> u64 {
    // SAFETY: within this thread's descriptor.
    unsafe { descriptor_word(at) }
}

/// Returns true if the descriptor is the main thread's.
fn is_main(descriptor: u64) -> bool {
    descriptor == MAIN_DESCRIPTOR.load(Ordering::Relaxed)
}

/// The memory of this thread's own stack, up to its descriptor.
enum OwnBlock {
    Known(Range<u64>),
    /// Our own thread has not run yet. A result that is stored in this thread now would stay for
    /// its life.
    Pending,
    Unknown,
}

fn own_block() -> OwnBlock {
    let descriptor = thread_pointer();
    if is_main(descriptor) {
        return OwnBlock::Unknown;
    }
    let at = match BLOCK_AT.load(Ordering::Relaxed) {
        NOT_SEARCHED => return OwnBlock::Pending,
        NOT_FOUND => return OwnBlock::Unknown,
        at => at,
    };
    let (start, len) = (word_of_descriptor(at), word_of_descriptor(at + 8));
    if start > 0 && start < descriptor && descriptor - start < len {
        OwnBlock::Known(start..descriptor)
    } else {
        OwnBlock::Unknown
    }
}

/// Returns this thread's anchor, if it lies above `sp`.
fn anchor_above(sp: u64) -> Option<u64> {
    let descriptor = thread_pointer();
    let anchor = match is_main(descriptor) {
        true => MAIN_ANCHOR.load(Ordering::Relaxed),
        false => descriptor,
    };
    (anchor > sp).then_some(anchor)
}

/// Returns true if both stack pointers, the lower one first, are on this thread's own stack.
pub(crate) fn is_own(thread: &Thread, low: u64, high: u64) -> bool {
    let anchor = match own_block() {
        OwnBlock::Known(block) => block.contains(&low).then_some(block.end),
        OwnBlock::Pending => None,
        OwnBlock::Unknown => anchor_above(low),
    };
    anchor.is_some_and(|anchor| high < anchor && is_readable_up_to(thread, low, anchor))
}

/// Returns true if all memory between `sp` and `anchor` is readable. Stores a positive result in
/// the thread.
fn is_readable_up_to(thread: &Thread, sp: u64, anchor: u64) -> bool {
    let known = thread.stack_low.get();
    if thread.stack_high.get() == anchor && sp >= known && known != 0 {
        return true;
    }
    // Checks from the stack pointer up to the known part, or to the anchor.
    let end = if thread.stack_high.get() == anchor && known != 0 {
        known
    } else {
        anchor
    };
    let first = sp & !(PAGE - 1);
    if end.saturating_sub(first) > PAGES_AT_A_TIME * PAGE {
        return false;
    }
    // A stack below a hole counts as foreign while the hole exists. Otherwise each walk would check
    // thousands of pages of a pool of other stacks.
    let hole = thread.stack_hole.get();
    if (first..end).contains(&hole) && !sys::is_readable(hole) {
        return false;
    }
    let mut page = first;
    while page < end {
        if !sys::is_readable(page) {
            // The uppermost hole excludes the most stack pointers.
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
