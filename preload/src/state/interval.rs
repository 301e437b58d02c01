//! What is in force: whether anything is recorded, and at which interval.
//!
//! ```text
//!  asked for (settings, API, ctl) ─┐
//!  raised by the budget ───────────┼─> in force ─> hook: each thread follows at its next question
//!  running or stopped ─────────────┘
//! ```
//!
//! Any thread may change it at any time; the last of several changes at once decides what is in force.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::state::settings::{MAX_INTERVAL, Settings};

static RUNNING: AtomicBool = AtomicBool::new(true);
/// Mean interval that was asked for, in bytes.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// What the budget demands, in bytes; 0: nothing.
static RAISED: AtomicU64 = AtomicU64::new(0);
/// What the three make together, for hooks: mean interval in bytes; 0: sampling is stopped.
static IN_FORCE: AtomicU64 = AtomicU64::new(0);
/// Blocks of at least so many bytes are all recorded; 0: none for its size. Moved at boot only.
static RECORD_OVER: AtomicU64 = AtomicU64::new(0);

/// Returns the mean interval in bytes by which hooks sample; 0: sampling is stopped. A thread goes
/// over to a new one at its next question, which is never far away (`heapprof_core::Regime`).
#[inline]
pub(crate) fn of_hooks() -> u64 {
    IN_FORCE.load(Ordering::Acquire)
}

/// Returns from how many bytes on every block is recorded; 0: none for its size.
#[inline]
pub(crate) fn record_over() -> u64 {
    RECORD_OVER.load(Ordering::Relaxed)
}

/// Returns true if everything is recorded: then hooks wait for room.
#[inline(always)]
pub(crate) fn is_exact() -> bool {
    IN_FORCE.load(Ordering::Relaxed) == 1
}

/// At boot.
pub(crate) fn prepare(settings: &Settings) {
    ASKED.store(settings.interval, Ordering::Release);
    RUNNING.store(!settings.start_paused, Ordering::Release);
    RECORD_OVER.store(settings.record_over, Ordering::Release);
    apply();
}

/// In a forked child: its load is its own.
pub(crate) fn after_fork() {
    RAISED.store(0, Ordering::Release);
    apply();
}

/// Whether samples are taken.
pub(crate) fn is_running() -> bool {
    RUNNING.load(Ordering::Acquire)
}

/// The mean interval that was asked for, in bytes.
pub(crate) fn asked() -> u64 {
    ASKED.load(Ordering::Acquire)
}

/// The mean interval in force, in bytes; 0 when stopped.
pub(crate) fn in_force() -> u64 {
    if is_running() {
        asked().max(RAISED.load(Ordering::Acquire))
    } else {
        0
    }
}

/// Starts or stops. Returns whether that was a change.
pub(crate) fn set_running(running: bool) -> bool {
    let changed = RUNNING.swap(running, Ordering::AcqRel) != running;
    apply();
    changed
}

/// Asks for another interval, in bytes. Returns whether it can be.
pub(crate) fn set_interval(interval: u64) -> bool {
    let possible = (1..=MAX_INTERVAL).contains(&interval);
    if possible {
        ASKED.store(interval, Ordering::Release);
        apply();
    }
    possible
}

/// Whether the interval in force is longer than was asked for, because of the budget.
pub(crate) fn is_raised() -> bool {
    in_force() > asked()
}

/// An interval, for people.
pub(crate) fn in_words(interval: u64) -> String {
    match interval {
        1 => "every allocation".to_owned(),
        bytes => format!("one sample every {bytes} bytes on average"),
    }
}

/// For the writer: what the budget demands, if that is more than was asked for, or 0.
pub(crate) fn raise(interval: u64) {
    RAISED.store(interval, Ordering::Release);
    apply();
}

/// Puts in force what is asked for now. Two at once may overtake each other, so each looks again.
fn apply() {
    loop {
        let interval = in_force();
        IN_FORCE.store(interval, Ordering::Release);
        if interval == in_force() {
            return;
        }
    }
}
