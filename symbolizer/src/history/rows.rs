//! Rows: the sums of each row so far, and the state of each at the global maximum. The ledger has
//! what is in use by a row.
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

use heapprof_core::{Estimate, Estimates, Fixed, Ledger, Weight};

use crate::history::over_time::OverTime;
use crate::history::pages::Pages;
use crate::history::past::Past;
use crate::history::past_numbers::PastNumbers;
use crate::history::slope::Sums;

/// The sums of all rows so far. There may be tens of thousands of rows, and each event changes
/// another: so each number has its own list by row, which may be shorter than the rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    /// How many rows there are.
    len: usize,
    /// Usable bytes beyond those requested of the samples in use, and their variance.
    slack: Vec<[Fixed; 2]>,
    heaptime: Vec<OverTime>,
    growth: Vec<Sums>,
    temporary: Estimates<1>,
    /// In use at a maximum, and the number of that maximum.
    peaks: Vec<Estimate>,
    peak_of: Vec<u64>,
    /// The number of maxima so far.
    maximum: u64,
}

/// Returns the item of a row.
#[inline]
fn at<T: Copy>(items: &mut Vec<T>, row: u32, new: T) -> &mut T {
    let index = row as usize;
    if index >= items.len() {
        items.resize(index + 1, new);
    }
    &mut items[index]
}

impl Rows {
    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// There is a row of that number.
    pub(super) fn add(&mut self, row: u32) {
        self.len = self.len.max(row as usize + 1);
    }

    /// A new maximum of all rows together: each is now as it is at that maximum.
    pub(super) fn reach_maximum(&mut self) {
        self.maximum += 1;
    }

    /// The row is about to be changed in the ledger.
    pub(super) fn keep_state_at_maximum(&mut self, row: u32, ledger: &Ledger) {
        // A row that was not there at any maximum so far had nothing in use then.
        let peak_of = at(&mut self.peak_of, row, self.maximum);
        if *peak_of < self.maximum {
            *peak_of = self.maximum;
            *at(&mut self.peaks, row, Estimate::default()) = ledger.in_use_at(row);
        }
    }

    /// The slack of a row.
    pub(super) fn slack(&mut self, row: u32) -> &mut [Fixed; 2] {
        at(&mut self.slack, row, [Fixed::default(); 2])
    }

    /// The memory of a row over time.
    pub(super) fn heaptime(&mut self, row: u32) -> &mut OverTime {
        at(&mut self.heaptime, row, OverTime::default())
    }

    /// The growth of a row.
    pub(super) fn growth(&mut self, row: u32) -> &mut Sums {
        at(&mut self.growth, row, Sums::default())
    }

    /// The temporary blocks, by row.
    pub(super) fn temporary(&mut self) -> &mut Estimates<1> {
        &mut self.temporary
    }

    /// Returns the past of each row in a window of so many seconds. `pages` are those of the first
    /// rows.
    pub(super) fn pasts(
        mut self,
        ledger: &Ledger,
        mut pages: Vec<Pages>,
        numbers: PastNumbers,
        seconds: f64,
    ) -> Vec<Past> {
        let rows = 0..self.len as u32;
        let past = |row: u32| {
            if numbers.peak {
                self.keep_state_at_maximum(row, ledger);
            }
            let in_use = ledger.in_use_at(row);
            let [objects, _, objects_variance, _] = in_use.to_bits();
            let [slack, slack_variance] = self.slack(row).map(Fixed::to_bits);
            Past {
                peak: *at(&mut self.peaks, row, Estimate::default()),
                temporary: self.temporary.get(row as usize)[0],
                heaptime: *self.heaptime(row),
                slack: Estimate::from_bits(
                    in_use.samples,
                    [objects, slack, objects_variance, slack_variance],
                ),
                growth: self.growth(row).over(seconds),
                pages: *at(&mut pages, row, Pages::default()),
                ..Past::default()
            }
        };
        rows.map(past).collect()
    }
}

/// The bytes and the variance that the slack of a block with that weight stands for.
pub(super) fn slack_of(slack: u64, weight: &Weight) -> [Fixed; 2] {
    let carried = weight.carrying(slack);
    [carried.bytes_fixed(), carried.bytes_variance_fixed()]
}
