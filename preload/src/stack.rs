//! The readable part of the stack that is being walked.
//!
//! Danger: reading memory whose extent nobody tells us. `pthread_getattr_np` would, but takes locks
//! and allocates, so it cannot be asked inside malloc.
//!
//! Model: a thread's own stack is one readable piece from its stack pointer up to an anchor: for the
//! main thread the vectors the kernel put there, for others the thread descriptor, which glibc
//! keeps at the top of each thread's stack. Before the first read, every page between is asked
//! once whether it can be read (`sys::readable`); the answer holds for the life of the thread,
//! because nobody unmaps a piece of a stack in use. If the anchor is not reached, the thread
//! runs on a foreign stack (a signal stack, a coroutine), which may be gone tomorrow: there each page
//! is asked anew in each walk.

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys;
use crate::tls::Thread;

const PAGE: u64 = 4096;

/// Pages between a stack pointer and its anchor beyond which we do not ask: 64 MiB at a time.
const PAGES_AT_A_TIME: u64 = 16384;

/// Address above all frames of the main thread; set at boot.
static MAIN_ANCHOR: AtomicU64 = AtomicU64::new(0);

/// Remembers where the main thread's stack ends: `argv`, which the kernel puts above the first
/// frame.
pub(crate) fn remember_main(argv: u64) {
    MAIN_ANCHOR.store(argv, Ordering::Relaxed);
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
        if let Some(anchor) = anchor_above(sp)
            && reaches(thread, sp, anchor)
        {
            return Readable {
                low: sp,
                high: anchor,
                foreign: false,
            };
        }
        Readable {
            low: sp,
            high: sp,
            foreign: true,
        }
    }

    /// The word at `address`, if it is within the stack.
    #[inline(always)]
    pub(crate) fn word(&mut self, address: u64) -> Result<u64, ()> {
        if address < self.low || address >= self.high.saturating_sub(7) {
            self.extend(address)?;
        }
        // SAFETY: eight bytes from `address` lie within low..high, and every page of that range was
        // found readable: of this thread's own stack between its stack pointer and its anchor, or of
        // the foreign stack it is running on, during this walk. Unaligned, because a wrong unwind
        // table may name any address.
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

    /// Asks the kernel about the pages of a foreign stack up to `address`.
    #[cold]
    fn extend(&mut self, address: u64) -> Result<(), ()> {
        if !self.foreign || address < self.low {
            return Err(());
        }
        let wanted = address.checked_add(8).ok_or(())?;
        if wanted - self.high > PAGES_AT_A_TIME * PAGE {
            return Err(());
        }
        while self.high < wanted {
            if !sys::readable(self.high & !7) {
                return Err(());
            }
            self.high = (self.high & !(PAGE - 1)) + PAGE;
        }
        Ok(())
    }
}

/// The nearer of the two anchors that lies above `sp`.
fn anchor_above(sp: u64) -> Option<u64> {
    let descriptor: u64;
    // SAFETY: the x86-64 ABI keeps the thread descriptor's own address in its first word.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) descriptor, options(pure, readonly, nostack));
    }
    [descriptor, MAIN_ANCHOR.load(Ordering::Relaxed)]
        .into_iter()
        .filter(|&anchor| anchor > sp)
        .min()
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
    let mut page = first;
    while page < end {
        if !sys::readable(page) {
            return false;
        }
        page += PAGE;
    }
    thread.stack_low.set(first);
    thread.stack_high.set(anchor);
    true
}
