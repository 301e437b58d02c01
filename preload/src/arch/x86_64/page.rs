//! Page: the unit in which the processor maps memory.

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of a huge page, for which one entry of a table of pages stands.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;
