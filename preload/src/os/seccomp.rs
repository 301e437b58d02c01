//! What the program's filters of system calls may end it for although they let us record: behind such a filter each of these is left
//! out, or done another way. `host/seccomp_filters.rs` finds out which; of filters that were there when we came nothing is known.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::os::credentials;

/// Something that needs other system calls than recording does.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Spared {
    /// A session that begins, in a forked process.
    Beginning = 1,
    /// Looking at a path without a descriptor.
    StatAt = 2,
    /// Asking for a thread by signal 0.
    ThreadAsked = 4,
    /// Asking which folder is the current one.
    WorkingFolder = 8,
    /// Asking whether this thread is on a signal stack.
    SignalStackAsked = 16,
}

/// Those that are not.
static FORBIDDEN: AtomicU32 = AtomicU32::new(0);

impl Spared {
    /// It may not be done from now on, in this process and those that it forks.
    pub(crate) fn forbid(self) {
        FORBIDDEN.fetch_or(self as u32, Ordering::Relaxed);
    }

    /// Whether it may be done.
    pub(crate) fn is_allowed(self) -> bool {
        FORBIDDEN.load(Ordering::Relaxed) & self as u32 == 0
    }
}

/// Whether the program was under a system call filter when it began.
static WAS_FILTERED: AtomicBool = AtomicBool::new(false);

/// At boot.
pub(crate) fn prepare() {
    WAS_FILTERED.store(credentials::is_filtered(), Ordering::Relaxed);
}

/// Returns true if the program has put itself under a filter since it began: the filter may end the
/// process for a call that it does not expect.
pub(crate) fn has_filtered_itself() -> bool {
    credentials::is_filtered() && !WAS_FILTERED.load(Ordering::Relaxed)
}
