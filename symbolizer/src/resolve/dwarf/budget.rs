//! Budget: how many bytes of one module may be read again.
//!
//! Honest DWARF is read about once. In a hostile file many entries can refer to the same long range
//! list, or many units to the same line program. Each such read is paid from an amount in
//! proportion to the size of the file. When the budget is spent, the rest of the module stays
//! unnamed, and the report says so.

use super::Dwarf;
use gimli::{Reader, Section};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// How often a byte may be read on average. Large real binaries (rustc, LLVM, Chromium's style of
/// debug information) stay below 4; inlining makes range lists long, but every list has its own
/// bytes.
const READS_A_BYTE: i64 = 64;
/// So that tiny files need no thought.
const LEAST: i64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReadError {
    #[error("debug information is damaged")]
    Dwarf(#[from] gimli::Error),
    #[error("debug information refers to the same data too often: the rest is left out")]
    Spent,
}

pub(super) struct Budget {
    /// Bytes (or rows, or ranges: about the same) that may still be read. Any thread takes from it;
    /// no other memory depends on the value, so no ordering is needed.
    left: AtomicI64,
}

impl Budget {
    pub(super) fn for_sections(dwarf: &Dwarf<'_>) -> Self {
        let mut bytes = dwarf.debug_info.reader().len()
            + dwarf.debug_line.reader().len()
            + dwarf.ranges.debug_ranges().reader().len()
            + dwarf.ranges.debug_rnglists().reader().len();
        if let Some(sup) = dwarf.sup() {
            bytes += sup.debug_info.reader().len();
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        Budget {
            left: AtomicI64::new(LEAST.saturating_add(bytes.saturating_mul(READS_A_BYTE))),
        }
    }

    /// Adds what another file allows, of which so many bytes are to be read.
    pub(super) fn add(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let amount = bytes.saturating_mul(READS_A_BYTE).min(i64::MAX / 4);
        // Never past the largest number; spending it all takes longer than anybody waits.
        if (0..i64::MAX / 4).contains(&self.left.load(Relaxed)) {
            self.left.fetch_add(amount, Relaxed);
        }
    }

    /// Pays for reading `amount`.
    pub(super) fn spend(&self, amount: u64) -> Result<(), ReadError> {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX).min(i64::MAX / 2);
        // Once below zero it is left there: subtracting on could wrap around.
        if self.left.load(Relaxed) < 0 || self.left.fetch_sub(amount, Relaxed) < amount {
            return Err(ReadError::Spent);
        }
        Ok(())
    }
}
