//! Trend: whether a slope of what is in use is more than noise, and large enough to matter.
//!
//! A slope can be significant and mean nothing. A program allocates all its memory in its first
//! second. An hour later, its slope is a block a day: each block came early in the window, so each
//! adds to the slope, and noise cannot make that. So the growth over the window is compared with
//! what was in use in it, too.
//!
//! The window's length cancels out: a slope and what is in use, divided by the length, are both in
//! bytes (or blocks) a second.

/// Beyond so many standard errors an estimate is more than noise: noise alone gets there once in
/// 370 times.
pub const REAL: f64 = 3.0;

/// A growth matters if it makes so much of what its own part has in use.
pub const LEAST_OF_OWN: f64 = 0.01;

/// A growth matters if it makes so much of what all have in use.
pub const LEAST_OF_ALL: f64 = 0.001;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trend {
    /// Noise may have made it.
    Noise,
    /// It is more than noise, and too small to matter.
    Small,
    /// It is more than noise, and matters.
    Real,
}

impl Trend {
    /// Judges a slope with its standard error. `own` and `all` are what the part that grows and all
    /// together have in use, divided by the window's length; 0: any slope matters.
    pub fn of(slope: f64, error: f64, own: f64, all: f64) -> Trend {
        let size = slope.abs();
        if size == 0.0 || size < REAL * error {
            Trend::Noise
        } else if size < LEAST_OF_OWN * own || size < LEAST_OF_ALL * all {
            Trend::Small
        } else {
            Trend::Real
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_is_significant_and_of_a_size() {
        // A slope of 10 bytes a second in a window of 100 s: a thousand bytes came.
        let of = |error: f64, own: f64, all: f64| Trend::of(10.0, error, own / 100.0, all / 100.0);
        assert_eq!(of(3.4, 1e3, 1e3), Trend::Noise);
        assert_eq!(of(3.3, 1e3, 1e3), Trend::Real);
        assert_eq!(of(0.0, 0.9e5, 0.9e6), Trend::Real);
        // Less than a hundredth of its own, or than a thousandth of all.
        assert_eq!(of(0.0, 1.1e5, 1.1e5), Trend::Small);
        assert_eq!(of(0.0, 1e3, 1.1e6), Trend::Small);
        assert_eq!(Trend::of(-10.0, 0.0, 100.0, 100.0), Trend::Real);
        assert_eq!(Trend::of(-1e-9, 0.0, 0.0, 0.0), Trend::Real);
        assert_eq!(Trend::of(0.0, 0.0, 0.0, 0.0), Trend::Noise);
    }
}
