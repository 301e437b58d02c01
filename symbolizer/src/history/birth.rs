//! Birth: a block in use, from its allocation on.

use heapprof_core::Live;

/// A block in use: the ledger's sample, and what a past needs beside it. There may be a hundred
/// million.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Birth {
    pub(super) live: Live,
    pub(super) time_ns: u64,
    /// The slack, with [`COUNTS`] and [`INHERITED`]. No slack comes near them.
    pub(super) slack: u64,
}

const _: () = assert!(size_of::<Birth>() == 32);

/// The block came in the window, and not before.
pub(super) const COUNTS: u64 = 1 << 63;
/// The block was inherited.
pub(super) const INHERITED: u64 = 1 << 62;

/// A sampled block that was allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// The sample.
    pub id: u64,
    /// Index of its stack.
    pub stack: u32,
    /// The thread that allocated it.
    pub thread: u32,
    /// Bytes requested.
    pub size: u64,
    /// Usable bytes beyond them.
    pub slack: u64,
    /// The mean interval that it was sampled under.
    pub interval: u64,
    /// When.
    pub time_ns: u64,
    /// True if it was in use already at that time, because a forked process had it from its parent:
    /// how long it lived is not known.
    pub inherited: bool,
}

impl Birth {
    pub(super) fn counts(&self) -> bool {
        self.slack & COUNTS != 0
    }

    pub(super) fn is_inherited(&self) -> bool {
        self.slack & INHERITED != 0
    }

    /// Usable bytes beyond those requested.
    pub(super) fn slack(&self) -> u64 {
        self.slack & !(COUNTS | INHERITED)
    }

    pub(super) fn lived_ns(&self, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.time_ns)
    }

    /// How long it lived since then.
    pub(super) fn held_ns(&self, since_ns: u64, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.time_ns.max(since_ns))
    }
}
