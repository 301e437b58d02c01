//! Limit alarm: tells once that the memory in use has crossed a share of its limit.
//!
//! ```text
//!   95 % ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╱╲┄┄┄┄   told
//!   90 % ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╱┄┄┄┄╲┄┄┄┄   told
//!   85 %              ╱        ╲┄┄┄   from here down, 90 % is told again at the next crossing
//!   80 % ┄┄┄┄┄┄┄┄┄┄╱┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄   told
//! ```

/// The shares that are told, in percent of the limit.
const SHARES: [u64; 3] = [80, 90, 95];
/// Percent of the limit below a share from which the share is told again.
const HYSTERESIS: u64 = 5;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitAlarm {
    /// Number of shares that are told, from the lowest.
    told: usize,
}

impl LimitAlarm {
    /// Returns the highest share, in percent, that `used` has crossed after the last call.
    pub fn check(&mut self, used: u64, limit: u64) -> Option<u64> {
        let is_over = |percent: u64| {
            u128::from(used) * 100 >= u128::from(limit) * u128::from(percent) && limit > 0
        };
        let over = SHARES.iter().take_while(|&&share| is_over(share)).count();
        while self.told > over && !is_over(SHARES[self.told - 1] - HYSTERESIS) {
            self.told -= 1;
        }
        if over > self.told {
            self.told = over;
            return Some(SHARES[over - 1]);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(percents: &[u64]) -> Vec<Option<u64>> {
        let mut alarm = LimitAlarm::default();
        let check = |&percent: &u64| alarm.check(percent * 10, 1000);
        percents.iter().map(check).collect()
    }

    #[test]
    fn each_share_is_told_once() {
        assert_eq!(
            told(&[10, 79, 80, 81, 90, 94, 95, 100, 120]),
            [
                None,
                None,
                Some(80),
                None,
                Some(90),
                None,
                Some(95),
                None,
                None
            ]
        );
        assert_eq!(told(&[97, 97]), [Some(95), None]);
    }

    #[test]
    fn memory_that_goes_up_and_down_around_a_share_is_told_once() {
        assert_eq!(
            told(&[80, 79, 80, 76, 81]),
            [Some(80), None, None, None, None]
        );
        assert_eq!(told(&[80, 74, 80]), [Some(80), None, Some(80)]);
        assert_eq!(
            told(&[96, 84, 91, 96]),
            [Some(95), None, Some(90), Some(95)]
        );
    }

    #[test]
    fn no_limit_is_never_crossed_and_the_largest_does_not_wrap() {
        let mut alarm = LimitAlarm::default();
        assert_eq!(alarm.check(u64::MAX, 0), None);
        assert_eq!(alarm.check(u64::MAX, u64::MAX), Some(95));
    }
}
