//! `HEAPPROFILESIGNAL`: a dump when the program is told to.
//!
//! The handler sets a word and wakes the writer, which writes the dump. It is installed only where the program
//! left the default: a handler of the program's is never replaced.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::say::say;
use crate::{fork, session};

/// Whether the signal (0: none) is ours now.
pub(crate) fn install(signal: c_int) -> bool {
    if signal == 0 {
        return false;
    }
    let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads the disposition into a struct of ours.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr()) } == 0;
    // SAFETY: zeroed, then perhaps filled: integers and an address.
    let before = unsafe { before.assume_init() };
    if !known || before.sa_sigaction != libc::SIG_DFL {
        say!("HEAPPROFILESIGNAL={signal}: the program uses that signal; no dumps on signals");
        return false;
    }
    // SAFETY: a zeroed sigaction is a valid one; the handler is async-signal-safe (below).
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0
    }
}

/// Two atomics and a futex: nothing that a signal handler must not do.
extern "C" fn on_signal(_: c_int) {
    if let Some(session) = session::current()
        && fork::is_own_process()
    {
        session.dumps_asked.fetch_add(1, Ordering::AcqRel);
        session.wake();
    }
}
