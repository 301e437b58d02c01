//! The phase of the process: whether hooks record, and why they stopped.
//!
//! ```text
//!            begin            begin_ending          end
//!  Boot ──────────> Recording ────────────> Ending ─────> Off
//!    └───────────────────┴── end, give_up ──────────────> Off
//! ```
//!
//! Boot, fork, exit and whoever gives up move the phase; a hook only reads it.
//! Not here: the interval (`interval`), which can stop the sampling for a while.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::os::diagnostics;

/// What the hooks do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Allocate, and count the allocations that pass: our constructor has not run.
    Boot = 0,
    /// Record what is sampled.
    Recording = 1,
    /// Allocate only: nothing is recorded in this process, or nothing any more.
    Off = 2,
    /// Allocate only, while the end of the log is being written. A thread that would sample waits for
    /// that (`shutdown::wait`).
    Ending = 3,
}

static PHASE: AtomicU8 = AtomicU8::new(Phase::Boot as u8);

/// Returns the phase.
#[inline(always)]
pub(crate) fn current() -> Phase {
    match PHASE.load(Ordering::Acquire) {
        0 => Phase::Boot,
        1 => Phase::Recording,
        3 => Phase::Ending,
        _ => Phase::Off,
    }
}

/// Returns true while samples are recorded.
#[inline(always)]
pub(crate) fn is_recording() -> bool {
    PHASE.load(Ordering::Acquire) == Phase::Recording as u8
}

/// At boot: starts the recording.
pub(crate) fn begin() {
    set(Phase::Recording);
}

/// In the thread that ends the process: hooks wait from here on.
pub(crate) fn begin_ending() {
    set(Phase::Ending);
}

/// Ends the recording as intended: the process ends, or nothing is to be recorded, which the caller
/// has said where a user may wonder.
pub(crate) fn end() {
    set(Phase::Off);
}

/// Gives up (Law 6): nothing is recorded from here on, the program allocates on, and one line on
/// standard error says why.
#[cold]
pub(crate) fn give_up(why: fmt::Arguments<'_>) {
    set(Phase::Off);
    diagnostics::line(why);
}

/// Gives up after a panic in a part of ours, which `part` names.
#[cold]
pub(crate) fn give_up_after_panic(part: &str) {
    give_up(format_args!(
        "internal error in {part}; recording ends here, the program runs on. Please report this"
    ));
}

fn set(phase: Phase) {
    PHASE.store(phase as u8, Ordering::Release);
}
