//! The phase of the process: whether hooks record.
//!
//! ```text
//!            begin            begin_ending          end
//!  Boot ──────────> Recording ────────────> Ending ─────> Off
//!    └───────────────────┴── end, give_up ──────────────> Off
//! ```
//!
//! With `heapprof attach`, a process that is `Off` after a detach begins again.
//!
//! These change the phase: boot, an attach and a detach, a seccomp filter, the end of the
//! process, a lack of memory, and giving up. Hooks only read it. A forked child keeps it.
//!
//! Not here: the interval, which can stop the sampling for a time.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::os::diagnostics;

/// The work that hooks do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Allocate, and count the allocations that are not recorded: our constructor has not run yet.
    Boot = 0,
    /// Record sampled blocks.
    Recording = 1,
    /// Allocate only: recording is not wanted in this process, or has ended.
    Off = 2,
    /// Allocate only, while the end of the log is written. A thread with a sampled block waits for
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

/// In the thread that ends the process: makes hooks wait from now on.
pub(crate) fn begin_ending() {
    set(Phase::Ending);
}

/// Ends the recording as intended: the process ends, or recording is not wanted. In the second case
/// the caller has printed the reason where a user may wonder.
pub(crate) fn end() {
    set(Phase::Off);
}

/// Gives up (Law 6): ends the recording while the program runs on, and notes the reason. The first
/// reason stands alone: others follow from it.
#[cold]
pub(crate) fn give_up(why: fmt::Arguments<'_>) {
    static HAS_GIVEN_UP: AtomicBool = AtomicBool::new(false);
    set(Phase::Off);
    if !HAS_GIVEN_UP.swap(true, Ordering::Relaxed) {
        diagnostics::put_notice(why);
    }
}

/// Gives up after a panic in the component `part`.
#[cold]
pub(crate) fn give_up_after_panic(part: &str) {
    give_up(format_args!(
        "internal error in {part}; recording ends here, the program runs on. Please report this"
    ));
}

fn set(phase: Phase) {
    PHASE.store(phase as u8, Ordering::Release);
}
