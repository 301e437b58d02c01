//! Parent log: what a forked process knows about the log of its parent. From it, a reader finds the
//! blocks that were in use at the fork.
//!
//! The state is words only, so that the fork handler can write it.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::writer::log::output::{ForkOrigin, Output};

/// The process id of the nearest ancestor that has a log; 0 if this process was not forked.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// When that ancestor forked, by the monotonic clock.
static FORKED_NS: AtomicU64 = AtomicU64::new(0);
/// True if [`LOG`] is this process's own.
static HAS_LOG: AtomicBool = AtomicBool::new(false);
/// That ancestor's log, or this process's own. Leaked.
static LOG: AtomicPtr<ParentLog> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the origin of a forked process; `None` in a process that was not forked.
pub(crate) fn origin() -> Option<ForkOrigin> {
    let parent = PARENT.load(Ordering::Acquire);
    // SAFETY: null or leaked by `note_log`.
    let log = unsafe { LOG.load(Ordering::Acquire).as_ref() };
    (parent != 0).then(|| ForkOrigin {
        parent,
        forked_ns: FORKED_NS.load(Ordering::Acquire),
        log: log.map(|log| log.path.clone()).unwrap_or_default(),
        log_number: log.map_or(0, |log| log.number),
    })
}

/// A log that children may come from: its path, and the number that it states.
struct ParentLog {
    path: String,
    number: u64,
}

/// Notes the log of this process, which is the parent log of its children.
pub(crate) fn note_log(output: &Output) {
    let log = ParentLog {
        path: output.log_path(),
        number: output.start.log_number,
    };
    LOG.store(Box::into_raw(Box::new(log)), Ordering::Release);
    HAS_LOG.store(true, Ordering::Release);
}

/// Notes the fork in a forked child. If the parent has no log, the child keeps the parent's origin.
pub(crate) fn after_fork(parent: u32, forked_ns: u64) {
    if HAS_LOG.swap(false, Ordering::AcqRel) {
        PARENT.store(parent, Ordering::Release);
        FORKED_NS.store(forked_ns, Ordering::Release);
    }
}
