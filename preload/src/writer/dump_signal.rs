//! Dump signal: `HEAPPROFILESIGNAL` makes the writer write a dump.
//!
//! The handler sets a request bit and wakes the writer, which writes the dump. It is installed only
//! if the disposition is the default, so a handler of the program is never replaced. A program may
//! replace ours later. The writer checks that periodically, and reports it once.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::os::diagnostics::notice;
use crate::os::sys;
use crate::recording::request_word;
use crate::state::process;

/// The signal that we handle; 0 if there is none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Installs our handler. Returns true if the signal (0: none) is ours now.
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
        notice!("HEAPPROFILESIGNAL={signal}: the program uses that signal; no dumps on signals");
        return false;
    }
    // SAFETY: a zeroed sigaction is a valid one; the handler is async-signal-safe (below).
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0 {
            return false;
        }
    }
    SIGNAL.store(signal, Ordering::Release);
    true
}

/// Reports it if the program has replaced our handler. For the writer.
pub(crate) fn check_disposition() {
    let signal = SIGNAL.load(Ordering::Acquire);
    if signal == 0 {
        return;
    }
    let ours = on_signal as *const () as u64;
    let taken = sys::sigaction_of(signal).is_some_and(|action| action.handler != ours);
    if taken && SIGNAL.swap(0, Ordering::AcqRel) != 0 {
        notice!(
            "HEAPPROFILESIGNAL={signal}: the program uses that signal now; no dumps on signals from here on"
        );
    }
}

extern "C" fn on_signal(_: c_int) {
    if !process::is_own() {
        return;
    }
    request_word::post(request_word::DUMP);
}
