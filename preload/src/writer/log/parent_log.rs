//! The origin of a process: what a forked one knows of the process it is a copy of, enough for a reader to find in that one's log
//! what was in use at the fork.
//!
//! Words only, so that the fork's handler can write them.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::writer::log::output::{Forked, Output};

/// Process id of the nearest ancestor that has a log; 0: this process was not forked.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// When that one forked, by the monotonic clock.
static FORKED_NS: AtomicU64 = AtomicU64::new(0);
/// Whether [`LOG`] is this process's own.
static HAS_LOG: AtomicBool = AtomicBool::new(false);
/// Path of that ancestor's log; this process's own, once it has one. Leaked.
static LOG: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());

/// As `writer/log/output.rs` wants it; `None` in a process that was not forked.
pub(crate) fn described() -> Option<Forked> {
    let parent = PARENT.load(Ordering::Acquire);
    // SAFETY: null or leaked by `remember`.
    let log = unsafe { LOG.load(Ordering::Acquire).as_ref() };
    (parent != 0).then(|| Forked {
        parent,
        forked_ns: FORKED_NS.load(Ordering::Acquire),
        log: log.cloned().unwrap_or_default(),
    })
}

/// Notes the log that this process's children will come from.
pub(crate) fn remember(output: &Output) {
    let path = Box::into_raw(Box::new(output.log_path()));
    LOG.store(path, Ordering::Release);
    HAS_LOG.store(true, Ordering::Release);
}

/// In a forked child. A parent without a log of its own passes on where it came from.
pub(crate) fn after_fork(parent: u32, forked_ns: u64) {
    if HAS_LOG.swap(false, Ordering::AcqRel) {
        PARENT.store(parent, Ordering::Release);
        FORKED_NS.store(forked_ns, Ordering::Release);
    }
}
