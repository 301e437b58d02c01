//! Last thread: what the writer does if the program has no thread left.
//!
//! libc ends the process when its last thread ends, and it counts ours. So if the main thread can
//! end alone, the writer checks periodically if it is the only thread left. Then it calls
//! `exit(0)`, as libc does in the last thread.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::os::{files, sys};
use crate::state::thread::{self, RunningCode};

/// True if the main thread has ended, or is about to.
static MAIN_HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// True if the main thread may end without notice, because libc had no key left for it.
static EXIT_IS_SILENT: AtomicBool = AtomicBool::new(false);
/// True if the main thread ended by the bare system call.
static EXIT_WAS_RAW: AtomicBool = AtomicBool::new(false);

/// Notes that the main thread ends while the process goes on.
pub(crate) fn note_main_exit() {
    MAIN_HAS_ENDED.store(true, Ordering::SeqCst);
}

/// Notes that the main thread ends by the bare system call: libc counts it for ever.
pub(crate) fn note_raw_exit() {
    EXIT_WAS_RAW.store(true, Ordering::Relaxed);
}

/// Sets if the main thread may end without notice.
pub(crate) fn set_exit_is_silent(is_silent: bool) {
    EXIT_IS_SILENT.store(is_silent, Ordering::Relaxed);
}

/// Returns true if the main thread has ended, or may have. The writer must then check for the end.
pub(crate) fn main_may_have_ended() -> bool {
    MAIN_HAS_ENDED.load(Ordering::SeqCst) || EXIT_IS_SILENT.load(Ordering::Relaxed)
}

/// Returns true if no thread of the program is left. For the writer.
pub(crate) fn is_program_gone() -> bool {
    if !main_may_have_ended() {
        return false;
    }
    // There is one name for each thread that has not ended, and the main thread's stays until the
    // process ends: ours and that one. If there is no answer, a thread may be left.
    sys::threads().is_some_and(|threads| threads <= 2) && is_main_zombie()
}

/// Returns true if the main thread is past its last instruction: its state, behind its name in
/// brackets, is a zombie's.
fn is_main_zombie() -> bool {
    // The process's own file describes the main thread, even if our thread reads it under this
    // name.
    let Ok(stat) = files::read(b"/proc/self/stat") else {
        return false;
    };
    let state = stat.iter().rposition(|&byte| byte == b')');
    matches!(state.and_then(|at| stat.get(at + 2)), Some(b'Z' | b'X'))
}

/// Ends the process as libc would have in the program's last thread. For the writer, which then
/// returns.
pub(crate) fn exit_as_last_thread() {
    if EXIT_WAS_RAW.load(Ordering::Relaxed) {
        return;
    }
    let thread = thread::current();
    thread.running_code.set(RunningCode::Program); // the program's exit handlers run here
    sys::restore_signals(0);
    // SAFETY: the program's last thread has ended: no other thread can be in `exit`.
    unsafe { libc::exit(0) }
}

/// Resets the state in a forked child, whose main thread is the one that forked.
pub(crate) fn after_fork() {
    MAIN_HAS_ENDED.store(false, Ordering::SeqCst);
    EXIT_WAS_RAW.store(false, Ordering::Relaxed);
}
