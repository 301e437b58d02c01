//! The possible distance of an estimate from the truth.
//!
//! Each block of size s is sampled independently with p = 1 - exp(-s/R) and counts x/p, where x is
//! 1 or s. So an estimate is a sum of independent bounded numbers, with known
//!
//! ```text
//!  variance          V = Σ x² (1-p)/p
//!  largest step      M = max x max(1, (1-p)/p) ≤ max x/p
//!  fourth cumulant   K = Σ x⁴ (1-p)(1-6p(1-p))/p³
//! ```
//!
//! Bernstein's inequality then bounds the error without any assumption of normality, for crowded
//! and for sparse sites alike: P(|error| > t) ≤ 2 exp(-t² / (2V + 2Mt/3)).

/// The distribution of an estimate's error, before the estimate is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread {
    /// The true value.
    pub truth: f64,
    /// The error's variance.
    pub variance: f64,
    largest: f64,
    cumulant: f64,
    /// Expected samples.
    pub samples: f64,
    /// Σ p (1-p): the number of blocks in doubt. It is small if few samples are expected, and if
    /// few blocks are missed.
    pub doubt: f64,
    /// Variance and largest step of the estimate of the variance, which each sample raises by x²
    /// (1-p)/p².
    variance_of_variance: f64,
    largest_of_variance: f64,
}

impl Spread {
    /// Adds `times` blocks of `size` bytes, each of which counts `x`, under a mean interval of
    /// `interval`.
    pub fn add(&mut self, times: u64, size: u64, x: f64, interval: u64) {
        let p = -(-(size.max(1) as f64) / interval as f64).exp_m1();
        let (n, q) = (times as f64, 1.0 - p);
        self.truth += n * x;
        self.samples += n * p;
        self.variance += n * x * x * q / p;
        self.largest = self.largest.max(x / p);
        self.cumulant += n * x.powi(4) * q * (1.0 - 6.0 * p * q) / p.powi(3);
        self.doubt += n * p * q;
        self.variance_of_variance += n * x.powi(4) * (q / p).powi(3);
        self.largest_of_variance = self.largest_of_variance.max(x * x * q / (p * p));
    }

    /// Returns the spread of the sum of two estimates of different blocks.
    #[must_use]
    pub fn and(&self, other: &Spread) -> Spread {
        Spread {
            truth: self.truth + other.truth,
            variance: self.variance + other.variance,
            largest: self.largest.max(other.largest),
            cumulant: self.cumulant + other.cumulant,
            samples: self.samples + other.samples,
            doubt: self.doubt + other.doubt,
            variance_of_variance: self.variance_of_variance + other.variance_of_variance,
            largest_of_variance: self.largest_of_variance.max(other.largest_of_variance),
        }
    }

    /// Returns the error that is exceeded with a probability of at most `false_alarm`.
    pub fn bound(&self, false_alarm: f64) -> f64 {
        // The last bit: weights are fixed-point numbers.
        bernstein(self.variance, self.largest, false_alarm) + 0.01
    }

    /// Returns the error of the estimated variance that is exceeded with a probability of at most
    /// `false_alarm`.
    pub fn variance_bound(&self, false_alarm: f64) -> f64 {
        bernstein(
            self.variance_of_variance,
            self.largest_of_variance,
            false_alarm,
        ) + 0.01
    }

    /// Returns an estimate's error in true standard deviations.
    pub fn z(&self, estimate: f64) -> f64 {
        (estimate - self.truth) / self.variance.sqrt()
    }

    /// Returns the variance of z²: 2 for a normal error, and more for few samples.
    pub fn variance_of_z_squared(&self) -> f64 {
        2.0 + self.cumulant / (self.variance * self.variance)
    }
}

fn bernstein(variance: f64, largest: f64, false_alarm: f64) -> f64 {
    let l = (2.0 / false_alarm).ln();
    let linear = largest * l / 3.0;
    linear + (linear * linear + 2.0 * variance * l).sqrt()
}

/// Returns the largest error, as a part of the allowed error, and its name.
pub fn worst_error<'a>(
    errors: impl IntoIterator<Item = (&'a str, f64, Spread)>,
    false_alarm: f64,
) -> (f64, String) {
    let mut worst = (0.0, String::from("none"));
    for (name, estimate, spread) in errors {
        let part = (estimate - spread.truth).abs() / spread.bound(false_alarm);
        if part > worst.0 {
            let text = format!(
                "{name}: {estimate} for {} ± {:.0}, z = {:.2}, {:.1} samples expected",
                spread.truth,
                spread.variance.sqrt(),
                spread.z(estimate),
                spread.samples
            );
            worst = (part, text);
        }
    }
    worst
}
