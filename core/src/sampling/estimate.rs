//! Estimate: numbers of blocks and bytes, summed from the weights of samples, with their standard
//! errors.

use crate::sampling::fixed::Fixed;
use crate::sampling::weight::Weight;

/// Numbers of blocks and bytes that are estimated from samples, with the number of those samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Samples in the estimate.
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

    /// Removes a sample that was added before.
    #[inline]
    pub fn remove(&mut self, weight: &Weight) {
        debug_assert!(
            self.samples > 0,
            "a sample is taken away that was not there"
        );
        self.samples = self.samples.saturating_sub(1);
        self.objects -= weight.objects;
        self.bytes -= weight.bytes;
        if !weight.is_exact() {
            self.objects_variance -= weight.objects_variance;
            self.bytes_variance -= weight.bytes_variance;
        }
    }

    /// Adds the samples of another estimate, which are disjoint from these.
    pub fn merge(&mut self, other: &Estimate) {
        self.samples = self.samples.saturating_add(other.samples);
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.objects_variance += other.objects_variance;
        self.bytes_variance += other.bytes_variance;
    }

    /// Returns this estimate without the samples of `part`, which are all among its own.
    pub fn without(&self, part: &Estimate) -> Estimate {
        Estimate {
            samples: self.samples.saturating_sub(part.samples),
            objects: self.objects - part.objects,
            bytes: self.bytes - part.bytes,
            objects_variance: self.objects_variance - part.objects_variance,
            bytes_variance: self.bytes_variance - part.bytes_variance,
        }
    }

    /// Returns the estimated number of requested bytes, exact to the last bit, for comparisons.
    pub fn bytes_fixed(&self) -> Fixed {
        self.bytes
    }

    /// Returns the variance of that number.
    pub fn bytes_variance_fixed(&self) -> Fixed {
        self.bytes_variance
    }

    /// Returns the parts for storage: blocks, bytes, variance of the blocks, variance of the bytes,
    /// in units of 2^-32. The number of samples is stored apart.
    pub fn to_bits(&self) -> [i128; 4] {
        [
            self.objects.to_bits(),
            self.bytes.to_bits(),
            self.objects_variance.to_bits(),
            self.bytes_variance.to_bits(),
        ]
    }

    /// Returns the estimate of stored parts.
    pub fn from_bits(
        samples: u64,
        [objects, bytes, objects_variance, bytes_variance]: [i128; 4],
    ) -> Self {
        Estimate {
            samples,
            objects: Fixed::from_bits(objects),
            bytes: Fixed::from_bits(bytes),
            objects_variance: Fixed::from_bits(objects_variance),
            bytes_variance: Fixed::from_bits(bytes_variance),
        }
    }

    /// Returns an estimate without samples, from a dump that has only the numbers. It has no error
    /// of its own, but the numbers may be inexact.
    pub fn given(objects: u64, bytes: u64) -> Self {
        Estimate {
            samples: objects,
            objects: Fixed::from_int(objects),
            bytes: Fixed::from_int(bytes),
            ..Estimate::default()
        }
    }

    /// Returns the estimate for a line of a foreign dump: `samples` blocks of `bytes` bytes
    /// together, chosen under a mean `interval`.
    ///
    /// Such a line has no single sizes, so all blocks count as of average size. Every reader uses
    /// that average, which is wrong for a line of mixed sizes.
    pub fn of_samples(samples: u64, bytes: u64, interval: u64) -> Self {
        if interval <= 1 || samples == 0 || bytes == 0 {
            return Estimate::given(samples, bytes);
        }
        let together = Weight::of_many(samples, bytes, interval);
        Estimate {
            samples,
            objects: together.objects,
            bytes: together.bytes,
            objects_variance: together.objects_variance,
            bytes_variance: together.bytes_variance,
        }
    }

    /// Returns the estimated number of blocks, rounded.
    pub fn objects(&self) -> u64 {
        self.objects.round()
    }

    /// Returns the estimated number of requested bytes, rounded.
    pub fn bytes(&self) -> u64 {
        self.bytes.round()
    }

    /// Returns the estimated number of blocks, unrounded.
    pub fn objects_f64(&self) -> f64 {
        self.objects.to_f64()
    }

    /// Returns the estimated number of requested bytes, unrounded.
    pub fn bytes_f64(&self) -> f64 {
        self.bytes.to_f64()
    }

    /// Returns the standard error of the number of blocks: the square root of the estimated
    /// variance.
    pub fn objects_error(&self) -> f64 {
        self.objects_variance.to_f64().max(0.0).sqrt()
    }

    /// Returns the standard error of the number of bytes: the square root of the estimated
    /// variance.
    pub fn bytes_error(&self) -> f64 {
        self.bytes_variance.to_f64().max(0.0).sqrt()
    }

    /// Returns true if the estimate has no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sampler::Sampler;

    #[test]
    fn interval_one_is_exact() {
        let mut estimate = Estimate::default();
        for size in [0, 1, 16, 8 << 20] {
            estimate.add(&Weight::of(size, 1));
        }
        assert_eq!((estimate.objects(), estimate.bytes()), (4, 17 + (8 << 20)));
        assert_eq!(estimate.bytes_error(), 0.0);
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
    fn a_line_without_an_interval_or_without_blocks_says_what_it_says() {
        for (samples, bytes, interval) in [(5, 5000, 0), (5, 5000, 1), (0, 0, 4096), (3, 0, 4096)] {
            let line = Estimate::of_samples(samples, bytes, interval);
            assert_eq!(line, Estimate::given(samples, bytes));
            assert_eq!((line.objects(), line.bytes()), (samples, bytes));
            assert_eq!((line.samples, line.is_empty()), (samples, samples == 0));
        }
        // At the shortest interval that skips anything, a byte is sampled with probability 1 -
        // exp(-1/2).
        assert!(near(Estimate::of_samples(1, 1, 2).objects_f64(), 2.541_494));
    }

    fn near(is: f64, expected: f64) -> bool {
        (is / expected - 1.0).abs() < 1e-5
    }

    /// Sampler and weights against the truth, over runs of a mixture of sizes: estimates are
    /// unbiased, and the standard error is the real one.
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
        // A variance from 2,000 runs has a relative error of sqrt(2/2000) = 3 %; 16 % is 5 of
        // those.
        let ratio = claimed / n / real_variance;
        assert!(
            (0.84..1.16).contains(&ratio),
            "claimed/real variance {ratio}"
        );
        // 95 % of 2,000 has a standard error of 0.5 %; 93 to 97 is 4 of those.
        let coverage = covered as f64 / n;
        assert!((0.93..0.97).contains(&coverage), "coverage {coverage}");
    }

    /// At 24 intervals, one block in 26 thousand million is missed. The variance of blocks is too
    /// small for the number format, and the variance of bytes is not.
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
}
