//! The interval in force: whether samples are taken, and at which interval.
//!
//! ```text
//!  requested (settings, API, ctl) ─┐
//!  raised by the budget ───────────┼─> in force ─> hook: each thread follows at its next draw
//!  running or stopped ─────────────┘
//! ```
//!
//! Any thread may change it at any time. If several changes coincide, the last one wins.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::state::settings::{MAX_INTERVAL, Settings};

static RUNNING: AtomicBool = AtomicBool::new(true);
/// Requested mean interval, in bytes.
static REQUESTED: AtomicU64 = AtomicU64::new(0);
/// Interval that the budget demands, in bytes; 0: none.
static RAISED: AtomicU64 = AtomicU64::new(0);
/// The combination of the three for hooks: mean interval in bytes; 0: sampling is stopped.
static IN_FORCE: AtomicU64 = AtomicU64::new(0);
/// Size in bytes from which every block is recorded; 0: size alone records none. Set at boot only.
static RECORD_OVER: AtomicU64 = AtomicU64::new(0);

/// Returns the mean interval in bytes at which hooks sample; 0: sampling is stopped. A thread
/// follows a change at its next draw, which is at most one piece away (core's regime).
#[inline]
pub(crate) fn of_hooks() -> u64 {
    IN_FORCE.load(Ordering::Acquire)
}

/// Returns the size in bytes from which every block is recorded; 0: size alone records none.
#[inline]
pub(crate) fn record_over() -> u64 {
    RECORD_OVER.load(Ordering::Relaxed)
}

/// Returns true if everything is recorded. Hooks then wait for room in a lane.
#[inline(always)]
pub(crate) fn is_exact() -> bool {
    IN_FORCE.load(Ordering::Relaxed) == 1
}

/// At boot: takes the values of the settings.
pub(crate) fn prepare(settings: &Settings) {
    REQUESTED.store(settings.interval, Ordering::Release);
    RUNNING.store(!settings.start_paused, Ordering::Release);
    RECORD_OVER.store(settings.record_over, Ordering::Release);
    apply();
}

/// In a forked child: discards the parent's budget, because the child's load differs.
pub(crate) fn after_fork() {
    RAISED.store(0, Ordering::Release);
    apply();
}

/// Returns true while samples are taken.
pub(crate) fn is_running() -> bool {
    RUNNING.load(Ordering::Acquire)
}

/// Returns the requested mean interval, in bytes.
pub(crate) fn requested() -> u64 {
    REQUESTED.load(Ordering::Acquire)
}

/// Returns the mean interval in force, in bytes; 0 when stopped.
pub(crate) fn in_force() -> u64 {
    if is_running() {
        requested().max(RAISED.load(Ordering::Acquire))
    } else {
        0
    }
}

/// Starts or stops the sampling. Returns true if that was a change.
pub(crate) fn set_running(running: bool) -> bool {
    let changed = RUNNING.swap(running, Ordering::AcqRel) != running;
    apply();
    changed
}

/// Requests another interval, in bytes. Returns false if it is out of range.
pub(crate) fn set_interval(interval: u64) -> bool {
    let possible = (1..=MAX_INTERVAL).contains(&interval);
    if possible {
        REQUESTED.store(interval, Ordering::Release);
        apply();
    }
    possible
}

/// Returns true if the budget makes the interval in force longer than the requested one.
pub(crate) fn is_raised() -> bool {
    in_force() > requested()
}

/// Returns an interval as a text for users.
pub(crate) fn describe(interval: u64) -> String {
    match interval {
        1 => "every allocation".to_owned(),
        bytes => format!("one sample every {bytes} bytes on average"),
    }
}

/// In the writer: sets the interval that the budget demands, or 0 if it demands no longer one.
pub(crate) fn raise(interval: u64) {
    RAISED.store(interval, Ordering::Release);
    apply();
}

/// Recomputes the interval in force. Two threads that do so at once may overtake each other, so
/// each checks its result.
fn apply() {
    loop {
        let interval = in_force();
        IN_FORCE.store(interval, Ordering::Release);
        if interval == in_force() {
            return;
        }
    }
}
