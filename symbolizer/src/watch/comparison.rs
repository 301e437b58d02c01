//! Comparison: the change of bytes and blocks in use since a moment, by row.
//!
//! ```text
//!   in use then   [ gone since | still there ]
//!   in use now                 [ still there | new since ]      change = new - gone
//! ```
//!
//! The blocks that are still there are the same samples on both sides and add no error: that of the
//! change is the error of those that are new and of those that are gone.

use heapprof_core::Estimate;

use crate::model::amount::Amount;
use crate::model::profile::Profile;

/// The heap at the moment that is compared with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moment {
    time_ns: u64,
    /// In use, by row.
    rows: Vec<Estimate>,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Comparison {
    /// The moment, since the start.
    pub(super) since_ns: u64,
    /// Until when.
    until_ns: u64,
    /// By row, what is new and what is gone.
    rows: Vec<(Estimate, Estimate)>,
}

impl Moment {
    /// The heap as the profile has it.
    pub(super) fn of(profile: &Profile) -> Moment {
        Moment {
            time_ns: profile.run.duration_ns,
            rows: profile.rows.iter().map(|row| row.totals.in_use).collect(),
        }
    }

    pub(super) fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// The change up to a later profile, of which `new` was allocated since the moment, by row.
    pub(super) fn compared(&self, profile: &Profile, new: &[Estimate]) -> Comparison {
        let none = Estimate::default();
        let of_row = |(index, row): (usize, &heapprof_core::Row)| {
            let new = new.get(index).unwrap_or(&none);
            let then = self.rows.get(index).unwrap_or(&none);
            let still_there = row.totals.in_use.without(new);
            (*new, then.without(&still_there))
        };
        Comparison {
            since_ns: self.time_ns,
            until_ns: profile.run.duration_ns,
            rows: profile.rows.iter().enumerate().map(of_row).collect(),
        }
    }
}

impl Comparison {
    /// The change of a row, in bytes or in blocks.
    pub(super) fn of_row(&self, row: usize, is_bytes: bool) -> Amount {
        let Some((new, gone)) = self.rows.get(row) else {
            return Amount::default();
        };
        let part = |estimate: &Estimate| match is_bytes {
            true => (estimate.bytes_f64(), estimate.bytes_error()),
            false => (estimate.objects_f64(), estimate.objects_error()),
        };
        let ((new_value, new_error), (gone_value, gone_error)) = (part(new), part(gone));
        Amount::of(
            new_value - gone_value,
            new_error.hypot(gone_error),
            new.samples.saturating_add(gone.samples),
        )
    }

    /// The growth of a row: its change a second, beside what it has in use.
    pub(super) fn growth_of_row(&self, profile: &Profile, row: usize, is_bytes: bool) -> Amount {
        let seconds = self.until_ns.saturating_sub(self.since_ns) as f64 / 1e9;
        let Some(now) = profile.rows.get(row).filter(|_| seconds > 0.0) else {
            return Amount::default();
        };
        let in_use = match is_bytes {
            true => now.totals.in_use.bytes_f64(),
            false => now.totals.in_use.objects_f64(),
        };
        let change = self.of_row(row, is_bytes);
        let most = in_use.max(in_use - change.value);
        Amount::of(
            change.value / seconds,
            change.error() / seconds,
            change.samples,
        )
        .beside(most / seconds)
    }

    /// The change of all rows, in bytes.
    pub(super) fn of_all(&self) -> Amount {
        let mut sum = Amount::default();
        for row in 0..self.rows.len() {
            sum += self.of_row(row, true);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::{Row, SizeClass, Totals, Weight};

    use super::*;

    fn profile(in_use: &[Estimate]) -> Profile {
        let row = |in_use: &Estimate| Row {
            stack: 0,
            class: SizeClass::of(1),
            totals: Totals {
                allocated: *in_use,
                in_use: *in_use,
            },
        };
        Profile {
            rows: in_use.iter().map(row).collect(),
            ..Profile::default()
        }
    }

    fn blocks(number: u64, weight: &Weight) -> Estimate {
        let mut sum = Estimate::default();
        (0..number).for_each(|_| sum.add(weight));
        sum
    }

    #[test]
    fn what_is_there_all_the_time_adds_no_error() {
        let weight = Weight::of(1000, 512 << 10);
        let then = profile(&[blocks(100, &weight), blocks(5, &weight)]);
        // 90 of 100 are still there, and 20 came; of the other row all are; a third row is new.
        let now = profile(&[blocks(110, &weight), blocks(5, &weight), blocks(2, &weight)]);
        let new = [blocks(20, &weight), blocks(0, &weight), blocks(2, &weight)];
        let comparison = Moment::of(&then).compared(&now, &new);
        let near =
            |is: f64, expected: f64| assert!((is - expected).abs() < 1e-3, "{is} {expected}");
        let change = comparison.of_row(0, true);
        near(change.value / blocks(10, &weight).bytes_f64(), 1.0);
        near(change.error() / blocks(30, &weight).bytes_error(), 1.0);
        assert_eq!(change.samples, 30);
        let same = comparison.of_row(1, true);
        assert_eq!((same.value, same.samples), (0.0, 0));
        near(same.error(), 0.0);
        let new = comparison.of_row(2, false);
        near(new.value / blocks(2, &weight).objects_f64(), 1.0);
        near(
            comparison.of_all().value / blocks(12, &weight).bytes_f64(),
            1.0,
        );
        assert_eq!(comparison.of_row(3, true), Amount::default());
    }
}
