//! Noise: how far apart two profiles of equal heaps are by sampling alone.
//!
//! If a site has no sample on one side, that side says nothing about its own error: the sum of `x²
//! (1 - p) / p²` over no samples is zero. But the samples of the other side tell what it would be
//! if both heaps were equal, and a difference is tested against that hypothesis. A block that one
//! side misses with odds of `a = (1 - p) / p` has a variance of `x² a` there. Each sample of the
//! other side stands for `1/p'` such blocks. So
//!
//! ```text
//!   variance if equal  =  Σ x² a₂ / p₁  over the samples of the first
//!                      +  Σ x² a₁ / p₂  over the samples of the second
//! ```
//!
//! is unbiased if the heaps are equal. For small blocks it is `(k₁ + k₂) R₁ R₂` for `k₁` and `k₂`
//! samples, the variance of the score test of two Poisson rates (Gu, Ng, Tang and Schucany 2008).
//! If both sides have the same interval, it equals what the samples of each side say about their
//! own error.
//!
//! Blocks of about an interval and more need a larger bound, because missing one is rare and large.
//! Example: for one block of 3 intervals, with `a = 0.05`, the two sides disagree once in ten
//! times, by four standard errors. If `κ` blocks are missed on average, their number is off by `3
//! √(κ + 2.1 √κ)` at most once in 370. This holds for `κ` far below 1, too (at `κ = 0.0027` it is
//! one block), whether one side misses or both. That is the variance plus `2.1 x` standard errors.
//! It need not exceed the variance of as many bytes in small blocks, `x² R / s` for a block of `s`,
//! which is the maximum.

use crate::model::amount::Amount;
use crate::model::noise::Noise;
use crate::model::precision::Precision;
use crate::model::profile::Profile;

impl Noise {
    /// Returns the errors of another profile that the amount in a row of this one implies, if the
    /// other has the same blocks and samples them so.
    pub(crate) fn implied(
        profile: &Profile,
        row: usize,
        amount: &Amount,
        other: &Sampling,
    ) -> Self {
        let row = &profile.rows[row];
        let all = &row.totals.allocated;
        let size = match all.objects_f64() {
            objects if objects > 0.0 => all.bytes_f64() / objects,
            _ => row.class.upper() as f64,
        }
        .max(1.0);
        let Some(interval) = other.interval_for(size) else {
            return Noise::default();
        };
        // How many blocks a sample stands for beyond itself is the odds of missing one on this
        // side.
        let own_odds = match all.samples {
            0 => 0.0,
            samples => (all.objects_f64() / samples as f64 - 1.0).max(0.0),
        };
        let objects = amount.samples as f64 * (1.0 + own_odds);
        if objects == 0.0 {
            return Noise::default();
        }
        // The sum of x² over blocks. If there are odds, the variance of the samples contains their
        // sum, times the odds. Blocks of a row have about one size, so for numbers by size the mean
        // gives the same sum.
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
}

/// How a profile samples blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    /// The longest interval that was in force. `None`: all blocks are recorded.
    longest: Option<f64>,
    /// From which size on all are.
    record_over: Option<f64>,
}

impl Sampling {
    /// That of a profile.
    pub(crate) fn of(profile: &Profile) -> Sampling {
        let run = &profile.run;
        let longest = run.intervals().map(|(_, most)| most).or(run.interval);
        let is_sampled = profile.precision() != Precision::Exact;
        Sampling {
            longest: longest
                .filter(|&longest| is_sampled && longest > 1)
                .map(|longest| longest as f64),
            record_over: run.record_over().map(|over| over as f64),
        }
    }

    /// The interval under which blocks of that size are sampled. `None`: all of them are recorded.
    fn interval_for(&self, size: f64) -> Option<f64> {
        let records_all = self.record_over.is_some_and(|over| size >= over);
        self.longest.filter(|_| !records_all)
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::{Estimate, Row, SizeClass, Totals, Weight};

    use super::*;
    use crate::model::measure::Measure;
    use crate::model::metric::Metric;
    use crate::model::run::Run;

    const R: u64 = 1 << 20;

    /// So many samples of blocks of that size, all in one row.
    fn of_blocks(samples: u64, size: u64, interval: u64) -> Profile {
        let mut allocated = Estimate::default();
        for _ in 0..samples {
            allocated.add(&Weight::of(size, interval));
        }
        let row = Row {
            stack: 0,
            class: SizeClass::of(size),
            totals: Totals {
                allocated,
                in_use: allocated,
            },
        };
        sampled_every(interval, vec![row])
    }

    fn sampled_every(interval: u64, rows: Vec<Row>) -> Profile {
        let run = Run {
            interval: Some(interval),
            ..Run::default()
        };
        Profile {
            run,
            rows,
            ..Profile::default()
        }
    }

    fn implied(profile: &Profile, other: &Profile) -> Noise {
        let amount = Measure::from(Metric::InUseBytes).of_row(profile, 0);
        Noise::implied(profile, 0, &amount, &Sampling::of(other))
    }

    fn near(is: f64, expected: f64) -> bool {
        (is / expected - 1.0).abs() < 1e-3
    }

    /// `k R₁ R₂` for small blocks.
    #[test]
    fn small_blocks_are_counts_of_marks_on_both_sides() {
        let noise = implied(&of_blocks(10, 64, 4096), &sampled_every(R, vec![]));
        let expected = 10.0 * 4096.0 * R as f64;
        assert!(
            (noise.variance() / expected - 1.0).abs() < 0.01,
            "{noise:?}"
        );
        // The other way round it is the same, sample by sample.
        let noise = implied(&of_blocks(10, 64, R), &sampled_every(4096, vec![]));
        assert!(
            (noise.variance() / expected - 1.0).abs() < 0.01,
            "{noise:?}"
        );
    }

    /// One block `x` of `n` intervals, of a heap that was recorded in full: a = 1 / (exp(n) - 1),
    /// and a variance of `x² (a + 2.1 √a)`, but not beyond `x² / n`.
    #[test]
    fn a_large_block_is_seldom_missed_and_counts_for_more() {
        for (n, expected) in [(6, 0.002_485 + 2.1 * 0.049_85), (3, 1.0 / 3.0)] {
            let size = n * R;
            let noise = implied(&of_blocks(1, size, 1), &sampled_every(R, vec![]));
            let x = size as f64;
            assert!(near(noise.variance(), x * x * expected), "{n}: {noise:?}");
        }
        // The blocks that two sites may miss add up, except the largest block, which is the largest
        // of both.
        let of = |n: u64| implied(&of_blocks(1, n * R, 1), &sampled_every(R, vec![]));
        let (six, seven) = (of(6), of(7));
        let mut both = six;
        both.merge(&seven);
        let mut turned = seven;
        turned.merge(&six);
        assert_eq!(both, turned);
        let variance = six.variance + seven.variance;
        let expected = variance + 2.1 * (7 * R) as f64 * variance.sqrt();
        assert!(near(both.variance(), expected), "{both:?}");
    }

    /// A number other than the size goes by its own squares, if these are known.
    #[test]
    fn squares_are_those_of_what_is_counted() {
        // Two samples of blocks of ln 2 intervals: four blocks, half of which are missed: a = 1.
        let profile = of_blocks(2, 726_817, R);
        let other = Sampling::of(&sampled_every(R, vec![]));
        let implied = |value, variance| {
            let amount = Amount {
                value,
                variance,
                samples: 2,
                ..Amount::default()
            };
            Noise::implied(&profile, 0, &amount, &other)
        };
        // All of 1000: 4 · 1000². One of 4000 and three of none: 16 · 1000², which the variance
        // says.
        assert!(near(implied(4000.0, 4e6).variance, 4e6));
        assert!(near(implied(4000.0, 16e6).variance, 16e6));
        assert!(near(implied(4000.0, 16e6).block, 2000.0));
        assert!(near(implied(4000.0, 1e6).variance, 4e6));
        assert!(near(implied(4000.0, 4e6).at_most, 4e6 / 2f64.ln()));
        let nothing = Amount::default();
        assert_eq!(
            Noise::implied(&profile, 0, &nothing, &other),
            Noise::default()
        );
    }

    #[test]
    fn what_is_recorded_in_full_misses_nothing() {
        let blocks = |size| of_blocks(1, size, 1);
        let recording_over = |over: &str| {
            let mut other = sampled_every(R, vec![]);
            other.run.settings = vec![("HEAPPROF_RECORD_OVER".into(), over.into())];
            other
        };
        let over = recording_over("65536");
        for (size, misses) in [(65_535, true), (65_536, false), (1 << 30, false)] {
            let noise = implied(&blocks(size), &over);
            assert_eq!(noise != Noise::default(), misses, "{size}");
        }
        assert_eq!(
            implied(&blocks(64), &sampled_every(1, vec![])),
            Noise::default()
        );
        assert_ne!(
            implied(&blocks(64), &sampled_every(2, vec![])),
            Noise::default()
        );
    }
}
