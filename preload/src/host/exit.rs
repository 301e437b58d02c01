//! Exit: the end of the process, with the last records and the last dump, within a bounded time.
//!
//! `exit` and a return from main run our destructor, and `quick_exit` runs its own list. `_exit`
//! and `_Exit` are exported here, because nothing else runs then, and go on to the next definition.
//! A signal's default action runs nothing, and the log is whole up to its last flush.
//!
//! One thread ends the process. It takes these steps:
//!
//! 1. It claims the end, and starts the clock (`state/shutdown`). If another thread is beginning
//!    the session, it waits for that. Then it asks the writer to finish.
//! 2. It begins the phase `Ending`. Threads that would sample sleep from here on.
//! 3. It waits for the writer until the deadline. On a busy machine it waits until the writer had
//!    that much time on a processor (core's `Allowance`).
//! 4. If the writer has not finished, it marks the log as cut (`writer/log/cut_mark`).
//! 5. It prints the lines that no log has taken, ends the recording, and continues.
//!
//! Without a session there is no writer's thread. The ending thread then completes the log itself.
//! A child of vfork takes none of these steps, because the recording is its parent's.

use std::ffi::{c_int, c_void};

use heapprof_core::Allowance;
use heapprof_format::EndReason;

use crate::arch::entry_stubs::call_before_jump;
use crate::os::backoff::Backoff;
use crate::os::diagnostics::{self, say};
use crate::os::next_symbol::NextSymbol;
use crate::os::{clock, private_stack, sys};
use crate::recording::request_word::{self, FINISH};
use crate::recording::session::Session;
use crate::state::thread::{self, RunningCode};
use crate::state::{phase, process, shutdown};
use crate::writer::log::cut_mark;
use crate::writer::{self, session_start};

#[unsafe(link_section = ".fini_array")]
#[used]
static DESTRUCTOR: extern "C" fn() = finish_last;

/// Registers the end, at boot.
pub(crate) fn register(timeout_ns: u64) {
    shutdown::prepare(timeout_ns);
    unsafe extern "C" {
        fn at_quick_exit(function: extern "C" fn()) -> c_int;
    }
    // SAFETY: a function that lives as long as the process.
    unsafe { at_quick_exit(finish_last) };
}

/// Ends the recording, unless another thread does it.
fn finish() {
    if !phase::is_recording() || !process::is_own() {
        return;
    }
    let thread = thread::current();
    // First: when other threads can see that the end has begun, a signal handler of this thread
    // would wait for its own thread.
    let outer_code = thread.running_code.replace(RunningCode::Ours);
    if !shutdown::claim() {
        thread.running_code.set(outer_code);
        return;
    }
    // First: the writer must find the deadline when it sees that it is to finish.
    let begun = clock::now_ns();
    let deadline = shutdown::begin();
    if let Some(session) = session_start::settled(deadline) {
        request_word::post(FINISH);
        // Threads that continue to allocate wait with us. Otherwise the writer would share the
        // processors with all of them, and find ever more events in their lanes.
        phase::begin_ending();
        if !wait_for_writer(session, begun, deadline) {
            cut_log();
        }
        diagnostics::print_kept_lines();
        phase::end();
    } else {
        phase::end();
        match session_start::take_pending() {
            Some(mut writer) => private_stack::run(|| writer.finish(None, EndReason::Exit)),
            // If there is a log, another thread has it, and still begins the session.
            None => cut_log(),
        }
    }
    shutdown::note_end_of_wait();
    thread.running_code.set(outer_code);
}

/// Marks the log as cut if it lacks its end, and says so.
fn cut_log() {
    // The writer had its time.
    if cut_mark::put(Backoff::with_limit(0)) {
        say!(
            "the log ends before the program: its last records could not be written in {} ms \
             (HEAPPROF_EXIT_WAIT_MS)",
            shutdown::exit_wait_ns() / 1_000_000
        );
    }
}

/// Waits until the writer has finished: until the deadline, and on a busy machine until the writer
/// had that much time on a processor. Returns true if the writer has finished.
fn wait_for_writer(session: &Session, begun: u64, deadline: u64) -> bool {
    if session.wait_until_finished(deadline) {
        return true;
    }
    let mut allowance = Allowance::new(begun, deadline.saturating_sub(begun));
    while allowance.may_continue(writer::progress()) {
        let until = clock::now_ns() + allowance.look_ns();
        shutdown::prolong(until);
        if session.wait_until_finished(until) {
            return true;
        }
    }
    false
}

/// Ends the recording in a thread that then ends the process. If another thread ends the recording,
/// this one waits for it.
pub(crate) extern "C" fn finish_last() {
    finish();
    if shutdown::is_in_progress() {
        if thread::current().running_code.get() != RunningCode::Ours {
            shutdown::wait();
        } else if process::is_own() {
            // A signal handler interrupted this thread's own end, and ends the process now. Waiting
            // would never end. There is no line: this thread may be about to print one.
            cut_mark::put(Backoff::with_limit(shutdown::exit_wait_ns()));
        }
    }
    if diagnostics::has_notices() && (process::is_own() || !process::has_booted()) {
        diagnostics::print_notices();
    }
}

#[cfg(not(feature = "attach"))]
macro_rules! export {
    ($($(#[$doc:meta])* $name:ident = $next:ident, $c_name:literal;)*) => {
        $(
            /// The next definition.
            static $next: NextSymbol = NextSymbol::new($c_name);

            call_before_jump! {
                $(#[$doc])*
                ///
                /// # Safety
                /// Any status may be passed.
                #[unsafe(no_mangle)]
                fn $name(status: c_int) -> !;
                finish_last, $next, find_late
            }
        )*

        /// At boot: finds the next definitions.
        pub(crate) fn prepare() {
            for function in [$(&$next),*] {
                let _ = function.address();
            }
        }
    };
}

// No system call: a library behind this one may save its data here (Law 11).
#[cfg(not(feature = "attach"))]
export! {
    /// Ends the process, and runs no destructor but the end of the recording.
    _exit = UNDERSCORE_EXIT, c"_exit";
    /// Ends the process, under C99's name of `_exit`.
    _Exit = C99_EXIT, c"_Exit";
}

/// Returns the next definition before boot, or the system call if there is none.
#[cfg(not(feature = "attach"))]
extern "C" fn find_late(function: &NextSymbol) -> *mut c_void {
    extern "C" fn exit_group(status: c_int) -> ! {
        sys::exit_group(status)
    }
    function
        .address()
        .unwrap_or(exit_group as extern "C" fn(c_int) -> ! as *mut c_void)
}
