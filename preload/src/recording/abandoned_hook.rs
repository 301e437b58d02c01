//! A hook that was left: a signal handler of the program's has jumped out of it (`siglongjmp`), as language runtimes do when a stack
//! overflows, and as people do with timers. It will never go on, and its thread would stay inside it for ever.
//!
//! Danger: what was only interrupted must not be taken for left. A handler that runs on the thread's own stack runs below the hook that it
//! interrupted, and below what the kernel puts between the two. So whoever comes from above that, on the same stack, comes after it; but a
//! handler's own stack may lie anywhere, also in a frame of the program's, and whether we are on one the kernel says.
//!
//! What it was at is not repaired: its seat is nobody's from then on, with a walk and a lane in the middle of something.

use crate::arch::registers::stack_pointer;
use crate::arch::signal_frame;
use crate::os::seccomp::Spared;
use crate::os::sys;
use crate::recording::request_word::{self, SEATS};
use crate::recording::seats;
use crate::state::counters;
use crate::state::thread::{Entered, Inside, Thread};
use crate::unwind::stack_bounds;

impl Thread {
    /// Begins a piece of our own code, unless this thread is in one already.
    #[inline]
    pub(crate) fn enter(&'static self) -> Option<Entered> {
        let sp = stack_pointer();
        if self.inside.get() != Inside::No && !is_left(self, sp) {
            return None;
        }
        self.entered_at.set(sp);
        self.inside.set(Inside::Hook);
        Some(Entered { thread: self })
    }
}

/// Whether the hook that this thread is inside of was left: the stack pointer is `sp` now. Then it is counted, and another may begin.
#[cold]
#[inline(never)]
pub(crate) fn is_left(thread: &Thread, sp: u64) -> bool {
    let was = thread.entered_at.get();
    let is_left = thread.inside.get() == Inside::Hook
        && seats::may_ever_lose_one() // first: what follows costs a system call at every malloc from then on
        && sp > was.saturating_sub(signal_frame::LEAST_BYTES)
        && stack_bounds::is_own(thread, was.min(sp), was.max(sp))
        && Spared::SignalStackAsked.is_allowed()
        && !sys::is_on_signal_stack()
        && seats::may_lose_one();
    if is_left {
        counters::LOST_LEFT.add(1);
        request_word::post(SEATS); // another seat is needed, and the writer may be asleep
    }
    is_left
}
