//! The end of the process: the last records, the last dump, and not a moment longer.
//!
//! Ways out: `exit` and return from main run our destructor; `quick_exit` its own list; `_exit` and `_Exit` are
//! exported here, because nothing else runs then. A signal's default action runs nothing: the log is whole up
//! to its last flush.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use heapprof_format::EndReason;

use crate::hook::{self, Phase};
use crate::tls::{self, Inside};
use crate::{boot, clock, fork, session, sys};

/// The program's end waits for the writer at most that long.
const PATIENCE_NS: u64 = 100_000_000;

/// And when everything is recorded, where the last thousandth of the record counts as well.
const PATIENCE_EXACT_NS: u64 = 2_000_000_000;

#[unsafe(link_section = ".fini_array")]
#[used]
static DESTRUCTOR: extern "C" fn() = finish;

/// At boot.
pub(crate) fn register() {
    unsafe extern "C" {
        fn at_quick_exit(function: extern "C" fn()) -> c_int;
    }
    // SAFETY: a function that lives as long as the process.
    unsafe { at_quick_exit(finish) };
}

/// Ends the recording. Whoever comes second returns at once.
extern "C" fn finish() {
    if !hook::is_recording() || !fork::is_own_process() {
        return;
    }
    hook::set_phase(Phase::Off);
    let thread = tls::current();
    let was_inside = thread.inside.replace(Inside::Ours);
    if let Some(session) = session::current() {
        session.finish.store(1, Ordering::SeqCst);
        session.wake();
        let patience = if session.exact.load(Ordering::Relaxed) {
            PATIENCE_EXACT_NS
        } else {
            PATIENCE_NS
        };
        let deadline = clock::now_ns() + patience;
        while session.finished.load(Ordering::Acquire) == 0 {
            let now = clock::now_ns();
            if now >= deadline {
                break;
            }
            sys::futex_wait(&session.finished, 0, Some(deadline - now));
        }
    } else if let Some(mut writer) = boot::take_pending() {
        let mask = sys::block_signals();
        writer.finish(None, EndReason::Exit);
        sys::restore_signals(mask);
    }
    thread.inside.set(was_inside);
}

/// Ends the process without running anything but this.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(status: c_int) -> ! {
    finish();
    sys::exit_group(status)
}

/// C99's name of [`_exit`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Exit(status: c_int) -> ! {
    finish();
    sys::exit_group(status)
}
