//! Avoidable system calls: calls that recording can do without, and for which the program's seccomp
//! filter may end the process. Under such a filter, each is skipped or replaced. The host folder
//! determines which calls a new filter forbids; filters that precede this library are unknown.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::os::credentials;

/// An action that needs other system calls than recording needs.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum AvoidableCall {
    /// The start of a session in a forked process.
    SessionStart = 1,
    /// The status of a path, without a descriptor.
    StatAt = 2,
    /// A check for a thread by signal 0.
    ThreadCheck = 4,
    /// A query for the working directory.
    WorkingDirectory = 8,
    /// A check whether this thread is on a signal stack.
    SignalStackCheck = 16,
    /// A query for a limit of the process, for the descriptor of a thread, or for the time that
    /// this thread had on a processor.
    MemoryQuery = 32,
    /// A scan of the page map.
    PageScan = 64,
}

/// Bits of the forbidden actions.
static FORBIDDEN: AtomicU32 = AtomicU32::new(0);

impl AvoidableCall {
    /// Forbids the action from now on, in this process and in processes that it forks.
    pub(crate) fn forbid(self) {
        FORBIDDEN.fetch_or(self as u32, Ordering::Relaxed);
    }

    /// Returns true if the action is allowed.
    pub(crate) fn is_allowed(self) -> bool {
        FORBIDDEN.load(Ordering::Relaxed) & self as u32 == 0
    }
}

/// True if the program started under a seccomp filter.
static HAD_FILTER_AT_BOOT: AtomicBool = AtomicBool::new(false);

/// At boot: checks whether the process is under a seccomp filter already.
pub(crate) fn prepare() {
    HAD_FILTER_AT_BOOT.store(credentials::has_seccomp_filter(), Ordering::Relaxed);
}

/// Returns true if the program has put itself under a seccomp filter after its start. The filter
/// may end the process for a call that it does not expect.
pub(crate) fn has_installed_filter() -> bool {
    credentials::has_seccomp_filter() && !HAD_FILTER_AT_BOOT.load(Ordering::Relaxed)
}
