//! Privilege drop: a process of root that gives up its rights or its root directory gets its
//! session before that.
//!
//! A session begins with the first sample. By then the worker of a server may not be allowed to
//! make a file in our folder, or to open the log that was made at boot. Or it cannot see either of
//! them. So the session of a process of root begins when it changes its ids or its root directory,
//! and the log is held open from there on. A forked process that ends without a sample removes its
//! log.
//!
//! A session also begins before a seccomp filter that lets us record: behind the filter no
//! thread may start.
//!
//! Nothing is done if the log cannot be held open because our thread shares the program's
//! descriptors. A log that root makes would then only be in the way of a log that the process makes
//! later.

use std::ffi::{c_char, c_int};

use crate::os::cancellation::DeferredCancellation;
use crate::os::next_symbol::NextSymbol;
use crate::os::{credentials, errno};
use crate::recording::session;
use crate::state::{phase, process, thread};
use crate::writer::{last_thread, session_start};

static CHROOT: NextSymbol = NextSymbol::new(c"chroot");

/// Finds the next definition, at boot.
pub(crate) fn prepare() {
    let _ = CHROOT.address();
}

/// Begins the session before a call that may reduce our rights. errno is preserved.
pub(crate) fn begin_session() {
    if is_possible()
        && !last_thread::main_may_have_ended()
        && !credentials::has_seccomp_filter()
        && credentials::is_root()
    {
        begin_now();
    }
}

/// Begins the session before a seccomp filter that lets us record, but may not let us start a
/// thread. errno is preserved.
pub(crate) fn begin_session_before_seccomp_filter() {
    if is_possible() {
        begin_now();
    }
}

fn is_possible() -> bool {
    phase::is_recording() && session::current().is_none() && process::is_own()
}

fn begin_now() {
    let _deferred = DeferredCancellation::begin(); // first made, last dropped
    errno::preserve(|| {
        let thread = thread::current();
        if !process::is_unprepared_child(thread)
            && let Some(entered) = thread.enter()
        {
            session_start::begin_early(&entered);
        }
    });
}

/// Changes the root directory, as chroot(2).
///
/// # Safety
/// As chroot(2): `path` is a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn chroot(path: *const c_char) -> c_int {
    let Some(real) = CHROOT.address() else {
        return errno::no_function();
    };
    begin_session();
    // SAFETY: libc's function of that name, which has this type.
    let real: unsafe extern "C-unwind" fn(*const c_char) -> c_int =
        unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promise.
    unsafe { real(path) }
}
