//! Weight: the estimate that one sample contributes. Law 8: unsampling happens here and nowhere
//! else.
//!
//! A block of `s` bytes is sampled with probability `p = 1 - exp(-s / interval)`. So its sample
//! stands for `1/p` blocks and `s/p` bytes (Horvitz and Thompson 1952). Sums of such weights are
//! unbiased for any mixture of sizes. The variance of a sum is estimated from the samples alone, by
//! the sum of `x² (1 - p) / p²`. Here `x` is 1 for blocks and `s` for bytes. The variance is
//! additive, up call trees and across logs.
//!
//! An [`Estimate`](crate::Estimate) keeps sums of weights. The reader also sums weights multiplied
//! by time.

use crate::sampling::fixed::Fixed;
use crate::sampling::sampler::counted_bytes;

/// The contribution of one sample to an [`Estimate`](crate::Estimate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    pub(crate) objects: Fixed,
    pub(crate) bytes: Fixed,
    pub(crate) objects_variance: Fixed,
    pub(crate) bytes_variance: Fixed,
}

/// Returns the probability of a sample of a block with that many bytes on the axis, under a mean
/// `interval` of bytes.
fn probability(bytes: f64, interval: u64) -> f64 {
    // expm1: for small s/R, 1 - exp(-s/R) would lose its digits.
    -libm::expm1(-bytes / interval as f64)
}

impl Weight {
    /// Returns the weight of a sampled block of `size` requested bytes, chosen under a mean
    /// interval of `interval` bytes. With an interval of 0 or 1 every block is sampled, and stands
    /// exactly for itself.
    pub fn of(size: u64, interval: u64) -> Self {
        if interval <= 1 {
            return Weight {
                objects: Fixed::from_int(1),
                bytes: Fixed::from_int(size),
                objects_variance: Fixed::default(),
                bytes_variance: Fixed::default(),
            };
        }
        let p = probability(counted_bytes(size) as f64, interval);
        let spread = (1.0 - p) / (p * p);
        let x = size as f64;
        Weight {
            objects: Fixed::from_f64(1.0 / p),
            bytes: Fixed::from_f64(x / p),
            objects_variance: Fixed::from_f64(spread),
            bytes_variance: Fixed::from_f64(x * x * spread),
        }
    }

    /// Returns the weight of `samples` sampled blocks of together `bytes` requested bytes, if each
    /// has the average size. No argument is 0, and `interval` is above 1.
    pub(crate) fn of_many(samples: u64, bytes: u64, interval: u64) -> Self {
        let size = bytes as f64 / samples as f64;
        let p = probability(size, interval);
        let variance = samples as f64 * (1.0 - p) / (p * p);
        Weight {
            objects: Fixed::from_f64(samples as f64 / p),
            bytes: Fixed::from_f64(bytes as f64 / p),
            objects_variance: Fixed::from_f64(variance),
            bytes_variance: Fixed::from_f64(size * size * variance),
        }
    }

    /// Returns true if the weight has no variance: every block was sampled.
    #[inline]
    pub(crate) fn is_exact(&self) -> bool {
        self.objects_variance.to_bits() | self.bytes_variance.to_bits() == 0
    }

    /// Returns the bytes if the sample stands for itself alone.
    #[inline]
    pub(crate) fn whole_bytes(&self) -> Option<u64> {
        let is_one = self.is_exact() && self.objects == Fixed::from_int(1);
        let bytes = u64::try_from(self.bytes.to_bits() >> 32).ok();
        bytes.filter(|&bytes| is_one && self.bytes == Fixed::from_int(bytes))
    }

    /// Returns the weight of this sample in bytes of the allocation axis, where an empty block has
    /// one byte. `size` is the block's size.
    #[inline]
    pub fn of_counted_bytes(&self, size: u64) -> Weight {
        match size {
            0 => self.carrying(counted_bytes(0)),
            _ => *self,
        }
    }

    /// Returns the weight of this sample in `bytes` of another quantity, such as the slack of the
    /// block. It stands for `bytes / p`, with variance `bytes² (1 - p) / p²`.
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
            bytes: self.objects.times(x),
            bytes_variance: self.objects_variance.times(x).times(x),
            ..*self
        }
    }

    /// Returns the weight of this sample in a share of bytes, which need not be a whole number.
    #[must_use]
    pub fn carrying_part(&self, bytes: f64) -> Weight {
        let (objects, variance) = self.objects_f64_with_variance();
        Weight {
            bytes: Fixed::from_f64(objects * bytes),
            bytes_variance: Fixed::from_f64(variance * bytes * bytes),
            ..*self
        }
    }

    /// Returns the number of blocks in the form of their sums.
    #[inline]
    pub fn objects_fixed(&self) -> Fixed {
        self.objects
    }

    /// Returns the number of bytes in the form of their sums.
    #[inline]
    pub fn bytes_fixed(&self) -> Fixed {
        self.bytes
    }

    /// Returns the variance of the number of bytes in the form of their sums.
    #[inline]
    pub fn bytes_variance_fixed(&self) -> Fixed {
        self.bytes_variance
    }

    /// Returns the number of blocks.
    #[inline]
    pub fn objects_f64(&self) -> f64 {
        self.objects.to_f64()
    }

    /// Returns the number of blocks and its variance.
    #[inline]
    pub fn objects_f64_with_variance(&self) -> (f64, f64) {
        (self.objects.to_f64(), self.objects_variance.to_f64())
    }

    /// Returns the number of bytes and its variance.
    #[inline]
    pub fn bytes_f64_with_variance(&self) -> (f64, f64) {
        (self.bytes.to_f64(), self.bytes_variance.to_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // The size itself is a quantity like any other.
        let own = Weight::of(HALF.0, HALF.1);
        let same = own.carrying(HALF.0);
        assert!(near(same.bytes.to_f64(), own.bytes.to_f64()));
        let (_, expected) = own.bytes_f64_with_variance();
        assert!(near(same.bytes_f64_with_variance().1, expected));
        let (bytes, variance) = weight.carrying_part(0.25).bytes_f64_with_variance();
        assert!(near(bytes, 0.5) && near(variance, 2.0 / 16.0), "{weight:?}");
        // A block that is sampled for certain has no error.
        let all = Weight::of(HALF.0, 1).carrying(1000);
        assert_eq!(all.bytes_f64_with_variance(), (1000.0, 0.0));
        assert_eq!(all.objects_f64(), 1.0);
    }
}
