//! Limit: whether a number, or its growth, exceeds what is allowed by more than noise.
//!
//! Tests that watch over memory ask this again and again, so false alarms must be rare, and a test
//! must not pass on noise. A sampled number is above its limit, or within it, by [`REAL`] standard
//! errors or more; nearer to the limit it cannot be judged. The probability that a heap exactly at
//! its limit gets past either bound by sampling alone is the tail of a normal distribution beyond
//! `REAL`. Differences between two runs of the program itself are not part of that.
//!
//! ```text
//!   limit             excess                 its standard error
//!   of a number       n - L                  σ(n)
//!   of growth         a - b - L              σ(a - b)
//!   a share of it     a - b - p b            at most σ(a - b) + p σ(b)
//! ```
//!
//! The last line holds for any dependence between the samples of `b` and of `a - b` (Minkowski's
//! inequality): two moments of one log share some samples, two logs share none.

use crate::model::amount::Amount;
use crate::model::change::{Change, REAL};

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// So many, in the unit of what is limited.
    Amount(f64),
    /// For growth: a share of the amount before, 0.05 being five hundredths.
    Share(f64),
}

/// The answer to whether a limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It is not more.
    Within,
    /// Noise may have made that it is more, or that it is not.
    Unsure,
    /// It is more.
    Exceeded,
}

impl Limit {
    /// How much a number may grow that was `before`.
    pub fn allows(self, before: f64) -> f64 {
        match self {
            Limit::Amount(amount) => amount,
            Limit::Share(share) => share * before.max(0.0),
        }
    }

    /// Judges the growth of a number. `unseen` is what may be there without a sample, zero for
    /// exact numbers. For dumps that do not state their errors, the numbers count as they are.
    pub fn of_growth(self, change: &Change, unseen: f64) -> Ruling {
        let excess = change.difference() - self.allows(change.before);
        if change.is_unsure {
            return rule(excess, 0.0, 0.0);
        }
        let share = match self {
            Limit::Amount(_) => 0.0,
            Limit::Share(share) => share,
        };
        let error = change.error() + share * change.before_variance.max(0.0).sqrt();
        match change.may_be_missed && error == 0.0 {
            true => rule(excess, f64::INFINITY, unseen),
            false => rule(excess, REAL * error, REAL * error),
        }
    }

    /// Judges a number. A share is a share of zero. `unseen` is as in
    /// [`of_growth`](Self::of_growth).
    pub fn of_number(self, amount: &Amount, unseen: f64) -> Ruling {
        let excess = amount.value - self.allows(0.0);
        let margin = REAL * amount.error();
        match amount.samples {
            0 => rule(excess, margin, margin.max(unseen)),
            _ => rule(excess, margin, margin),
        }
    }
}

/// An excess of `above` or more is certain. A number at least `below` under its limit is within it.
fn rule(excess: f64, above: f64, below: f64) -> Ruling {
    if excess + below <= 0.0 {
        Ruling::Within
    } else if excess > 0.0 && excess >= above {
        Ruling::Exceeded
    } else {
        Ruling::Unsure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(value: f64, error: f64) -> Amount {
        Amount {
            value,
            variance: error * error,
            samples: 9,
            ..Amount::default()
        }
    }

    fn grew(before: (f64, f64), after: (f64, f64)) -> Change {
        Change {
            before: before.0,
            after: after.0,
            plus: amount(after.0, after.1),
            minus: amount(before.0, before.1),
            before_variance: before.1 * before.1,
            may_be_missed: before.1 > 0.0,
            ..Change::default()
        }
    }

    #[test]
    fn an_exact_number_is_above_or_not() {
        let limit = Limit::Amount(100.0);
        assert_eq!(limit.of_number(&amount(100.0, 0.0), 0.0), Ruling::Within);
        assert_eq!(limit.of_number(&amount(101.0, 0.0), 0.0), Ruling::Exceeded);
        let change = grew((1000.0, 0.0), (1100.0, 0.0));
        assert_eq!(limit.of_growth(&change, 0.0), Ruling::Within);
        assert_eq!(Limit::Share(0.1).of_growth(&change, 0.0), Ruling::Within);
        assert_eq!(
            Limit::Share(0.099).of_growth(&change, 0.0),
            Ruling::Exceeded
        );
        assert_eq!(
            Limit::Amount(99.0).of_growth(&change, 0.0),
            Ruling::Exceeded
        );
        // Shrinkage is within any limit, also within a share of zero or less.
        let shrank = grew((50.0, 0.0), (-20.0, 0.0));
        assert_eq!(Limit::Share(0.0).of_growth(&shrank, 0.0), Ruling::Within);
        let from_below = grew((-50.0, 0.0), (-20.0, 0.0));
        assert_eq!(
            Limit::Share(0.5).of_growth(&from_below, 0.0),
            Ruling::Exceeded
        );
    }

    #[test]
    fn a_sampled_number_is_judged_from_three_standard_errors_on() {
        let limit = Limit::Amount(100.0);
        assert_eq!(limit.of_number(&amount(70.0, 10.0), 0.0), Ruling::Within);
        assert_eq!(limit.of_number(&amount(71.0, 10.0), 0.0), Ruling::Unsure);
        assert_eq!(limit.of_number(&amount(129.0, 10.0), 0.0), Ruling::Unsure);
        assert_eq!(limit.of_number(&amount(130.0, 10.0), 0.0), Ruling::Exceeded);
        // σ of the difference is 5, and a tenth of 4 comes on top: 3 × 5.4 above 100.
        let change = |after| grew((1000.0, 4.0), (after, 3.0));
        let tenth = Limit::Share(0.1);
        assert_eq!(tenth.of_growth(&change(1116.0), 0.0), Ruling::Unsure);
        assert_eq!(tenth.of_growth(&change(1116.3), 0.0), Ruling::Exceeded);
        assert_eq!(
            Limit::Amount(100.0).of_growth(&change(1115.0), 0.0),
            Ruling::Exceeded
        );
        assert_eq!(
            Limit::Amount(100.0).of_growth(&change(1114.9), 0.0),
            Ruling::Unsure
        );
    }

    #[test]
    fn what_is_not_known_to_be_exact() {
        let mut change = grew((0.0, 0.0), (100.0, 0.0));
        change.may_be_missed = true;
        assert_eq!(Limit::Amount(0.0).of_growth(&change, 0.0), Ruling::Unsure);
        change.is_unsure = true;
        assert_eq!(Limit::Amount(0.0).of_growth(&change, 0.0), Ruling::Exceeded);
    }

    #[test]
    fn what_no_sample_was_seen_of_may_be_there() {
        let none = Amount::default();
        let limit = Limit::Amount(100.0);
        assert_eq!(limit.of_number(&none, 100.0), Ruling::Within);
        assert_eq!(limit.of_number(&none, 101.0), Ruling::Unsure);
        let mut change = grew((0.0, 0.0), (0.0, 0.0));
        change.may_be_missed = true;
        assert_eq!(limit.of_growth(&change, 100.0), Ruling::Within);
        assert_eq!(limit.of_growth(&change, 101.0), Ruling::Unsure);
    }
}
