//! The shutdown clock: when the end of the process began, and how long it may take.
//!
//! One thread ends the process. It begins the end, waits for the writer until the deadline, and
//! then continues. On a busy machine it moves the deadline ([`prolong`]). Other threads that would
//! sample meanwhile sleep in [`wait`].
//!
//! Not here: the functions that end a process.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::os::{clock, sys};
use crate::state::process;

/// `HEAPPROF_EXIT_WAIT_MS` in nanoseconds: the longest delay of the program's end, as far as the
/// writer has a processor (core's `Allowance`). Set at boot only.
static EXIT_WAIT_NS: AtomicU64 = AtomicU64::new(0);

/// Time at which the delay ends, by the monotonic clock; 0: the end has not begun.
static DEADLINE_NS: AtomicU64 = AtomicU64::new(0);

/// True once a thread has claimed the end. Only one thread does.
static IS_CLAIMED: AtomicBool = AtomicBool::new(false);

/// Time at which the ending thread stopped waiting for the writer, by the monotonic clock; 0: it
/// has not.
static WAIT_ENDED_NS: AtomicU64 = AtomicU64::new(0);

/// Time in which a process usually ends after the wait: destructors of libraries, and stdio's last
/// writes.
const GRACE_NS: u64 = 10_000_000;

/// The part of the delay that is reserved for the work after the wait: the thread must wake, and
/// the kernel frees our memory. Half as much again is reserved for the writer, which deletes a last
/// dump that it gives up. At most a fifth of a short delay is reserved.
const RESERVE_NS: u64 = 20_000_000;

fn reserve_ns() -> u64 {
    RESERVE_NS.min(exit_wait_ns() / 5)
}

/// At boot: sets the longest delay.
pub(crate) fn prepare(exit_wait_ns: u64) {
    EXIT_WAIT_NS.store(exit_wait_ns, Ordering::Relaxed);
}

/// Returns the longest delay of the program's end.
pub(crate) fn exit_wait_ns() -> u64 {
    EXIT_WAIT_NS.load(Ordering::Relaxed)
}

/// In a thread that ends the process: claims the end. Returns false if another thread has claimed
/// it.
pub(crate) fn claim() -> bool {
    !IS_CLAIMED.swap(true, Ordering::SeqCst)
}

/// Starts the clock. Returns the time until which the ending thread waits for the writer, by the
/// monotonic clock.
pub(crate) fn begin() -> u64 {
    let deadline = clock::now_ns() + exit_wait_ns();
    DEADLINE_NS.store(deadline, Ordering::Release);
    deadline - reserve_ns()
}

/// In the thread that ends the process: prolongs the delay, so that the thread can wait for the
/// writer until that time of the monotonic clock. The machine is busy.
pub(crate) fn prolong(until_ns: u64) {
    DEADLINE_NS.store(until_ns + reserve_ns(), Ordering::Release);
}

/// In the writer, which finishes: starts the clock if it does not run.
pub(crate) fn ensure_begun() {
    if DEADLINE_NS.load(Ordering::Acquire) == 0 {
        begin();
    }
}

/// In the ending thread: notes that its wait for the writer is over.
pub(crate) fn note_end_of_wait() {
    WAIT_ENDED_NS.store(clock::now_ns(), Ordering::Relaxed);
}

/// Returns true from the claim of the end until the wait for the writer is over.
pub(crate) fn is_in_progress() -> bool {
    IS_CLAIMED.load(Ordering::SeqCst) && WAIT_ENDED_NS.load(Ordering::Relaxed) == 0
}

/// In the writer: returns true if the program ends and too little time is left for work of
/// `takes_ns`.
pub(crate) fn is_too_late_for(takes_ns: u64) -> bool {
    let deadline = DEADLINE_NS.load(Ordering::Acquire);
    deadline != 0 && clock::now_ns() + takes_ns + reserve_ns() * 3 / 2 >= deadline
}

/// In a thread that would sample: if another thread ends the process, sleeps until that thread has
/// stopped waiting, and [`GRACE_NS`] longer. By then the process has usually ended.
///
/// Nothing wakes the sleepers: all of them would run, and compete with the ending thread for the
/// processors. The deadline bounds the sleep in any case.
#[cold]
pub(crate) fn wait() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    // Covers the time between the claim of the end and the start of the clock.
    let latest = clock::now_ns() + exit_wait_ns();
    while IS_CLAIMED.load(Ordering::Relaxed) && process::is_own() {
        let now = clock::now_ns();
        let deadline = match DEADLINE_NS.load(Ordering::Acquire) {
            0 => latest,
            deadline => deadline,
        };
        let ended = WAIT_ENDED_NS.load(Ordering::Relaxed);
        if now >= deadline || ended != 0 && now >= ended + GRACE_NS {
            break;
        }
        sys::futex_wait(&NEVER, 0, Some(GRACE_NS.min(deadline - now)));
    }
}

/// In a forked child: resets the clock, because the child has an end of its own.
pub(crate) fn after_fork() {
    IS_CLAIMED.store(false, Ordering::Relaxed);
    DEADLINE_NS.store(0, Ordering::Relaxed);
    WAIT_ENDED_NS.store(0, Ordering::Relaxed);
}
