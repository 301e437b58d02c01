//! Abandoned hook: a hook that a signal handler of the program left by a non-local jump
//! (`siglongjmp`).
//!
//! Language runtimes jump out of a handler when a stack overflows, and programs jump out of timers.
//! Such a hook never continues, and its thread would count as inside it for ever.
//!
//! Danger: an interrupted hook must not be taken for an abandoned one. A handler on the thread's
//! own stack runs below the hook that it interrupted, and below the signal frame that the kernel
//! puts between the two. So a call from above that frame, on the same stack, comes after the hook.
//! An alternate signal stack may lie anywhere, even in a frame of the program. The kernel tells if
//! a thread is on one.
//!
//! The work of the abandoned hook is not repaired. Its seat stays taken for ever, because its walk
//! and its lane may be half changed.

use crate::arch::registers::stack_pointer;
use crate::arch::signal_frame;
use crate::os::seccomp::AvoidableCall;
use crate::os::sys;
use crate::recording::request_word::{self, SEATS};
use crate::recording::seats;
use crate::state::counters;
use crate::state::thread::{Entered, RunningCode, Thread};
use crate::unwind::stack_bounds;

impl Thread {
    /// Begins a section of our own code. Returns `None` if this thread is in such a section
    /// already.
    #[inline]
    pub(crate) fn enter(&'static self) -> Option<Entered> {
        let sp = stack_pointer();
        if self.running_code.get() != RunningCode::Program && !is_abandoned(self, sp) {
            return None;
        }
        self.entered_at.set(sp);
        self.running_code.set(RunningCode::Hook);
        Some(Entered { thread: self })
    }
}

/// Returns true if the hook that this thread is inside was abandoned. `sp` is the stack pointer
/// now. An abandoned hook is counted, and its thread may enter another one.
#[cold]
#[inline(never)]
pub(crate) fn is_abandoned(thread: &Thread, sp: u64) -> bool {
    let was = thread.entered_at.get();
    let is_abandoned = thread.running_code.get() == RunningCode::Hook
        // First: the rest costs a system call in every malloc from then on.
        && seats::may_retire_one()
        && sp > was.saturating_sub(signal_frame::LEAST_BYTES)
        && stack_bounds::is_own(thread, was.min(sp), was.max(sp))
        && AvoidableCall::SignalStackCheck.is_allowed()
        && !sys::is_on_signal_stack()
        && seats::retire_one();
    if is_abandoned {
        counters::LOST_LEFT.add(1);
        // Another seat is needed, and the writer may be asleep.
        request_word::post(SEATS);
    }
    is_abandoned
}
