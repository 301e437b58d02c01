//! Ahead: a process that is about to give up root's rights, or its root directory, has its session before.
//!
//! A session begins with the first sample. By then the worker of a server may no longer be allowed to make a file in our folder, or
//! to open the one that was made at boot, or see neither. So root's session begins when it changes its ids (`host/setid.rs`) or its
//! root directory, and the log is held open from there on (`os/files.rs`). A forked process that then ends without a sample takes its
//! log back.
//!
//! Likewise before a filter of system calls that spares us (`host/seccomp_filters.rs`): behind it no thread may begin.
//!
//! Where the log cannot be held, as our thread shares the program's descriptors, a log that was made by root would only be in the way
//! of one that its later self may make.

use std::ffi::{c_char, c_int};

use crate::os::cancellation::Deferred;
use crate::os::next_symbol::Next;
use crate::os::{credentials, errno};
use crate::recording::session;
use crate::state::{phase, process, thread};
use crate::writer::{last_thread, session_start};

static CHROOT: Next = Next::new(c"chroot");

/// At boot: finds libc's function.
pub(crate) fn prepare() {
    let _ = CHROOT.address();
}

/// Before a call after which we may have fewer rights. errno is left alone.
pub(crate) fn begin() {
    if is_possible()
        && !last_thread::may_leave()
        && !credentials::is_filtered()
        && credentials::is_root()
    {
        begin_now();
    }
}

/// Before a filter of system calls that spares us, but perhaps not a thread that begins behind it (`host/seccomp_filters.rs`). errno is left alone.
pub(crate) fn begin_before_a_fence() {
    if is_possible() {
        begin_now();
    }
}

fn is_possible() -> bool {
    phase::is_recording() && session::current().is_none() && process::is_own()
}

fn begin_now() {
    let _deferred = Deferred::begin(); // first made, last dropped
    errno::left_alone(|| {
        let thread = thread::current();
        if !process::is_unprepared_child(thread)
            && let Some(entered) = thread.enter()
        {
            session_start::begin_ahead(&entered);
        }
    });
}

/// As chroot(2).
///
/// # Safety
/// As there: `path` is a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn chroot(path: *const c_char) -> c_int {
    let Some(real) = CHROOT.address() else {
        return errno::no_function();
    };
    begin();
    // SAFETY: libc's function of that name, which has this type.
    let real: unsafe extern "C-unwind" fn(*const c_char) -> c_int =
        unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    unsafe { real(path) }
}
