//! What a filter of system calls that spares the recording would end the process for all the same: each is left out behind it, or done
//! another way. `fence.rs` finds out; filters that were there when we came are not known.

use std::sync::atomic::{AtomicU32, Ordering};

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
}

/// Those that are not let.
static NOT_LET: AtomicU32 = AtomicU32::new(0);

impl Spared {
    /// From now on, in this process and those that it forks.
    pub(crate) fn is_not_let(self) {
        NOT_LET.fetch_or(self as u32, Ordering::Relaxed);
    }

    /// Whether it may be done.
    pub(crate) fn is_let(self) -> bool {
        NOT_LET.load(Ordering::Relaxed) & self as u32 == 0
    }
}
