//! Limit alarm: tells once that the memory in use has crossed a share of its limit.
//!
//! ```text
//!   95 % ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╱╲┄┄┄┄   told
//!   90 % ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╱┄┄┄┄╲┄┄┄┄   told
//!   85 %              ╱        ╲┄┄┄   from here down, 90 % is told again at the next crossing
//!   80 % ┄┄┄┄┄┄┄┄┄┄╱┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄   told
//! ```

/// The shares that are told, in percent of the limit.
static SHARES: [u64; 3] = [80, 90, 95];
/// Percent of the limit below a share from which the share is told again.
const HYSTERESIS: u64 = 5;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitAlarm {
    /// Number of shares that are told, from the lowest.
    told: usize,
}

impl LimitAlarm {
    /// Returns the shares, in percent, that `used` has crossed after the last call, lowest first.
    pub fn check(&mut self, used: u64, limit: u64) -> &'static [u64] {
        let is_over = |percent: u64| {
            u128::from(used) * 100 >= u128::from(limit) * u128::from(percent) && limit > 0
        };
        let over = SHARES.iter().take_while(|&&share| is_over(share)).count();
        while self.told > over && !is_over(SHARES[self.told - 1] - HYSTERESIS) {
            self.told -= 1;
        }
        let crossed = SHARES.get(self.told..over).unwrap_or_default();
        self.told = self.told.max(over);
        crossed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(percents: &[u64]) -> Vec<Vec<u64>> {
        let mut alarm = LimitAlarm::default();
        let check = |&percent: &u64| alarm.check(percent * 10, 1000).to_vec();
        percents.iter().map(check).collect()
    }

    /// The shares that are told of each call, in words.
    fn words(percents: &[u64]) -> String {
        format!("{:?}", told(percents))
    }

    #[test]
    fn each_share_is_told_once() {
        assert_eq!(
            words(&[10, 79, 80, 81, 90, 94, 95, 100, 120]),
            "[[], [], [80], [], [90], [], [95], [], []]"
        );
        // One that was passed between two calls is told, too.
        assert_eq!(words(&[97, 97]), "[[80, 90, 95], []]");
    }

    #[test]
    fn memory_that_goes_up_and_down_around_a_share_is_told_once() {
        assert_eq!(words(&[80, 79, 80, 76, 81]), "[[80], [], [], [], []]");
        assert_eq!(words(&[80, 74, 80]), "[[80], [], [80]]");
        assert_eq!(words(&[96, 84, 91, 96]), "[[80, 90, 95], [], [90], [95]]");
    }

    #[test]
    fn no_limit_is_never_crossed_and_the_largest_does_not_wrap() {
        let mut alarm = LimitAlarm::default();
        assert!(alarm.check(u64::MAX, 0).is_empty());
        assert_eq!(alarm.check(u64::MAX, u64::MAX), [80, 90, 95]);
    }
}
