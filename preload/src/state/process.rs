//! The identity of this process: its process id, its generation, and whether it has forked.
//!
//! A copy of the process may run our code before it is prepared. Such copies are a child of `vfork`
//! in its parent's memory, a child of `fork` before our handler, and any child of `_Fork`. Such a
//! copy has the parent's [`PID`], and a process id of its own.
//!
//! Not here: the fork handlers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::os::sys;
use crate::state::thread::Thread;

/// Id of the process that our state belongs to; 0: no process, so nothing is recorded.
static PID: AtomicU32 = AtomicU32::new(0);

/// True once boot has finished. A copy of the process must then reset our state.
static BOOTED: AtomicBool = AtomicBool::new(false);

/// True if this process has forked. Its children name its log as their parent log.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// Number that distinguishes this process from the process that forked it. A thread's sampler
/// belongs to one generation.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// At boot, after all other preparations: stores the process id.
pub(crate) fn register() {
    PID.store(sys::getpid(), Ordering::Release);
    BOOTED.store(true, Ordering::Release);
}

/// Returns true once boot has finished.
pub(crate) fn has_booted() -> bool {
    BOOTED.load(Ordering::Acquire)
}

/// Returns true if our state belongs to this process. Returns false in a `vfork` child, which
/// borrows the state of its parent.
#[cold]
#[inline(never)]
pub(crate) fn is_own() -> bool {
    PID.load(Ordering::Acquire) == sys::getpid()
}

/// Returns true in a forked child before our handler has run in it. Handlers that were registered
/// earlier, past our library, run first. The session in force is then still the parent's.
#[inline]
pub(crate) fn is_unprepared_child(thread: &Thread) -> bool {
    thread.is_forking.get() && !is_own()
}

/// Returns true if this process has forked.
pub(crate) fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// In a process that is about to fork: notes the fork.
pub(crate) fn will_fork() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}

/// Returns the generation of this process.
#[inline(always)]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Before another recording in this process: makes the allocation axis of every thread begin anew.
#[cfg(feature = "attach")]
pub(crate) fn renew() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// In a forked child with id `pid` (0: record nothing in it): begins a new generation. Returns the
/// parent's process id.
pub(crate) fn after_fork(pid: u32) -> u32 {
    HAS_FORKED.store(false, Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    PID.swap(pid, Ordering::AcqRel)
}
