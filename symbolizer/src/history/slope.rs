//! Slope: how fast the memory in use by a row grows over a window of time, with its standard error.
//!
//! It is the slope of the least-squares line through the whole curve of bytes in use. With `U(t)`
//! in use at `t`, a window of length `T` and its middle `m`,
//!
//! ```text
//!   slope = ∫ (t - m) U(t) dt / ∫ (t - m)² dt            the integrals over the window
//!         = sum over blocks of x · 6 (d² - b² - T (d - b)) / T³
//! ```
//!
//! where a block counts `x` from `b` to `d`, both since the beginning of the window and clipped to
//! it. So the slope is a sum over blocks. It is estimated like every such sum, by `sum of x c / p`
//! over the samples, where `c` is the fraction above. The estimate is unbiased, with variance `sum
//! of x² c² (1 - p) / p²`. The error is that of sampling alone: nothing is assumed about noise
//! around that line. A block that is there all the time has `c = 0`: it adds neither growth nor
//! error.
//!
//! The end of the window may be known only when it is reached, so the sums are kept from which any
//! `T` follows.

use heapprof_core::Weight;

/// How fast something grew; less than nothing for what shrank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slope {
    /// Samples it rests on: those that came or went in the window.
    pub samples: u64,
    /// Blocks a second.
    pub objects_per_second: f64,
    /// Its standard error.
    pub objects_error: f64,
    /// Requested bytes a second.
    pub bytes_per_second: f64,
    /// Its standard error.
    pub bytes_error: f64,
    /// Blocks in use, on average over the window.
    pub objects_mean: f64,
    /// Requested bytes in use, on average over the window.
    pub bytes_mean: f64,
    /// The length of the window.
    pub seconds: f64,
}

impl Slope {
    /// Adds the slope of other samples.
    pub fn merge(&mut self, other: &Slope) {
        self.samples = self.samples.saturating_add(other.samples);
        self.objects_per_second += other.objects_per_second;
        self.objects_error = self.objects_error.hypot(other.objects_error);
        self.bytes_per_second += other.bytes_per_second;
        self.bytes_error = self.bytes_error.hypot(other.bytes_error);
        self.objects_mean += other.objects_mean;
        self.bytes_mean += other.bytes_mean;
        self.seconds = self.seconds.max(other.seconds);
    }

    /// Returns the size that the growth is compared with: the average in use, or what is in use at
    /// the end if that is more, divided by the window's length.
    pub(crate) fn scale(&self, mean: f64, at_the_end: f64) -> f64 {
        match self.seconds > 0.0 {
            true => mean.max(at_the_end) / self.seconds,
            false => 0.0,
        }
    }
}

/// A slope being added up. Times are seconds since the window's beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    samples: u64,
    objects: Moments,
    bytes: Moments,
}

/// Sums over samples, with `l = d - b` and `q = d² - b²`.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    /// Sums of `w l` and `w q`, where w is the weight.
    l: f64,
    q: f64,
    /// Sums of `v l²`, `v l q` and `v q²`, where v is the variance of the weight.
    ll: f64,
    lq: f64,
    qq: f64,
}

impl Moments {
    fn add(&mut self, weight: f64, variance: f64, l: f64, q: f64) {
        self.l += weight * l;
        self.q += weight * q;
        if variance > 0.0 {
            self.ll += variance * l * l;
            self.lq += variance * l * q;
            self.qq += variance * q * q;
        }
    }

    /// The mean over a window of `t` seconds.
    fn mean(&self, t: f64) -> f64 {
        if t > 0.0 { self.l / t } else { 0.0 }
    }

    /// The slope over a window of `t` seconds, and its standard error.
    fn slope(&self, t: f64) -> (f64, f64) {
        if t <= 0.0 {
            return (0.0, 0.0);
        }
        let scale = 6.0 / (t * t * t);
        let variance = self.qq - 2.0 * t * self.lq + t * t * self.ll;
        (
            scale * (self.q - t * self.l),
            scale * variance.max(0.0).sqrt(),
        )
    }
}

impl Sums {
    /// A sample that was there from `from_s` to `to_s`.
    pub(crate) fn add(&mut self, weight: &Weight, from_s: f64, to_s: f64) {
        let (l, q) = (to_s - from_s, to_s * to_s - from_s * from_s);
        self.samples += 1;
        let (objects, objects_variance) = weight.objects_f64_with_variance();
        self.objects.add(objects, objects_variance, l, q);
        let (bytes, bytes_variance) = weight.bytes_f64_with_variance();
        self.bytes.add(bytes, bytes_variance, l, q);
    }

    /// A sample that was there all the time, of that many seconds: no growth.
    pub(crate) fn stayed(&mut self, weight: &Weight, seconds: f64) {
        let (l, q) = (seconds, seconds * seconds);
        self.objects.add(weight.objects_f64(), 0.0, l, q);
        self.bytes
            .add(weight.bytes_f64_with_variance().0, 0.0, l, q);
    }

    /// The slope over a window of that many seconds.
    pub(crate) fn over(&self, seconds: f64) -> Slope {
        let (objects_per_second, objects_error) = self.objects.slope(seconds);
        let (bytes_per_second, bytes_error) = self.bytes.slope(seconds);
        Slope {
            samples: self.samples,
            objects_per_second,
            objects_error,
            bytes_per_second,
            bytes_error,
            objects_mean: self.objects.mean(seconds),
            bytes_mean: self.bytes.mean(seconds),
            seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slope by its definition: the curve at many instants, the least-squares line through
    /// them.
    fn by_instants(blocks: &[(u64, f64, f64)], seconds: f64) -> f64 {
        // An interpreter takes minutes for so many; with a hundredth of them the slope is another
        // by 1.3e-5.
        const INSTANTS: usize = if cfg!(miri) { 2_000 } else { 200_000 };
        let (mut above, mut below) = (0.0, 0.0);
        for i in 0..INSTANTS {
            let t = (i as f64 + 0.5) / INSTANTS as f64 * seconds;
            let lives = blocks.iter().filter(|(_, b, d)| *b <= t && t < *d);
            let in_use: u64 = lives.map(|(size, ..)| size).sum();
            above += (t - seconds / 2.0) * in_use as f64;
            below += (t - seconds / 2.0) * (t - seconds / 2.0);
        }
        above / below
    }

    #[test]
    fn the_slope_is_that_of_the_least_squares_line() {
        // One comes, one goes, one does both, one stays.
        let blocks = [
            (1000, 2.0, 10.0),
            (300, 0.0, 4.0),
            (50, 1.0, 1.5),
            (9000, 0.0, 10.0),
        ];
        let mut sums = Sums::default();
        for (size, from_s, to_s) in blocks {
            sums.add(&Weight::of(size, 1), from_s, to_s);
        }
        let growth = sums.over(10.0);
        let expected = by_instants(&blocks, 10.0);
        assert!(
            (growth.bytes_per_second - expected).abs() < 0.01,
            "{growth:?} {expected}"
        );
        assert_eq!((growth.bytes_error, growth.objects_error), (0.0, 0.0));
    }

    #[test]
    fn the_mean_is_what_was_in_use_for_how_long() {
        let mut sums = Sums::default();
        sums.add(&Weight::of(1000, 1), 2.0, 10.0);
        sums.add(&Weight::of(300, 1), 0.0, 5.0);
        let growth = sums.over(10.0);
        assert!((growth.bytes_mean - 950.0).abs() < 1e-9, "{growth:?}");
        assert!((growth.objects_mean - 1.3).abs() < 1e-9, "{growth:?}");
        sums.stayed(&Weight::of(700, 1), 10.0);
        let with_it = sums.over(10.0);
        assert!((with_it.bytes_mean - 1650.0).abs() < 1e-9, "{with_it:?}");
        let slope = |it: &Slope| it.bytes_per_second;
        assert!(
            (slope(&with_it) - slope(&growth)).abs() < 1e-9,
            "{with_it:?}"
        );
        assert_eq!(with_it.samples, 2);
        assert_eq!(growth.scale(growth.bytes_mean, 1000.0), 100.0);
        assert_eq!(
            growth.scale(growth.bytes_mean, 0.0),
            growth.bytes_mean / 10.0
        );
        assert_eq!(Slope::default().scale(1.0, 1.0), 0.0);
    }

    #[test]
    fn a_steady_leak_grows_as_fast_as_it_leaks() {
        let mut sums = Sums::default();
        for i in 0..10_000 {
            sums.add(&Weight::of(64, 1), f64::from(i) / 1000.0, 10.0);
        }
        let growth = sums.over(10.0);
        assert!(
            (growth.objects_per_second - 1000.0).abs() < 0.2,
            "{growth:?}"
        );
        assert!(
            (growth.bytes_per_second - 64_000.0).abs() < 10.0,
            "{growth:?}"
        );
    }

    #[test]
    fn what_was_there_all_the_time_adds_neither_growth_nor_error() {
        let mut sums = Sums::default();
        sums.add(&Weight::of(64, 4096), 0.0, 3.0);
        let growth = sums.over(3.0);
        assert_eq!(growth.bytes_per_second, 0.0);
        // Only the last bits of a floating-point number are left of an error of 4096 bytes.
        assert!(growth.bytes_error < 1e-3, "{growth:?}");
    }

    /// From 2 to 5 s of 10: c = 6 (25 - 4 - 10 · 3) / 1000 = -0.054 of each byte.
    #[test]
    fn the_error_is_that_of_the_samples_times_their_part_in_the_slope() {
        let weight = Weight::of(64, 4096);
        let mut sums = Sums::default();
        sums.add(&weight, 2.0, 5.0);
        let one = sums.over(10.0);
        let near = |is: f64, expected: f64| (is / expected - 1.0).abs() < 1e-9;
        let (objects, objects_variance) = weight.objects_f64_with_variance();
        let (bytes, bytes_variance) = weight.bytes_f64_with_variance();
        assert!(near(one.objects_per_second, -0.054 * objects), "{one:?}");
        assert!(near(one.bytes_per_second, -0.054 * bytes), "{one:?}");
        assert!(near(one.objects_error, 0.054 * objects_variance.sqrt()));
        assert!(near(one.bytes_error, 0.054 * bytes_variance.sqrt()));
        // One that came at 7 s brings c = 6 (100 - 49 - 10 · 3) / 1000 = 0.126: variances add.
        sums.add(&weight, 7.0, 10.0);
        let both = sums.over(10.0);
        let c = 0.054f64.hypot(0.126);
        assert_eq!(both.samples, 2);
        assert!(near(both.bytes_per_second, 0.072 * bytes), "{both:?}");
        assert!(near(both.bytes_error, c * bytes_variance.sqrt()));
        // As do those of two processes.
        let mut twice = both;
        twice.merge(&both);
        assert_eq!(twice.samples, 4);
        assert!(near(twice.objects_per_second, 0.144 * objects));
        assert!(near(twice.bytes_per_second, 0.144 * bytes));
        let error = |variance: f64| c * (2.0 * variance).sqrt();
        assert!(near(twice.objects_error, error(objects_variance)));
        assert!(near(twice.bytes_error, error(bytes_variance)));
    }

    #[test]
    fn a_window_of_no_length_has_no_slope() {
        let mut sums = Sums::default();
        sums.add(&Weight::of(64, 4096), 0.0, 0.0);
        let growth = sums.over(0.0);
        assert_eq!((growth.bytes_per_second, growth.bytes_error), (0.0, 0.0));
    }
}
