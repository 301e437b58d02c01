//! The end of the process: the last records, the last dump, and not a moment longer.
//!
//! Ways out: `exit` and return from main run our destructor; `quick_exit` its own list; `_exit` and `_Exit` are
//! exported here, because nothing else runs then. A signal's default action runs nothing: the log is whole up
//! to its last flush.

use std::ffi::c_int;

use heapprof_format::EndReason;

use crate::os::{diagnostics, private_stack, sys};
use crate::recording::request_word::{self, FINISH};
use crate::recording::session;
use crate::state::thread::{self, Inside};
use crate::state::{phase, process, shutdown};
use crate::writer::session_start;

#[unsafe(link_section = ".fini_array")]
#[used]
static DESTRUCTOR: extern "C" fn() = finish_last;

/// At boot.
pub(crate) fn register(patience_ns: u64) {
    shutdown::prepare(patience_ns);
    unsafe extern "C" {
        fn at_quick_exit(function: extern "C" fn()) -> c_int;
    }
    // SAFETY: a function that lives as long as the process.
    unsafe { at_quick_exit(finish_last) };
}

/// Ends the recording, if no other thread does.
fn finish() {
    if !phase::is_recording() || !process::is_own() {
        return;
    }
    let thread = thread::current();
    // Before anybody can see that the end has begun: a signal handler of this thread would wait for
    // itself.
    let was_inside = thread.inside.replace(Inside::Ours);
    if !shutdown::take() {
        thread.inside.set(was_inside);
        return;
    }
    if let Some(session) = session::current() {
        let deadline = shutdown::begin(); // before the writer can see that it is to finish
        request_word::post(FINISH);
        // Threads that go on allocating wait with us: the writer would otherwise share the processors
        // with all of them, and have ever more to take from their lanes.
        phase::begin_ending();
        session.wait_until_finished(deadline);
        diagnostics::what_is_unsaid();
        phase::end();
    } else {
        phase::end();
        if let Some(mut writer) = session_start::take_pending() {
            private_stack::run(|| writer.finish(None, EndReason::Exit));
        }
    }
    shutdown::has_gone_on();
    thread.inside.set(was_inside);
}

/// Ends the recording in a thread that ends the process after this. If another thread is at it, that
/// one goes first.
pub(crate) extern "C" fn finish_last() {
    finish();
    // This thread's own end, if a signal handler came into the midst of it, would wait for itself.
    if shutdown::is_under_way() && thread::current().inside.get() != Inside::Ours {
        shutdown::wait();
    }
}

/// Ends the process without running anything but this.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(status: c_int) -> ! {
    finish_last();
    sys::exit_group(status)
}

/// C99's name of [`_exit`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Exit(status: c_int) -> ! {
    finish_last();
    sys::exit_group(status)
}
