//! Namespaces: unshare and setns, which in part need a process with one thread.
//!
//! The kernel grants another user namespace (`unshare -r`, sandboxes) only to a process with one
//! thread, and another mount namespace (`nsenter -m`) only if no thread shares the working
//! directory. Our thread would make these calls fail in a single-threaded program. So our thread
//! leaves: the writer flushes the log and hands its state back, and its thread ends. Then the call
//! is repeated, and a new thread starts in the new namespaces. Meanwhile no other thread can add
//! events. A program with several threads is refused in any case, so nothing is done for it.

use std::ffi::c_int;

use crate::os::cancellation::DeferredCancellation;
use crate::os::next_symbol::NextSymbol;
use crate::os::{errno, seccomp, sys};
use crate::recording::session;
use crate::state::process;
use crate::state::thread::{self, RunningCode};
use crate::writer;

static UNSHARE: NextSymbol = NextSymbol::new(c"unshare");
static SETNS: NextSymbol = NextSymbol::new(c"setns");

/// Finds the next definitions, at boot.
pub(crate) fn prepare() {
    for function in [&UNSHARE, &SETNS] {
        let _ = function.address();
    }
}

/// Leaves namespaces, as unshare(2).
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    call_without_our_thread_if_refused(&UNSHARE, flags, 0)
}

/// Joins a namespace, as setns(2).
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn setns(file: c_int, kind: c_int) -> c_int {
    call_without_our_thread_if_refused(&SETNS, file, kind)
}

/// Makes the call, and repeats it without our thread if the refusal may be due to our thread.
fn call_without_our_thread_if_refused(function: &NextSymbol, first: c_int, second: c_int) -> c_int {
    let Some(real) = function.address() else {
        return errno::no_function();
    };
    // SAFETY: libc's unshare or setns; unshare ignores the register of the second argument.
    let real: unsafe extern "C-unwind" fn(c_int, c_int) -> c_int =
        unsafe { std::mem::transmute(real) };
    // SAFETY: any numbers are allowed.
    let call = || unsafe { real(first, second) };
    let answer = call();
    if answer == -1 && matches!(errno::get(), libc::EINVAL | libc::EUSERS) {
        retry_without_our_thread(call).unwrap_or(answer)
    } else {
        answer
    }
}

/// Repeats the call without our thread, if that is the only other one. Otherwise it changes
/// nothing, not even errno.
#[cold]
fn retry_without_our_thread(call: impl Fn() -> c_int) -> Option<c_int> {
    let refused = errno::get();
    let _deferred = DeferredCancellation::begin();
    let entered = thread::current().enter()?;
    entered.thread.running_code.set(RunningCode::Ours);
    let session =
        session::current().filter(|_| process::is_own() && !seccomp::has_installed_filter())?;
    let alone = sys::threads().is_none_or(|threads| threads == 2);
    if !alone || !writer::stop_thread() {
        errno::set(refused);
        return None;
    }
    let answer = call();
    errno::preserve(|| writer::restart_thread(session));
    Some(answer)
}
