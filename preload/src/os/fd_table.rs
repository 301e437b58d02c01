//! The descriptor table of our thread, separate from the program's.
//!
//! Threads normally share one table. A number that our thread opens there, to append or to read
//! under `/proc`, can collide with the program. The program may be about to take this number, may
//! close it, or may find it taken. (`dup2` fails with EBUSY while the number is being opened.) So
//! our thread leaves the program's table as it begins, and takes nothing along. Descriptors that
//! the program closes are then really closed, and a reader at the other end sees the end.
//!
//! ```text
//!  program's table   0 1 2 3 …   all threads of the program; our thread, if it cannot leave
//!  our thread's      empty       then the log, held open, and briefly a file to append to or read
//! ```
//!
//! Two things exist in the program's table only. Standard error is duplicated by the kernel for
//! each line (`pidfd_getfd`). The end of the process also needs the program's table: our thread
//! shares it if our thread may become the last one and call `exit`. Our thread also shares it if
//! the kernel lacks the calls (before Linux 5.9), or if a seccomp filter may not know them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::arch::registers::thread_pointer;
use crate::os::sys::{self, File};
use crate::os::{credentials, seccomp};

/// The thread that has its own table, by its thread pointer, which is read without a system call. 0
/// if none has.
static OWNER: AtomicU64 = AtomicU64::new(0);

/// In our thread, as it begins: leaves the program's table, unless `shares` is set.
pub(crate) fn leave_program_table(shares: bool) {
    let is_own = !shares && !credentials::has_seccomp_filter() && sys::unshare_descriptors();
    let owner = if is_own { thread_pointer() } else { 0 };
    OWNER.store(owner, Ordering::SeqCst);
}

/// Returns true if our thread has its own table.
pub(crate) fn is_separate() -> bool {
    OWNER.load(Ordering::SeqCst) != 0
}

/// Returns the program's standard error, or `None` if this thread cannot reach it.
pub(crate) fn standard_error() -> Option<File> {
    if OWNER.load(Ordering::SeqCst) != thread_pointer() {
        return Some(File::borrowed(2));
    }
    if seccomp::has_installed_filter() {
        return None; // the filter may not know the calls for it
    }
    File::of_process(2).ok()
}

/// In a forked child: our thread does not exist yet.
pub(crate) fn after_fork() {
    OWNER.store(0, Ordering::SeqCst);
}
