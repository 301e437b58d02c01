//! Row: the sums of a row so far, from which its past is made.

use heapprof_core::{Estimate, Fixed, Weight};

use crate::history::over_time::OverTime;
use crate::history::pages::Pages;
use crate::history::past::Past;
use crate::history::slope::Sums;

/// The sums of a row so far. There may be tens of thousands of rows, and each event changes one:
/// what is the same in two sums stands here once, and what few logs have is not here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    pub(super) in_use: Estimate,
    /// Usable bytes beyond those requested of the samples in use, and their variance.
    pub(super) slack: [Fixed; 2],
    pub(super) heaptime: OverTime,
    pub(super) growth: Sums,
    pub(super) temporary: Estimate,
    pub(super) peak: Estimate,
    /// The maximum up to which `peak` is right.
    pub(super) maximum: u64,
}

impl Row {
    /// Returns the past, in a window of so many seconds.
    pub(super) fn past(&self, pages: Pages, seconds: f64) -> Past {
        let [objects, _, objects_variance, _] = self.in_use.to_bits();
        let [slack, slack_variance] = self.slack.map(Fixed::to_bits);
        Past {
            peak: self.peak,
            temporary: self.temporary,
            heaptime: self.heaptime,
            slack: Estimate::from_bits(
                self.in_use.samples,
                [objects, slack, objects_variance, slack_variance],
            ),
            growth: self.growth.over(seconds),
            pages,
            ..Past::default()
        }
    }
}

/// The bytes and the variance that the slack of a block with that weight stands for.
pub(super) fn slack_of(slack: u64, weight: &Weight) -> [Fixed; 2] {
    let carried = weight.carrying(slack);
    [carried.bytes_fixed(), carried.bytes_variance_fixed()]
}
