//! Blocks in use at the time of a reading of the memory, and which of these blocks lie in mappings.

use std::iter;

use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::profile::Profile;

/// Least requested bytes of a block whose slack may have pages of its own: an eighth of a class is
/// a page then.
const LEAST_LARGE: u64 = 32 << 10;
/// Standard errors of the blocks in use beyond which a difference is none of sampling.
const MOST_NOISE: f64 = 5.0;

/// The blocks in use at the time of a reading, as estimated from samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BlocksInUse {
    /// Requested bytes.
    pub requested: f64,
    /// Their standard error.
    pub error: f64,
    /// Usable bytes beyond the requested ones.
    pub slack: f64,
    /// The part of both that [other allocators](Profile::is_elsewhere) gave out.
    pub elsewhere: f64,
    /// The mean sampling interval, in bytes; 1 if all allocations are recorded.
    pub interval: u64,
    /// The bytes that were never touched, of the blocks that lie in mappings. `None`: not known.
    pub untouched: Option<f64>,
}

impl BlocksInUse {
    /// Returns those of a profile with pasts. `None`: nothing is sampled. `pages` is the profile at
    /// a reading of pages.
    pub(super) fn of(profile: &Profile, pages: Option<&Profile>) -> Option<BlocksInUse> {
        if profile.rows.is_empty() {
            return None;
        }
        let slack = || profile.pasts.iter().map(|past| past.slack.bytes_f64());
        let usable = profile.rows.iter().zip(slack().chain(iter::repeat(0.0)));
        let elsewhere = usable
            .filter(|(row, _)| profile.is_elsewhere(row.stack))
            .map(|(row, slack)| row.totals.in_use.bytes_f64() + slack);
        Some(BlocksInUse {
            requested: profile.numbers().get(Metric::InUseBytes) as f64,
            error: profile.error(Metric::InUseBytes).unwrap_or(0.0),
            slack: slack().sum(),
            elsewhere: elsewhere.sum(),
            interval: profile.run.longest_interval(),
            untouched: pages.map(untouched_in_mappings),
        })
    }

    /// Returns the largest difference that sampling makes. A block that has no sample may have some
    /// intervals, though the error of none is 0.
    pub(super) fn noise(&self) -> f64 {
        let interval = match self.interval {
            0 | 1 => 0.0,
            interval => interval as f64,
        };
        MOST_NOISE * self.error.max(interval)
    }
}

/// Returns true if blocks in use lie in the mappings of the waterfall: those of the program's own
/// allocator, and of allocators inside the program.
pub fn has_blocks_in_mappings(profile: &Profile) -> bool {
    let is_in_mapping = |stack| !profile.run.allocator.is_empty() || profile.is_elsewhere(stack);
    profile.rows.iter().any(|row| is_in_mapping(row.stack))
}

/// Returns the bytes of blocks in mappings that were never touched, at a reading of pages.
fn untouched_in_mappings(profile: &Profile) -> f64 {
    let is_own = !profile.run.allocator.is_empty();
    let rows = profile.rows.iter().enumerate();
    rows.filter(|(_, row)| is_own || profile.is_elsewhere(row.stack))
        .map(|(index, _)| Measure::Untouched.of_row(profile, index).value)
        .sum()
}

/// Returns the slack of the large blocks that lie in mappings.
pub(super) fn large_slack_in_mappings(profile: &Profile) -> f64 {
    let is_own = !profile.run.allocator.is_empty();
    let rows = profile.rows.iter().zip(&profile.pasts);
    rows.filter(|(row, _)| row.class.upper() > LEAST_LARGE)
        .filter(|(row, _)| is_own || profile.is_elsewhere(row.stack))
        .map(|(_, past)| past.slack.bytes_f64())
        .sum()
}
