//! Rate limit: the number of requests that may be served now, a burst at first and then one in each
//! period.
//!
//! ```text
//!   left   most ─┐ take  take        one more in each period, up to `most`
//!                └────┐        ┌───
//! ```

/// See the module's text. Times are of any clock that does not go back.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    most: u32,
    period_ns: u64,
    left: u32,
    /// Up to when periods were counted.
    counted_ns: u64,
}

impl RateLimit {
    /// A limit of `most` requests at once, and one more in each period.
    #[must_use]
    pub fn new(most: u32, period_ns: u64, now_ns: u64) -> RateLimit {
        RateLimit {
            most,
            period_ns: period_ns.max(1),
            left: most,
            counted_ns: now_ns,
        }
    }

    /// Takes one, if one is left.
    pub fn take(&mut self, now_ns: u64) -> bool {
        let periods = now_ns.saturating_sub(self.counted_ns) / self.period_ns;
        self.counted_ns += periods * self.period_ns;
        let gained = u32::try_from(periods).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(gained).min(self.most);
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::RateLimit;

    #[test]
    fn after_a_burst_there_is_one_in_each_period() {
        const S: u64 = 1_000_000_000;
        let mut limit = RateLimit::new(3, S, 10 * S);
        let mut taken = |now_ns| limit.take(now_ns);
        assert_eq!(
            [10, 10, 10, 10].map(|s| taken(s * S)),
            [true, true, true, false]
        );
        // However often it is asked within a second.
        assert!((0..999).all(|ms| !taken(10 * S + ms * 1_000_000)));
        assert_eq!(
            [11, 11, 12, 12].map(|s| taken(s * S)),
            [true, false, true, false]
        );
        // A part of a period is not lost, and a long rest gains no more than a burst.
        assert!(taken(13 * S + S / 2) && !taken(13 * S + S * 3 / 4) && taken(14 * S));
        assert_eq!([99; 4].map(|s| taken(s * S)), [true, true, true, false]);
        assert!(!taken(0), "a clock that went back");
    }
}
