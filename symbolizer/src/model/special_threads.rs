//! Special threads: the numbers in a log that stand for no thread of the process.
//!
//! | number | what it stands for |
//! | --- | --- |
//! | [`BEFORE_THE_FORK`] | a forked process's parent, which allocated what the child began with |
//! | [`NOT_KEPT`] | all threads that allocated before the oldest segment that is kept of the log |
//! | [`WITH_ITS_PROCESS`] | the end of a process in a joined log, which frees its blocks |

use heapprof_format::{Alloc, Thread};

/// Number of the thread that inherited blocks are said to come from.
pub(crate) const BEFORE_THE_FORK: u32 = u32::MAX;

/// Returns true if a block is one that a forked process had from its parent.
pub(crate) fn is_inherited(alloc: &Alloc) -> bool {
    alloc.thread == BEFORE_THE_FORK
}

/// Number of the thread that is said to free what a process still has when it ends.
pub(crate) const WITH_ITS_PROCESS: u32 = u32::MAX - 2;

/// Number of the threads that allocated before the oldest segment that is kept.
pub(crate) const NOT_KEPT: u32 = u32::MAX - 1;

/// Returns the name of a thread: `server (tid 77)`.
pub(crate) fn name_of_thread(thread: &Thread) -> String {
    match (thread.name.as_str(), thread.tid) {
        ("", tid) => format!("tid {tid}"),
        (name, 0) => name.to_owned(), // none of the kernel's
        (name, tid) => format!("{name} (tid {tid})"),
    }
}

/// Returns a name for a thread of which a log has only the number.
pub(crate) fn name_of_unknown_thread(number: u32) -> String {
    match number {
        NOT_KEPT => "(before what is kept)".into(),
        _ => format!("thread {number}"),
    }
}
