//! exec: the process becomes another program, and its memory is lost, so the log is flushed first.
//!
//! libc's exec functions do not call each other through names that a library can replace, so each
//! one is exported. It flushes the log, for at most [`FLUSH_TIMEOUT_NS`], and jumps to the next
//! definition with the same arguments (Law 11), which is mostly libc's. The program sees the result
//! of that function. In a child of vfork or of a threaded fork, there is only the jump. Boot looks
//! the functions up, because the loader must not be called in such a child.
//!
//! `daemon` is here, too: it forks, and its parent leaves through libc's internal `_exit`, which
//! cannot be interposed. The child inherits the parent's live blocks, which are described only in
//! the parent's log, so that log must be finished first.

use std::ffi::{c_int, c_void};

use heapprof_core::Allowance;
use heapprof_format::EndReason;

use crate::arch::entry_stubs::call_before_jump;
use crate::os::cancellation::DeferredCancellation;
use crate::os::next_symbol::NextSymbol;
use crate::os::{clock, errno, private_stack};
use crate::recording::request_word::{self, Rendezvous};
use crate::recording::session;
use crate::state::thread::{self, RunningCode};
use crate::state::{phase, process};
use crate::writer::{self, session_start};

/// How long exec waits for the writer, as far as the writer has a processor.
const FLUSH_TIMEOUT_NS: u64 = 100_000_000;

macro_rules! export {
    ($($(#[$doc:meta])* $name:ident = $next:ident, $c_name:literal, $flush:ident;)*) => {
        $(
            /// The next definition.
            static $next: NextSymbol = NextSymbol::new($c_name);

            call_before_jump! {
                $(#[$doc])*
                ///
                /// # Safety
                /// As in the manual.
                #[unsafe(no_mangle)]
                fn $name() -> c_int;
                $flush, $next, find_late
            }
        )*

        /// Finds the next definitions, at boot.
        pub(crate) fn prepare() {
            for function in [$(&$next),*] {
                let _ = function.address();
            }
        }
    };
}

export! {
    /// As execve(2).
    execve = EXECVE, c"execve", before_exec;
    /// As execv(3).
    execv = EXECV, c"execv", before_exec;
    /// As execvp(3).
    execvp = EXECVP, c"execvp", before_exec;
    /// As execvpe(3).
    execvpe = EXECVPE, c"execvpe", before_exec;
    /// As execl(3).
    execl = EXECL, c"execl", before_exec;
    /// As execlp(3).
    execlp = EXECLP, c"execlp", before_exec;
    /// As execle(3).
    execle = EXECLE, c"execle", before_exec;
    /// As fexecve(3).
    fexecve = FEXECVE, c"fexecve", before_exec;
    /// As execveat(2).
    execveat = EXECVEAT, c"execveat", before_exec;
    /// As daemon(3).
    daemon = DAEMON, c"daemon", before_end;
}

/// Returns the next definition before boot, or a function that fails if there is none.
extern "C" fn find_late(function: &NextSymbol) -> *mut c_void {
    function
        .address()
        .unwrap_or(errno::no_function as extern "C" fn() -> c_int as *mut c_void)
}

/// Flushes the log, because the process may become another program.
extern "C" fn before_exec() {
    flush(EndReason::Exec, &request_word::EXEC_FLUSH);
}

/// Flushes the log, because the process may end past our exports.
extern "C" fn before_end() {
    flush(EndReason::Exit, &request_word::END_FLUSH);
}

/// Completes a log that was made at boot, if no sample began a session. The pending writer is put
/// back, because the process may go on.
fn flush_pending_log(reason: EndReason) {
    let _deferred = DeferredCancellation::begin();
    let Some(entered) = thread::current().enter() else {
        return; // a signal handler that interrupted us
    };
    entered.thread.running_code.set(RunningCode::Ours);
    session_start::with_pending(|writer| {
        private_stack::run(|| writer.end_log_provisionally(reason))
    });
}

/// Makes the writer write everything so far, and waits for it.
fn flush(reason: EndReason, request: &Rendezvous) {
    if !phase::is_recording() || !process::is_own() {
        return;
    }
    if session::current().is_none() {
        return flush_pending_log(reason);
    }
    let start = clock::now_ns();
    let mut allowance = Allowance::new(start, FLUSH_TIMEOUT_NS);
    let look_ns = allowance.look_ns();
    request.ask(u64::MAX, look_ns, || {
        clock::now_ns() >= start + FLUSH_TIMEOUT_NS && !allowance.may_continue(writer::progress())
    });
}
