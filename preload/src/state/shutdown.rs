//! The shutdown clock: when the process's end began, and how long it may take.
//!
//! One thread ends the process. It begins the end, waits for the writer until [`writer_deadline_ns`]
//! and goes on. Other threads that would sample meanwhile sleep in [`wait`].
//! Not here: the ways out of a process (`host/exit.rs`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::os::{clock, sys};
use crate::state::process;

/// `HEAPPROF_EXIT_WAIT_MS` in nanoseconds: the longest delay of the program's end. Moved at boot
/// only.
static PATIENCE_NS: AtomicU64 = AtomicU64::new(0);

/// When the patience ends, by the monotonic clock; 0: the end has not begun.
static DEADLINE_NS: AtomicU64 = AtomicU64::new(0);

/// Whether a thread has taken the end upon itself: only one does.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// When the thread that ends the process went on from waiting, by the monotonic clock; 0: it has
/// not.
static GONE_ON_NS: AtomicU64 = AtomicU64::new(0);

/// In which a process ends as a rule, once that thread goes on: destructors of libraries, the last
/// of stdio.
const MOMENT_NS: u64 = 10_000_000;

/// The part of the patience that is kept for what follows the wait: the thread has to be woken, and
/// the kernel frees our memory, 12 MB in a millisecond. Half as much again is kept for the writer,
/// which deletes a last dump that it gives up. Of a short patience at most a fifth is kept.
const RESERVE_NS: u64 = 20_000_000;

fn reserve_ns() -> u64 {
    RESERVE_NS.min(patience_ns() / 5)
}

/// At boot.
pub(crate) fn prepare(patience_ns: u64) {
    PATIENCE_NS.store(patience_ns, Ordering::Relaxed);
}

/// Returns the longest delay of the program's end.
pub(crate) fn patience_ns() -> u64 {
    PATIENCE_NS.load(Ordering::Relaxed)
}

/// In a thread that ends the process: returns true if the end is this thread's to make, false if
/// another has taken it.
pub(crate) fn take() -> bool {
    !IS_TAKEN.swap(true, Ordering::SeqCst)
}

/// Starts the clock. Returns until when the thread that ends the process waits for the writer, by
/// the monotonic clock.
pub(crate) fn begin() -> u64 {
    let deadline = clock::now_ns() + patience_ns();
    DEADLINE_NS.store(deadline, Ordering::Release);
    deadline - reserve_ns()
}

/// For the writer, which finishes: starts the clock, if it does not run.
pub(crate) fn begin_unless_begun() {
    if DEADLINE_NS.load(Ordering::Acquire) == 0 {
        begin();
    }
}

/// In the thread that ends the process: it goes on from here.
pub(crate) fn has_gone_on() {
    GONE_ON_NS.store(clock::now_ns(), Ordering::Relaxed);
}

/// Returns true while another thread is at the end, or this one is.
pub(crate) fn is_under_way() -> bool {
    IS_TAKEN.load(Ordering::SeqCst) && GONE_ON_NS.load(Ordering::Relaxed) == 0
}

/// For the writer: returns true if the program ends and work of `takes_ns` no longer fits.
pub(crate) fn forbids(takes_ns: u64) -> bool {
    let deadline = DEADLINE_NS.load(Ordering::Acquire);
    deadline != 0 && clock::now_ns() + takes_ns + reserve_ns() * 3 / 2 >= deadline
}

/// For a thread that would sample: if another ends the process, sleeps until that one has gone on,
/// and a moment longer, since as a rule the process has no more to do then. It is not woken: all
/// sleepers would be, and share the processors with the thread that ends the process once more. The
/// deadline bounds the sleep in any case.
#[cold]
pub(crate) fn wait() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    // For the moment in which the end is taken and the clock does not run yet.
    let latest = clock::now_ns() + patience_ns();
    while IS_TAKEN.load(Ordering::Relaxed) && process::is_own() {
        let now = clock::now_ns();
        let deadline = match DEADLINE_NS.load(Ordering::Acquire) {
            0 => latest,
            deadline => deadline,
        };
        let gone = GONE_ON_NS.load(Ordering::Relaxed);
        if now >= deadline || gone != 0 && now >= gone + MOMENT_NS {
            break;
        }
        sys::futex_wait(&NEVER, 0, Some(MOMENT_NS.min(deadline - now)));
    }
}

/// In a forked child: it has an end of its own.
pub(crate) fn after_fork() {
    IS_TAKEN.store(false, Ordering::Relaxed);
    DEADLINE_NS.store(0, Ordering::Relaxed);
    GONE_ON_NS.store(0, Ordering::Relaxed);
}
