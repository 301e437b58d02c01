//! The identity of this process: its number, its generation, and whether it has forked.
//!
//! A copy of the process may run our code before it has prepared itself: a child of `vfork` in its
//! parent's memory, a child of `fork` before our handler, a child of `_Fork` for ever. Those have
//! the parent's [`PID`] and their own number.
//! Not here: the fork handlers (`host/fork.rs`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::os::sys;
use crate::state::thread::Thread;

/// The process that our state belongs to; 0: none, so that nothing is recorded.
static PID: AtomicU32 = AtomicU32::new(0);

/// Whether boot has finished: a copy of the process has state of ours to renew.
static BOOTED: AtomicBool = AtomicBool::new(false);

/// Whether this process has forked: its children name its log as their parent's.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// Tells this process from the one that it was forked from. A thread's sampler belongs to one
/// generation.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// At boot, when all else is ready.
pub(crate) fn register() {
    PID.store(sys::getpid(), Ordering::Release);
    BOOTED.store(true, Ordering::Release);
}

/// Returns true once boot has finished.
pub(crate) fn has_booted() -> bool {
    BOOTED.load(Ordering::Acquire)
}

/// Returns true if our state belongs to this process, and not to the parent of a `vfork` child that
/// borrows it.
#[cold]
#[inline(never)]
pub(crate) fn is_own() -> bool {
    PID.load(Ordering::Acquire) == sys::getpid()
}

/// Returns true in a forked child before our handler has run in it: a handler that was registered
/// earlier, past us, runs first. The session in force is still the parent's.
#[inline]
pub(crate) fn is_unprepared_child(thread: &Thread) -> bool {
    thread.forking.get() && !is_own()
}

/// Returns true if this process has forked.
pub(crate) fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// In a process that is about to fork.
pub(crate) fn will_fork() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}

/// Returns the generation of this process.
#[inline(always)]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// In a forked child, whose number is `pid` (0: nothing is recorded in it). Returns that of its
/// parent.
pub(crate) fn after_fork(pid: u32) -> u32 {
    HAS_FORKED.store(false, Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    PID.swap(pid, Ordering::AcqRel)
}
