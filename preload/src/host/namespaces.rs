//! unshare and setns: some of what they do the kernel grants only to a process with one thread.
//!
//! Another user namespace (`unshare -r`, sandboxes) is one, another mount namespace (`nsenter -m`) is one for threads
//! that share a working directory. A program with one thread is refused it when ours is there. So then ours leaves: the
//! writer writes what there is and hands its state back, its thread ends, the call is made again, and a thread is started
//! again, in the namespaces where the program is now. Meanwhile nobody else can add events: a program with more
//! threads is refused in any case, and nothing is done for it.

use std::ffi::c_int;

use crate::os::cancellation::Deferred;
use crate::os::next_symbol::Next;
use crate::os::{errno, seccomp, sys};
use crate::recording::session;
use crate::state::process;
use crate::state::thread::{self, Inside};
use crate::writer;

static UNSHARE: Next = Next::new(c"unshare");
static SETNS: Next = Next::new(c"setns");

/// At boot: finds libc's functions.
pub(crate) fn prepare() {
    for function in [&UNSHARE, &SETNS] {
        let _ = function.address();
    }
}

/// As unshare(2).
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    alone_if_need_be(&UNSHARE, flags, 0)
}

/// As setns(2).
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn setns(file: c_int, kind: c_int) -> c_int {
    alone_if_need_be(&SETNS, file, kind)
}

/// The call, and if it was refused as it may be for our thread's sake, the call without that.
fn alone_if_need_be(function: &Next, first: c_int, second: c_int) -> c_int {
    let Some(real) = function.address() else {
        return errno::no_function();
    };
    // SAFETY: libc's unshare or setns; the first ignores what is in the second's register.
    let real: unsafe extern "C-unwind" fn(c_int, c_int) -> c_int =
        unsafe { std::mem::transmute(real) };
    // SAFETY: any numbers are allowed.
    let call = || unsafe { real(first, second) };
    let answer = call();
    if answer == -1 && matches!(errno::get(), libc::EINVAL | libc::EUSERS) {
        once_more(call).unwrap_or(answer)
    } else {
        answer
    }
}

/// The same call without our thread, if that is the only other one. Otherwise nothing changes, errno neither.
#[cold]
fn once_more(call: impl Fn() -> c_int) -> Option<c_int> {
    let refused = errno::get();
    let _deferred = Deferred::begin();
    let entered = thread::current().enter()?;
    entered.thread.inside.set(Inside::Ours);
    let session =
        session::current().filter(|_| process::is_own() && !seccomp::has_filtered_itself())?;
    let alone = sys::threads().is_none_or(|threads| threads == 2);
    if !alone || !writer::leave() {
        errno::set(refused);
        return None;
    }
    let answer = call();
    errno::left_alone(|| writer::come_back(session));
    Some(answer)
}
