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

use crate::hooks::sample;
use crate::recording::session;
use crate::state::settings::Settings;

/// No interval is longer: a terabyte between samples. Readers take more for a damaged log.
pub(crate) const MAX_INTERVAL: u64 = 1 << 40;

static RUNNING: AtomicBool = AtomicBool::new(true);
/// Mean interval that was asked for, in bytes.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// What the budget demands, in bytes; 0: nothing.
static RAISED: AtomicU64 = AtomicU64::new(0);

/// At boot.
pub(crate) fn prepare(settings: &Settings) {
    ASKED.store(settings.interval, Ordering::Release);
    RUNNING.store(!settings.start_paused, Ordering::Release);
    sample::set_record_over(settings.record_over);
    apply();
}

/// In a forked child: its load is its own.
pub(crate) fn after_fork() {
    RAISED.store(0, Ordering::Release);
    sample::set_interval(in_force());
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
        sample::set_interval(interval);
        if let Some(session) = session::current() {
            session.exact.store(interval == 1, Ordering::Release);
        }
        if interval == in_force() {
            return;
        }
    }
}
