//! exec: the process becomes another program, and what is in memory is gone. And `daemon`, whose parent ends by libc's own `_exit`,
//! where nothing of ours runs: what it had in use, the child has, and finds it in this log only.
//!
//! libc's exec functions do not call each other through the names that a library can replace, so each is
//! exported. It flushes the log, which takes at most [`PATIENCE_NS`], and jumps to libc's own with the
//! arguments as they came: whatever that returns, the program sees. In a child of vfork or of a
//! threaded fork nothing is done but the jump: libc's functions were looked up at boot, because there the
//! loader must not be asked.

use std::ffi::c_int;

use heapprof_format::EndReason;

use crate::arch::entry_stubs::call_before_jump;
use crate::os::cancellation::Deferred;
use crate::os::next_symbol::Next;
use crate::os::{clock, errno, private_stack};
use crate::recording::request_word::{self, Rendezvous};
use crate::recording::session;
use crate::state::thread::{self, Inside};
use crate::state::{phase, process};
use crate::writer::session_start;

/// exec waits for the writer at most that long.
const PATIENCE_NS: u64 = 100_000_000;

macro_rules! exported {
    ($($(#[$doc:meta])* $name:ident = $place:ident, $c_name:literal, $flush:ident;)*) => {
        $(
            /// libc's own.
            static $place: Next = Next::new($c_name);

            call_before_jump! {
                $(#[$doc])*
                ///
                /// # Safety
                /// As in the manual.
                #[unsafe(no_mangle)]
                fn $name() -> c_int;
                $flush, $place, errno::no_function
            }
        )*

        /// At boot: finds libc's functions.
        pub(crate) fn prepare() {
            for function in [$(&$place),*] {
                let _ = function.address();
            }
        }
    };
}

exported! {
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

/// The process may become another program.
extern "C" fn before_exec() {
    flush(EndReason::Exec, &request_word::EXEC_FLUSH);
}

/// The process may end, past whatever is exported here.
extern "C" fn before_end() {
    flush(EndReason::Exit, &request_word::END_FLUSH);
}

/// Nothing was sampled: a log that was made at boot is told that the process goes. It is put back, for one that stays.
fn leave_unsampled(reason: EndReason) {
    let _deferred = Deferred::begin();
    let Some(entered) = thread::current().enter() else {
        return; // a signal handler that interrupted us
    };
    entered.thread.inside.set(Inside::Ours);
    session_start::with_pending(|writer| private_stack::run(|| writer.say_goodbye(reason)));
}

/// Has the writer write what there is, and waits for it.
fn flush(reason: EndReason, request: &Rendezvous) {
    if !phase::is_recording() || !process::is_own() {
        return;
    }
    if session::current().is_none() {
        return leave_unsampled(reason);
    }
    let deadline = clock::now_ns() + PATIENCE_NS;
    request.ask(deadline, PATIENCE_NS, || false);
}
