//! The last thread: what the writer does when no thread of the program's is left.
//!
//! libc ends the process when its last thread ends, and counts ours. So where the main thread can end
//! alone (`host/main_thread.rs`), the writer looks from time to time whether it is the only one left,
//! and then calls `exit(0)`, as libc does in the last thread.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::os::{files, sys};
use crate::state::thread::{self, Inside};

/// Whether the main thread has ended, or is about to.
static MAIN_LEFT: AtomicBool = AtomicBool::new(false);
/// Whether the main thread may end without a word to us: libc had no key left to tell us by.
static LEAVES_UNTOLD: AtomicBool = AtomicBool::new(false);
/// Whether the main thread ended by the bare system call.
static PAST_LIBC: AtomicBool = AtomicBool::new(false);

/// The main thread ends, and the process goes on.
pub(crate) fn main_leaves() {
    MAIN_LEFT.store(true, Ordering::SeqCst);
}

/// The main thread ends by the bare system call: libc counts it for ever.
pub(crate) fn ends_past_libc() {
    PAST_LIBC.store(true, Ordering::Relaxed);
}

/// Sets whether the main thread may end without a word to us.
pub(crate) fn may_leave_untold(it_may: bool) {
    LEAVES_UNTOLD.store(it_may, Ordering::Relaxed);
}

/// For the writer: whether it has to look now and then whether the end has come.
pub(crate) fn may_leave() -> bool {
    MAIN_LEFT.load(Ordering::SeqCst) || LEAVES_UNTOLD.load(Ordering::Relaxed)
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
    MAIN_LEFT.store(false, Ordering::SeqCst);
    PAST_LIBC.store(false, Ordering::Relaxed);
}
