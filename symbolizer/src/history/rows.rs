//! Rows: the sums of each row so far, and the state of each at the global maximum.
//!
//! The states at the maximum are found without a copy of all rows at each new maximum. Maxima are
//! numbered. If a row is about to change, and has not changed since the last maximum, it still has
//! its state of that maximum:
//!
//! ```text
//!   total      ╱╲     ╱‾╲        maximum     1      2
//!          ___╱  ╲___╱   ╲__     row a   changes at 1, then after 2: kept as it stands before that
//!             1      2           row b   never changes after 1: at the end, it is as it was at 2
//! ```

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
    peak: Estimate,
    /// The maximum up to which `peak` is right.
    maximum: u64,
}

impl Row {
    /// Returns the past, in a window of so many seconds.
    fn past(&self, pages: Pages, seconds: f64) -> Past {
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

/// The rows. See the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    /// The number of maxima so far.
    maximum: u64,
}

impl Rows {
    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// A new maximum of all rows together: each is now as it is at that maximum.
    pub(super) fn reach_maximum(&mut self) {
        self.maximum += 1;
    }

    /// The row, about to be changed.
    pub(super) fn row(&mut self, index: u32) -> &mut Row {
        let index = index as usize;
        if index >= self.rows.len() {
            // A row that was not there at any maximum so far had nothing in use then.
            let maximum = self.maximum;
            self.rows.resize_with(index + 1, || Row {
                maximum,
                ..Row::default()
            });
        }
        let row = &mut self.rows[index];
        if row.maximum < self.maximum {
            row.peak = row.in_use;
            row.maximum = self.maximum;
        }
        row
    }

    /// Returns the past of each row in a window of so many seconds. `pages` are those of the first
    /// rows.
    pub(super) fn pasts(mut self, pages: Vec<Pages>, seconds: f64) -> Vec<Past> {
        for index in 0..self.rows.len() {
            self.row(index as u32);
        }
        let pages = pages.into_iter().chain(std::iter::repeat(Pages::default()));
        let rows = self.rows.iter().zip(pages);
        rows.map(|(row, pages)| row.past(pages, seconds)).collect()
    }
}

/// The bytes and the variance that the slack of a block with that weight stands for.
pub(super) fn slack_of(slack: u64, weight: &Weight) -> [Fixed; 2] {
    let carried = weight.carrying(slack);
    [carried.bytes_fixed(), carried.bytes_variance_fixed()]
}
