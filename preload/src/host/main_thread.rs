//! Main thread: its end while the process goes on with other threads.
//!
//! libc ends the process when its last thread ends, and it counts ours. So if the main thread can
//! end alone, the writer checks periodically if it is the only thread left. Then it does what libc
//! does in the last thread: it calls `exit(0)`.
//!
//! There are two such cases. A main thread may leave by `pthread_exit` or `thrd_exit`, or be
//! cancelled. And in a child that was forked by another thread than the parent's main one, that
//! thread is the main one, and its function may return. In both cases libc runs the destructors of
//! the thread's specific data, and one such datum is ours. (`exit` and a return from `main` do not
//! run them. The bare system call is caught in `raw_syscalls`.)
//!
//! Without `/proc` the writer cannot see which thread is the last. The recording then ends with the
//! main thread, and our thread ends with it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::os::cancellation::DeferredCancellation;
use crate::os::sys;
use crate::recording::session;
use crate::state::thread::{self, RunningCode};
use crate::state::{phase, process};
use crate::writer::{self, last_thread, session_start};

/// The key of the datum by which libc notifies us. Set at boot only.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// The number of keys whose values glibc keeps in the thread itself. For others it allocates, which
/// must not happen in a forked child.
const KEYS_IN_THREAD: u32 = 32;

/// Creates the key, at boot, in the main thread.
///
/// Law 5 forbids thread-local destructors, because a thread's state would be gone before its last
/// free. Nothing is destroyed here. The key exists for the notification only, in this one thread,
/// and later allocations and frees of the thread find its state unchanged.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: writes one key; the function lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(on_thread_exit)) } == 0 {
        KEY.store(key, Ordering::Relaxed);
    }
    watch_exit();
}

/// Makes libc notify us when this thread, the main one, ends.
fn watch_exit() {
    let key = KEY.load(Ordering::Relaxed);
    // SAFETY: our key; the value is an address that is not null, and nothing else.
    let is_notified = key < KEYS_IN_THREAD
        && unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) } == 0;
    last_thread::set_exit_is_silent(!is_notified);
}

/// Runs in the main thread when it ends and the process goes on.
unsafe extern "C" fn on_thread_exit(_: *mut c_void) {
    on_exit();
}

/// Handles the end of a thread by the bare system call, which libc does not notice. If it is the
/// main thread, libc counts it for ever, and no thread calls `exit`. The process then ends with its
/// last thread, and with the status that the kernel takes from it.
pub(crate) fn on_raw_exit() {
    // First: if recording has ended, perhaps because our system calls are forbidden, there is no
    // call.
    if has_work() && sys::gettid() == sys::getpid() {
        last_thread::note_raw_exit();
        on_exit();
    }
}

/// Returns true if we record, or have a thread.
fn has_work() -> bool {
    phase::is_recording() || writer::tid() != 0
}

fn on_exit() {
    if !has_work() || sys::gettid() != sys::getpid() || !process::is_own() {
        return;
    }
    last_thread::note_main_exit();
    let _deferred = DeferredCancellation::begin();
    if let Some(entered) = thread::current().enter() {
        // what pthread_create allocates is not the program's
        entered.thread.running_code.set(RunningCode::Ours);
        if sys::threads().is_none() {
            // We cannot learn which thread is the last. libc can, if no thread is ours.
            phase::give_up(format_args!(
                "the main thread ends, and without /proc the end of the last thread cannot be seen; recording ends here, the program runs on"
            ));
            match session::current() {
                Some(session) => writer::end_recording(session),
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

/// Watches the main thread of a forked child, which is the thread that forked.
pub(crate) fn after_fork() {
    last_thread::after_fork();
    watch_exit();
}
