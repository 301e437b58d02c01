//! Weights: what one sample stands for. Law 8: unsampling happens here and nowhere else.
//!
//! A block of `s` bytes was sampled with probability `p = 1 - exp(-s / interval)`, so its sample
//! stands for `1/p` blocks and `s/p` bytes (Horvitz and Thompson 1952): sums of such weights are
//! unbiased whatever mixture of sizes they range over. The variance of such a sum is estimated,
//! from the samples alone, by the sum of `x² (1 - p) / p²`, where `x` is 1 for blocks and `s` for
//! bytes; it is additive, up call trees and across logs.
//!
//! Weights are fixed-point numbers, so that sums do not depend on their order, a free takes away
//! exactly what its allocation added, and the writer's account and a replay of its log are equal to
//! the last bit.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::sampler::bytes_on_the_line;

/// A fixed-point number with 32 bits behind the point. Room for 2^95 before it: no sum of real
/// samples overflows; one of numbers that a hostile file claims stays at the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fixed(i128);

impl Fixed {
    const ONE: f64 = (1u64 << 32) as f64;

    /// The whole number.
    pub fn from_int(value: u64) -> Self {
        Fixed(i128::from(value) << 32)
    }

    /// The nearest fixed-point number; halves go away from zero.
    #[inline]
    pub fn from_f64(value: f64) -> Self {
        const TWO_TO_63: f64 = (1u64 << 63) as f64;
        let scaled = value * Self::ONE;
        if (0.0..TWO_TO_63).contains(&scaled) {
            // What is below it is an instruction of the processor's, and the difference is exact: a call less each
            // than for `round` and for 128 bits.
            let below = scaled as i64;
            let up = scaled - below as f64 >= 0.5;
            return Fixed(i128::from(below) + i128::from(up));
        }
        Fixed(scaled.round() as i128)
    }

    /// The number in units of 2^-32.
    pub fn to_bits(self) -> i128 {
        self.0
    }

    /// The number of so many units of 2^-32.
    pub fn from_bits(bits: i128) -> Self {
        Fixed(bits)
    }

    /// The nearest floating-point number.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / Self::ONE
    }

    /// The nearest whole number, halves up; below zero is zero.
    pub fn round(self) -> u64 {
        u64::try_from(self.0.saturating_add(1 << 31) >> 32).unwrap_or(if self.0 < 0 {
            0
        } else {
            u64::MAX
        })
    }
}

impl Add for Fixed {
    type Output = Fixed;
    fn add(self, other: Fixed) -> Fixed {
        Fixed(self.0.saturating_add(other.0))
    }
}

impl Sub for Fixed {
    type Output = Fixed;
    fn sub(self, other: Fixed) -> Fixed {
        Fixed(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Fixed {
    fn add_assign(&mut self, other: Fixed) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl SubAssign for Fixed {
    fn sub_assign(&mut self, other: Fixed) {
        self.0 = self.0.saturating_sub(other.0);
    }
}

/// What one sample contributes to an [`Estimate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    objects: Fixed,
    bytes: Fixed,
    objects_variance: Fixed,
    bytes_variance: Fixed,
}

impl Weight {
    /// The weight of a sampled block of `size` requested bytes, chosen under a mean interval of
    /// `interval` bytes. An interval of 0 or 1 means that every block was taken: it stands for
    /// itself, exactly.
    pub fn of(size: u64, interval: u64) -> Self {
        if interval <= 1 {
            return Weight {
                objects: Fixed::from_int(1),
                bytes: Fixed::from_int(size),
                objects_variance: Fixed::default(),
                bytes_variance: Fixed::default(),
            };
        }
        let on_line = bytes_on_the_line(size) as f64;
        // expm1: for small s/R, 1 - exp(-s/R) would lose its digits.
        let p = -libm::expm1(-on_line / interval as f64);
        let spread = (1.0 - p) / (p * p);
        let x = size as f64;
        Weight {
            objects: Fixed::from_f64(1.0 / p),
            bytes: Fixed::from_f64(x / p),
            objects_variance: Fixed::from_f64(spread),
            bytes_variance: Fixed::from_f64(x * x * spread),
        }
    }

    /// Whether it brings no variance: every block was taken.
    #[inline]
    fn is_exact(&self) -> bool {
        (self.objects_variance.0 | self.bytes_variance.0) == 0
    }

    /// The same sample, seen as a block that carries `bytes` of something other than its size, such
    /// as the slack behind it: it stands for `bytes / p` of them, with variance
    /// `bytes² (1 - p) / p²`.
    #[inline]
    pub fn carrying(&self, bytes: u64) -> Weight {
        if self.is_exact() {
            // One block, which stands for itself.
            return Weight {
                bytes: Fixed::from_int(bytes),
                ..*self
            };
        }
        let x = i128::from(bytes);
        Weight {
            bytes: Fixed(self.objects.0.saturating_mul(x)),
            bytes_variance: Fixed(self.objects_variance.0.saturating_mul(x).saturating_mul(x)),
            ..*self
        }
    }

    /// Blocks that the sample stands for.
    pub fn objects_f64(&self) -> f64 {
        self.objects.to_f64()
    }

    /// Blocks that the sample stands for, and the variance that it brings.
    pub fn objects_f64_with_variance(&self) -> (f64, f64) {
        (self.objects.to_f64(), self.objects_variance.to_f64())
    }

    /// Bytes that the sample stands for, and the variance that it brings.
    pub fn bytes_f64_with_variance(&self) -> (f64, f64) {
        (self.bytes.to_f64(), self.bytes_variance.to_f64())
    }
}

/// A number of blocks and of bytes, estimated from samples, with the samples' own count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Samples it rests on.
    pub samples: u64,
    objects: Fixed,
    bytes: Fixed,
    objects_variance: Fixed,
    bytes_variance: Fixed,
}

impl Estimate {
    /// Adds one sample.
    #[inline]
    pub fn add(&mut self, weight: &Weight) {
        self.samples = self.samples.saturating_add(1);
        self.objects += weight.objects;
        self.bytes += weight.bytes;
        if !weight.is_exact() {
            self.objects_variance += weight.objects_variance;
            self.bytes_variance += weight.bytes_variance;
        }
    }

    /// Takes away a sample that was added before.
    pub fn remove(&mut self, weight: &Weight) {
        debug_assert!(
            self.samples > 0,
            "a sample is taken away that was not there"
        );
        self.samples = self.samples.saturating_sub(1);
        self.objects -= weight.objects;
        self.bytes -= weight.bytes;
        self.objects_variance -= weight.objects_variance;
        self.bytes_variance -= weight.bytes_variance;
    }

    /// Adds the samples of another estimate, disjoint from this one's.
    pub fn merge(&mut self, other: &Estimate) {
        self.samples = self.samples.saturating_add(other.samples);
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.objects_variance += other.objects_variance;
        self.bytes_variance += other.bytes_variance;
    }

    /// This estimate without another's samples, all of which are among its own.
    pub fn without(&self, part: &Estimate) -> Estimate {
        Estimate {
            samples: self.samples.saturating_sub(part.samples),
            objects: self.objects - part.objects,
            bytes: self.bytes - part.bytes,
            objects_variance: self.objects_variance - part.objects_variance,
            bytes_variance: self.bytes_variance - part.bytes_variance,
        }
    }

    /// Estimated number of requested bytes, to the last bit: for comparisons.
    pub fn bytes_fixed(&self) -> Fixed {
        self.bytes
    }

    /// Its parts, to be stored: blocks, bytes, variance of the blocks, variance of the bytes, in units of
    /// 2^-32. The number of samples is stored apart.
    pub fn to_bits(&self) -> [i128; 4] {
        [
            self.objects.0,
            self.bytes.0,
            self.objects_variance.0,
            self.bytes_variance.0,
        ]
    }

    /// The estimate of those parts.
    pub fn from_bits(
        samples: u64,
        [objects, bytes, objects_variance, bytes_variance]: [i128; 4],
    ) -> Self {
        Estimate {
            samples,
            objects: Fixed(objects),
            bytes: Fixed(bytes),
            objects_variance: Fixed(objects_variance),
            bytes_variance: Fixed(bytes_variance),
        }
    }

    /// An estimate known without samples: from a dump that holds only the numbers. It has no error
    /// of its own, which is not to say that the numbers are exact.
    pub fn given(objects: u64, bytes: u64) -> Self {
        Estimate {
            samples: objects,
            objects: Fixed::from_int(objects),
            bytes: Fixed::from_int(bytes),
            ..Estimate::default()
        }
    }

    /// The estimate in a line of a foreign dump that states numbers of samples: `samples` blocks
    /// of together `bytes` bytes, chosen under a mean `interval`. Their sizes are lost, so all
    /// count as of average size, which is what every reader of such dumps does, and wrong for a
    /// line of mixed sizes.
    pub fn of_samples(samples: u64, bytes: u64, interval: u64) -> Self {
        if interval <= 1 || samples == 0 || bytes == 0 {
            return Estimate::given(samples, bytes);
        }
        let size = bytes as f64 / samples as f64;
        let p = -libm::expm1(-size / interval as f64);
        let variance = samples as f64 * (1.0 - p) / (p * p);
        Estimate {
            samples,
            objects: Fixed::from_f64(samples as f64 / p),
            bytes: Fixed::from_f64(bytes as f64 / p),
            objects_variance: Fixed::from_f64(variance),
            bytes_variance: Fixed::from_f64(size * size * variance),
        }
    }

    /// Estimated number of blocks, rounded.
    pub fn objects(&self) -> u64 {
        self.objects.round()
    }

    /// Estimated number of requested bytes, rounded.
    pub fn bytes(&self) -> u64 {
        self.bytes.round()
    }

    /// Estimated number of blocks, unrounded.
    pub fn objects_f64(&self) -> f64 {
        self.objects.to_f64()
    }

    /// Estimated number of requested bytes, unrounded.
    pub fn bytes_f64(&self) -> f64 {
        self.bytes.to_f64()
    }

    /// Standard error of the number of blocks: the square root of the estimated variance.
    pub fn objects_error(&self) -> f64 {
        self.objects_variance.to_f64().max(0.0).sqrt()
    }

    /// Standard error of the number of bytes: the square root of the estimated variance.
    pub fn bytes_error(&self) -> f64 {
        self.bytes_variance.to_f64().max(0.0).sqrt()
    }

    /// Whether no sample is in it.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }
}

/// A sum of samples, each multiplied by a time in microseconds: the integral over time of what
/// samples stand for while they live. Only ever added to, so its variance may be floating-point.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OverTime {
    /// Samples it rests on.
    pub samples: u64,
    object_us: Fixed,
    byte_us: Fixed,
    object_us_variance: f64,
    byte_us_variance: f64,
}

impl OverTime {
    /// Adds a sample that lived so long.
    pub fn add(&mut self, weight: &Weight, us: u64) {
        let factor = i128::from(us);
        let square = us as f64 * us as f64;
        self.samples = self.samples.saturating_add(1);
        self.object_us += Fixed(weight.objects.0.saturating_mul(factor));
        self.byte_us += Fixed(weight.bytes.0.saturating_mul(factor));
        self.object_us_variance += weight.objects_variance.to_f64() * square;
        self.byte_us_variance += weight.bytes_variance.to_f64() * square;
    }

    /// Adds another sum, of other samples.
    pub fn merge(&mut self, other: &OverTime) {
        self.samples = self.samples.saturating_add(other.samples);
        self.object_us += other.object_us;
        self.byte_us += other.byte_us;
        self.object_us_variance += other.object_us_variance;
        self.byte_us_variance += other.byte_us_variance;
    }

    /// Blocks times seconds.
    pub fn object_seconds(&self) -> f64 {
        self.object_us.to_f64() / 1e6
    }

    /// Requested bytes times seconds.
    pub fn byte_seconds(&self) -> f64 {
        self.byte_us.to_f64() / 1e6
    }

    /// Standard error of [`OverTime::object_seconds`].
    pub fn object_seconds_error(&self) -> f64 {
        self.object_us_variance.sqrt() / 1e6
    }

    /// Standard error of [`OverTime::byte_seconds`].
    pub fn byte_seconds_error(&self) -> f64 {
        self.byte_us_variance.sqrt() / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Sampler;
    use proptest::prelude::*;

    #[test]
    fn interval_one_is_exact() {
        let mut estimate = Estimate::default();
        for size in [0, 1, 16, 8 << 20] {
            estimate.add(&Weight::of(size, 1));
        }
        assert_eq!((estimate.objects(), estimate.bytes()), (4, 17 + (8 << 20)));
        assert_eq!(estimate.bytes_error(), 0.0);
    }

    proptest! {
        /// Of any floating-point number, and of those around halves and around the largest that take the short way.
        #[test]
        fn a_fixed_point_number_is_the_nearest(bits in any::<u64>(), steps in 0u64..4, whole in 0u64..1 << 40) {
            let half = (whole as f64 + 0.5) / Fixed::ONE;
            let around = |x: f64| f64::from_bits((x.to_bits() + steps).wrapping_sub(2));
            for value in [f64::from_bits(bits), around(half), around((1u64 << 31) as f64), -around(half)] {
                let nearest = (value * Fixed::ONE).round() as i128;
                prop_assert_eq!(Fixed::from_f64(value).to_bits(), nearest, "{}", value);
            }
        }
    }

    #[test]
    fn a_block_much_larger_than_the_interval_stands_for_itself() {
        let weight = Weight::of(100 << 20, 524_288);
        assert_eq!(weight.objects.round(), 1);
        assert_eq!(weight.bytes.round(), 100 << 20);
    }

    #[test]
    fn a_small_block_stands_for_an_interval_of_bytes() {
        let weight = Weight::of(16, 524_288);
        // s/p = s / (1 - exp(-s/R)) = R + s/2 + …
        assert_eq!(weight.bytes.round(), 524_288 + 8);
        assert!((weight.objects.to_f64() - 32_768.5).abs() < 0.01);
    }

    #[test]
    fn a_line_of_equal_blocks_is_unsampled_as_its_samples_are() {
        let mut one_by_one = Estimate::default();
        for _ in 0..5 {
            one_by_one.add(&Weight::of(1000, 524_288));
        }
        let line = Estimate::of_samples(5, 5000, 524_288);
        assert_eq!(line.objects(), one_by_one.objects());
        assert_eq!(line.bytes(), one_by_one.bytes());
        assert!((line.bytes_error() - one_by_one.bytes_error()).abs() < 1.0);
    }

    #[test]
    fn absurd_numbers_stay_at_the_limit() {
        let mut estimate = Estimate::of_samples(u64::MAX, u64::MAX, u64::MAX);
        for _ in 0..3 {
            estimate.merge(&estimate.clone());
            estimate.add(&Weight::of(u64::MAX, u64::MAX));
        }
        assert_eq!(estimate.bytes(), u64::MAX);
    }

    #[test]
    fn what_was_added_can_be_taken_away_without_a_trace() {
        let mut estimate = Estimate::default();
        let sizes: Vec<u64> = (0..1000).map(|i| i * i % 70_001).collect();
        for &size in &sizes {
            estimate.add(&Weight::of(size, 4096));
        }
        for &size in sizes.iter().rev() {
            estimate.remove(&Weight::of(size, 4096));
        }
        assert_eq!(estimate, Estimate::default());
    }

    #[test]
    fn rounding_is_to_the_nearest() {
        assert_eq!(Fixed::from_f64(2.5).round(), 3);
        assert_eq!(Fixed::from_f64(2.49).round(), 2);
        assert_eq!(Fixed::from_f64(-0.2).round(), 0);
        assert_eq!(Fixed::from_f64(-7.0).round(), 0);
        assert_eq!(Fixed::from_int(u64::MAX).round(), u64::MAX);
    }

    /// The whole chain, sampler and weights, against truth: unbiased, and the standard error is
    /// the real one. 2,000 runs of a mixture of sizes.
    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn estimates_are_unbiased_and_their_errors_honest() {
        let sizes = [8usize, 100, 3000, 40, 100_000, 0, 24, 700];
        let (interval, repeats, runs) = (4096u64, 200, 2000u64);
        let (mut sum, mut sum_of_squares, mut claimed, mut covered) = (0.0, 0.0, 0.0, 0);
        let truth = (repeats * sizes.iter().sum::<usize>()) as f64;
        for run in 0..runs {
            let mut sampler = Sampler::default();
            sampler.start(run.wrapping_mul(0x1234_5678_9abc_def1), interval);
            let mut estimate = Estimate::default();
            for _ in 0..repeats {
                for size in sizes {
                    if !sampler.passes(size) {
                        estimate.add(&Weight::of(size as u64, interval));
                        sampler.draw(interval);
                    }
                }
            }
            let error = estimate.bytes_f64() - truth;
            sum += error;
            sum_of_squares += error * error;
            claimed += estimate.bytes_error().powi(2);
            covered += u64::from(error.abs() <= 1.96 * estimate.bytes_error());
        }
        let n = runs as f64;
        let real_variance = sum_of_squares / n;
        // The mean of 2,000 runs: beyond 5 standard errors once in 1.7 million.
        assert!((sum / n).abs() < 5.0 * (real_variance / n).sqrt(), "biased");
        // A variance from 2,000 runs has a relative error of sqrt(2/2000) = 3 %; 16 % is 5 of those.
        let ratio = claimed / n / real_variance;
        assert!(
            (0.84..1.16).contains(&ratio),
            "claimed/real variance {ratio}"
        );
        // 95 % of 2,000 has a standard error of 0.5 %; 93 to 97 is 4 of those.
        let coverage = covered as f64 / n;
        assert!((0.93..0.97).contains(&coverage), "coverage {coverage}");
    }

    /// Half of such blocks are sampled: each sample stands for two, with variance (1 - p) / p² = 2.
    const HALF: (u64, u64) = (726_817, 1 << 20); // ln 2 of a MiB

    fn near(is: f64, expected: f64) -> bool {
        (is / expected - 1.0).abs() < 1e-5
    }

    #[test]
    fn a_sample_carries_what_is_behind_it_with_its_own_odds() {
        let weight = Weight::of(HALF.0, HALF.1).carrying(1000);
        let (bytes, variance) = weight.bytes_f64_with_variance();
        assert!(near(weight.objects_f64(), 2.0), "{weight:?}");
        assert!(near(bytes, 2000.0) && near(variance, 2e6), "{weight:?}");
        // Its own number of bytes is carried like any other.
        let own = Weight::of(HALF.0, HALF.1);
        let same = own.carrying(HALF.0);
        assert!(near(same.bytes.to_f64(), own.bytes.to_f64()));
        let (_, expected) = own.bytes_f64_with_variance();
        assert!(near(same.bytes_f64_with_variance().1, expected));
        // A block that was taken for certain brings what it is, without an error.
        let all = Weight::of(HALF.0, 1).carrying(1000);
        assert_eq!(all.bytes_f64_with_variance(), (1000.0, 0.0));
        assert_eq!(all.objects_f64(), 1.0);
    }

    /// At 24 intervals, one block in 26 thousand million is missed: less than a block's variance can say, and not less than that of its bytes.
    #[test]
    fn a_block_that_is_hardly_ever_missed_has_an_error_of_bytes() {
        let size = 24 << 20;
        let weight = Weight::of(size, 1 << 20);
        assert_eq!(weight.objects_variance, Fixed::default());
        let mut estimate = Estimate::default();
        estimate.add(&weight);
        let expected = size as f64 * (-12.0f64).exp();
        assert!(near(estimate.bytes_error(), expected), "{estimate:?}");
    }

    #[test]
    fn samples_over_time_are_multiplied_by_it_and_their_variances_by_its_square() {
        let weight = Weight::of(HALF.0, HALF.1);
        let mut held = OverTime::default();
        held.add(&weight, 3_000_000);
        let is = |held: &OverTime, blocks: f64, error: f64| {
            let size = HALF.0 as f64;
            near(held.object_seconds(), blocks)
                && near(held.byte_seconds(), blocks * size)
                && near(held.object_seconds_error(), error)
                && near(held.byte_seconds_error(), error * size)
        };
        assert!(is(&held, 6.0, 3.0 * 2f64.sqrt()), "{held:?}");
        // Four seconds more of another: 3² + 4² = 5².
        let mut other = OverTime::default();
        other.add(&weight, 4_000_000);
        held.merge(&other);
        assert!(is(&held, 14.0, 5.0 * 2f64.sqrt()), "{held:?}");
        other.add(&weight, 3_000_000);
        assert!(is(&other, 14.0, 5.0 * 2f64.sqrt()), "{other:?}");
        assert_eq!((held.samples, other.samples), (2, 2));
    }

    #[test]
    fn a_line_without_an_interval_or_without_blocks_says_what_it_says() {
        for (samples, bytes, interval) in [(5, 5000, 0), (5, 5000, 1), (0, 0, 4096), (3, 0, 4096)] {
            let line = Estimate::of_samples(samples, bytes, interval);
            assert_eq!(line, Estimate::given(samples, bytes));
            assert_eq!((line.objects(), line.bytes()), (samples, bytes));
            assert_eq!((line.samples, line.is_empty()), (samples, samples == 0));
        }
        // At the shortest interval that leaves anything out, a byte is sampled with 1 - exp(-1/2).
        assert!(near(Estimate::of_samples(1, 1, 2).objects_f64(), 2.541_494));
    }
}
