//! Noise: how far apart two profiles of one and the same heap would be, by sampling alone.
//!
//! A site with no sample on one side says nothing of that side's error: the sum of `x² (1 - p) / p²` over no samples is
//! none. But the other side's samples say what it would be if both heaps were the same, which is what a difference
//! is tested against. A block that the one missed with odds of `a = (1 - p) / p` has a variance of `x² a` there; each sample of the
//! other side stands for `1/p'` such blocks. So
//!
//! ```text
//!   variance if equal  =  Σ x² a₂ / p₁  over the samples of the first  +  Σ x² a₁ / p₂  over those of the second
//! ```
//!
//! is unbiased where the heaps are equal. When blocks are small it is `(k₁ + k₂) R₁ R₂` for `k₁` and `k₂` samples, the variance of the
//! score test of two Poisson rates (Gu, Ng, Tang and Schucany 2008). With one interval on both sides it is what the samples of
//! each side say of their own, so nothing changes there.
//!
//! Blocks of the size of an interval and beyond need more. Of one block of 3 intervals, with `a = 0.05`, the two sides
//! disagree once in ten times, by four standard errors: what is missed is seldom, and large. If `κ` blocks are missed on
//! average, their number is off by `3 √(κ + 2.1 √κ)` at most once in 370, also where κ is far below 1 (at κ = 0.0027 that
//! is one block), whether one side misses or both. That is the variance plus `2.1 x` standard errors; it need not be more than the variance of as many
//! bytes in small blocks, `x² R / s` for a block of `s`, which is the most there can be.

use crate::measure::Amount;
use crate::profile::{Precision, Profile};

/// See the module's text. Sums over blocks, so parts add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Noise {
    /// Of the difference, if both heaps are the same.
    variance: f64,
    /// The same, if the bytes were in small blocks.
    at_most: f64,
    /// What the largest block that may be missed brings.
    block: f64,
}

impl Noise {
    /// What the amount in a row of one profile says of the errors of another, if that has the same blocks.
    pub(crate) fn implied(profile: &Profile, row: usize, amount: &Amount, other: &Profile) -> Self {
        let row = &profile.rows[row];
        let all = &row.totals.allocated;
        let size = match all.objects_f64() {
            objects if objects > 0.0 => all.bytes_f64() / objects,
            _ => row.class.upper() as f64,
        }
        .max(1.0);
        let Some(interval) = interval_for(other, size) else {
            return Noise::default();
        };
        // How many blocks a sample stands for beyond itself is the odds of missing one on this side.
        let own_odds = match all.samples {
            0 => 0.0,
            samples => (all.objects_f64() / samples as f64 - 1.0).max(0.0),
        };
        let objects = amount.samples as f64 * (1.0 + own_odds);
        if objects == 0.0 {
            return Noise::default();
        }
        // The sum of x² over blocks. That of samples is in their variance, times the odds, where there are any; blocks of a row are of about
        // one size, and the mean says the same of all that goes by that.
        let of_mean = amount.value * amount.value / objects;
        let squares = match own_odds > 1e-3 {
            true => of_mean.max(amount.variance / own_odds),
            false => of_mean,
        };
        Noise {
            variance: squares / (size / interval).exp_m1(),
            at_most: squares * interval / size,
            block: (squares / objects).sqrt(),
        }
    }

    /// Adds that of other blocks.
    pub(crate) fn merge(&mut self, other: &Noise) {
        self.variance += other.variance;
        self.at_most += other.at_most;
        self.block = self.block.max(other.block);
    }

    /// The variance to test a difference against.
    pub(crate) fn variance(&self) -> f64 {
        (self.variance + 2.1 * self.block * self.variance.sqrt()).min(self.at_most)
    }
}

/// The interval under which a profile samples blocks of that size: the longest that was in force. `None`: all of them are recorded.
fn interval_for(profile: &Profile, size: f64) -> Option<f64> {
    let run = &profile.run;
    let records_all = run.record_over().is_some_and(|over| size >= over as f64);
    if records_all || profile.precision() == Precision::Exact {
        return None;
    }
    let longest = run.intervals().map(|(_, most)| most).or(run.interval)?;
    (longest > 1).then_some(longest as f64)
}
