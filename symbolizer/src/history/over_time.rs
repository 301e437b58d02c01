//! Memory over time: the sum of samples, each multiplied by how long it lived.

use heapprof_core::{Fixed, Weight};

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
        let (_, objects_variance) = weight.objects_f64_with_variance();
        let (_, bytes_variance) = weight.bytes_f64_with_variance();
        self.object_us += weight.objects_fixed().times(factor);
        self.byte_us += weight.bytes_fixed().times(factor);
        // Nothing is unsure about most samples of a long log: all allocations are recorded.
        if bytes_variance > 0.0 || objects_variance > 0.0 {
            self.object_us_variance += objects_variance * square;
            self.byte_us_variance += bytes_variance * square;
        }
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

    /// Half of such blocks are sampled: each sample stands for two, with variance (1 - p) / p² = 2.
    const HALF: (u64, u64) = (726_817, 1 << 20); // ln 2 of a MiB

    fn near(is: f64, expected: f64) -> bool {
        (is / expected - 1.0).abs() < 1e-5
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
}
