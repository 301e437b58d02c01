//! The descriptors of our thread: a table of its own.
//!
//! Threads share one table as a rule. A number that ours opens there, for an append or to read under `/proc`, is one that the
//! program may be about to take itself (`dup2` answers EBUSY while it is being opened), or closes, or finds taken where it
//! counted on it. So our thread leaves the program's table as it begins, and takes nothing along: what the program closes is
//! closed then, and whoever reads from the other end finds the end.
//!
//! ```text
//!  program's table   0 1 2 3 …   all threads of the program's; ours, where it cannot have its own
//!  our thread's      empty       then the log, held open; and for a moment what it appends to, or reads
//! ```
//!
//! Two things are in the program's table only: standard error, which the kernel hands over for a line (`pidfd_getfd`), and what
//! the end of the process wants. Where our thread may come to be the last one, and to call `exit` (`host/main_thread.rs`), it
//! therefore shares the program's. So it does where the kernel has no such calls (before Linux 5.9), or has a filter in
//! front of them that may not know them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::arch::registers::thread_pointer;
use crate::os::sys::{self, File};
use crate::os::{credentials, seccomp};

/// The thread that has a table of its own, by its thread pointer, which the kernel need not be asked
/// for; 0: none has.
static OWNER: AtomicU64 = AtomicU64::new(0);

/// In our thread, as it begins. `shares`: it is to share the program's table.
pub(crate) fn take_own(shares: bool) {
    let is_own = !shares && !credentials::is_filtered() && sys::leave_descriptors();
    let owner = if is_own { thread_pointer() } else { 0 };
    OWNER.store(owner, Ordering::SeqCst);
}

/// Whether our thread has a table of its own.
pub(crate) fn are_own() -> bool {
    OWNER.load(Ordering::SeqCst) != 0
}

/// The program's standard error. `None`: this thread cannot come by it.
pub(crate) fn standard_error() -> Option<File> {
    if OWNER.load(Ordering::SeqCst) != thread_pointer() {
        return Some(File::of_others(2));
    }
    if seccomp::has_filtered_itself() {
        return None; // with a filter that may not know what it takes
    }
    File::of_process(2).ok()
}

/// In a forked child: its thread is not there yet.
pub(crate) fn after_fork() {
    OWNER.store(0, Ordering::SeqCst);
}
