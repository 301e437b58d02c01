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
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::hooks::sample::{self, Phase};
use crate::host::fork;
use crate::os::cancellation::Deferred;
use crate::os::diagnostics::say;
use crate::os::{files, sys};
use crate::recording::session;
use crate::state::thread::{self, Inside};
use crate::writer::{self, session_start};

/// Whether the main thread has ended, or is about to.
static LEFT: AtomicBool = AtomicBool::new(false);
/// Whether it may end unheard: no key was left.
static UNHEARD: AtomicBool = AtomicBool::new(false);
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
        && unsafe { libc::pthread_setspecific(key, (&raw const LEFT).cast()) } == 0;
    UNHEARD.store(!is_told, Ordering::Relaxed);
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
        PAST_LIBC.store(true, Ordering::Relaxed);
        leave();
    }
}

/// Whether the main thread has ended so.
static PAST_LIBC: AtomicBool = AtomicBool::new(false);

/// Whether there is anything of ours that goes on.
fn is_ours_there() -> bool {
    sample::is_recording() || writer::tid() != 0
}

fn leave() {
    if !is_ours_there() || sys::gettid() != sys::getpid() || !fork::is_own_process() {
        return;
    }
    LEFT.store(true, Ordering::SeqCst);
    let _deferred = Deferred::begin();
    if let Some(entered) = thread::current().enter() {
        entered.thread.inside.set(Inside::Ours); // what pthread_create allocates is not the program's
        if sys::threads().is_none() {
            // Nobody could tell us which is the last thread. libc can, if ours is none of them.
            sample::set_phase(Phase::Off);
            say!(
                "the main thread ends, and there is no /proc to see the last one end: recording ends here, the program runs on"
            );
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

/// For the writer: whether it has to look now and then whether the end has come.
pub(crate) fn may_leave() -> bool {
    LEFT.load(Ordering::SeqCst) || UNHEARD.load(Ordering::Relaxed)
}

/// For the writer: whether no thread of the program's is left.
pub(crate) fn all_have_left() -> bool {
    if !may_leave() {
        return false;
    }
    // One name for each thread that has not ended, the main thread's among them until the process
    // ends: ours and that one. An answer we do not understand means "somebody".
    sys::threads().is_some_and(|threads| threads <= 2) && has_ended()
}

/// Whether the main thread is past its last instruction: its state, behind its name in brackets, is that of a zombie.
fn has_ended() -> bool {
    // Of the main thread it is what the process's own says, which is why it may be asked for so (`os/procfs.rs`).
    let Ok(stat) = files::read(b"/proc/self/stat") else {
        return false;
    };
    let state = stat.iter().rposition(|&byte| byte == b')');
    matches!(state.and_then(|at| stat.get(at + 2)), Some(b'Z' | b'X'))
}

/// For the writer, which returns then: ends the process as libc would have in the program's last thread.
pub(crate) fn exit_for_the_last() {
    if PAST_LIBC.load(Ordering::Relaxed) {
        return;
    }
    let thread = thread::current();
    thread.inside.set(Inside::No); // the program's exit handlers run here
    sys::restore_signals(0);
    // SAFETY: the program's last thread has ended: nobody else can be in `exit`.
    unsafe { libc::exit(0) }
}

/// In a forked child: the thread that forked is its main thread.
pub(crate) fn after_fork() {
    LEFT.store(false, Ordering::SeqCst);
    PAST_LIBC.store(false, Ordering::Relaxed);
    listen();
}
