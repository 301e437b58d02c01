//! `pthread_exit` in the main thread: the process then lives as long as its other threads, and no longer.
//!
//! libc ends the process when its last thread ends, and counts ours. The main thread can end alone only by
//! `pthread_exit`, so that is exported: from then on the writer looks now and then whether it is the
//! only one left, and then does what libc does in the last thread: it calls `exit(0)`.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::next::Next;
use crate::tls::{self, Inside};
use crate::{fork, session, sys};

static REAL: Next = Next::new(c"pthread_exit");

/// Whether the main thread has left.
static LEFT: AtomicBool = AtomicBool::new(false);

/// As pthread_exit(3).
///
/// # Safety
/// As there: nothing on the stack is used hereafter.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    if sys::gettid() == sys::getpid() && fork::is_own_process() {
        LEFT.store(true, Ordering::SeqCst);
        if let Some(session) = session::current() {
            session.wake();
        }
    }
    match REAL.address() {
        Some(real) => {
            // SAFETY: the address of libc's pthread_exit, which unwinds this frame and does not
            // return; the frame has nothing to drop.
            let real: unsafe extern "C-unwind" fn(*mut c_void) -> ! =
                unsafe { std::mem::transmute(real) };
            // SAFETY: the caller's promise.
            unsafe { real(value) }
        }
        None => sys::exit_thread(),
    }
}

/// For the writer: whether it has to look after the end of the process.
pub(crate) fn has_left() -> bool {
    LEFT.load(Ordering::SeqCst)
}

/// For the writer: whether no thread of the program's is left.
pub(crate) fn nobody_is_left() -> bool {
    // One name for each thread that has not ended, the main thread's among them until the process
    // ends: ours and that one. An answer we do not understand means "somebody".
    let me = sys::gettid();
    let main = sys::getpid();
    sys::threads().is_some_and(|threads| threads.iter().all(|&tid| tid == me || tid == main))
}

/// For the writer: ends the process as libc would have in the program's last thread.
pub(crate) fn exit_for_the_last() -> ! {
    let thread = tls::current();
    thread.inside.set(Inside::No); // the program's exit handlers run here
    sys::restore_signals(0);
    // SAFETY: the program's last thread has ended: nobody else can be in `exit`.
    unsafe { libc::exit(0) }
}

/// In a forked child: the thread that forked is its main thread.
pub(crate) fn after_fork() {
    LEFT.store(false, Ordering::SeqCst);
}
