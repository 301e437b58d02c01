//! A main thread that ends alone: the process then lives as long as its other threads, and no longer.
//!
//! libc ends the process when its last thread ends, and counts ours. So where the main thread can end alone, the writer
//! looks now and then whether it is the only one left, and then does what libc does in the last thread: it calls
//! `exit(0)`. There are two such cases: a main thread that leaves by `pthread_exit` or `thrd_exit`, or is cancelled; and a child that was
//! forked by another thread than the parent's main one, where that thread is the main one, and its function may return. In both libc
//! calls what is to destroy the thread's specific data, of which a piece is ours. (`exit` and a return from `main` do not. The bare
//! system call is seen in `host/raw_syscalls.rs`.)
//!
//! Without `/proc` nobody can see which thread is the last. The recording then ends with the main thread, ours with it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::os::cancellation::Deferred;
use crate::os::sys;
use crate::recording::session;
use crate::state::thread::{self, Inside};
use crate::state::{phase, process};
use crate::writer::{self, last_thread, session_start};

/// What libc tells us by. Moved at boot only.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// glibc keeps the values of so many keys in the thread itself. For others it allocates, which is not to be in a forked child.
const KEYS_IN_THREAD: u32 = 32;

/// At boot, in the main thread.
///
/// Law 5 wants no destructors of thread-local things: a thread's words would be gone before its last free. Nothing is destroyed here; the
/// key's value is only there for libc to tell us, in this one thread, and what it allocates or frees later finds all as it was.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: writes one key; the function lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(leaves)) } == 0 {
        KEY.store(key, Ordering::Relaxed);
    }
    listen();
}

/// In the main thread: has libc tell us when it leaves.
fn listen() {
    let key = KEY.load(Ordering::Relaxed);
    // SAFETY: our key; the value is an address that is not null, and nothing else.
    let is_told = key < KEYS_IN_THREAD
        && unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) } == 0;
    last_thread::may_leave_untold(!is_told);
}

/// In the main thread, which ends, and the process goes on.
unsafe extern "C" fn leaves(_: *mut c_void) {
    leave();
}

/// In a thread that ends by the bare system call, which libc does not hear of. If it is the main one, libc counts it for ever, and
/// nobody calls `exit`: the process ends with its last thread, and with what the kernel then takes for its status.
pub(crate) fn ends_past_libc() {
    // Where the recording has ended, perhaps because no calls of ours are allowed any more, not even that is asked.
    if is_ours_there() && sys::gettid() == sys::getpid() {
        last_thread::ends_past_libc();
        leave();
    }
}

/// Whether there is anything of ours that goes on.
fn is_ours_there() -> bool {
    phase::is_recording() || writer::tid() != 0
}

fn leave() {
    if !is_ours_there() || sys::gettid() != sys::getpid() || !process::is_own() {
        return;
    }
    last_thread::main_leaves();
    let _deferred = Deferred::begin();
    if let Some(entered) = thread::current().enter() {
        entered.thread.inside.set(Inside::Ours); // what pthread_create allocates is not the program's
        if sys::threads().is_none() {
            // Nobody could tell us which is the last thread. libc can, if ours is none of them.
            phase::give_up(format_args!(
                "the main thread ends, and there is no /proc to see the last one end: recording ends here, the program runs on"
            ));
            match session::current() {
                Some(session) => writer::end(session),
                None => session_start::end_pending(),
            }
            return;
        }
        if let Some(session) = session::current() {
            writer::share_descriptors(session);
        }
    }
    if let Some(session) = session::current() {
        session.wake();
    }
}

/// In a forked child: the thread that forked is its main thread.
pub(crate) fn after_fork() {
    last_thread::after_fork();
    listen();
}
