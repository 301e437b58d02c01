//! Limit alarm: tells once that the memory in use has crossed a share of its limit, and tells when
//! to look again.
//!
//! ```text
//!   95 % ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╱╲┄┄┄┄   told
//!   90 % ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╱┄┄┄┄╲┄┄┄┄   told
//!   85 %              ╱        ╲┄┄┄   from here down, 90 % is told again at the next crossing
//!   80 % ┄┄┄┄┄┄┄┄┄┄╱┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄   told
//! ```
//!
//! The next look is when the next share is crossed, if the memory grows on as it did since the last
//! look. Growth may become faster meanwhile, so there is a longest time between two looks.

/// The shares that are told, in percent of the limit.
static SHARES: [u64; 3] = [80, 90, 95];
/// Percent of the limit below a share from which the share is told again.
const HYSTERESIS: u64 = 5;
/// The time between the first two looks, which tell the growth.
const SECOND_NS: u64 = 50_000_000;
/// The longest and the shortest time between two looks.
const RAREST_NS: u64 = 500_000_000;
const MOST_OFTEN_NS: u64 = 20_000_000;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitAlarm {
    /// Number of shares that are told, from the lowest.
    told: usize,
    /// Bytes in use at the last look, and its time.
    last: Option<(u64, u64)>,
}

impl LimitAlarm {
    /// Returns the shares, in percent, that `used` has crossed after the last call, lowest first.
    pub fn check(&mut self, used: u64, limit: u64) -> &'static [u64] {
        let over = shares_over(used, limit);
        while self.told > over && !is_over(used, limit, SHARES[self.told - 1] - HYSTERESIS) {
            self.told -= 1;
        }
        let crossed = SHARES.get(self.told..over).unwrap_or_default();
        self.told = self.told.max(over);
        crossed
    }

    /// Looks at `used` bytes of the limit. Returns `None` if a share is crossed that is not told:
    /// [`check`](Self::check) tells it. Otherwise returns when to look again.
    pub fn look(&mut self, used: u64, limit: u64, now_ns: u64) -> Option<u64> {
        let last = self.last.replace((used, now_ns));
        if shares_over(used, limit) > self.told {
            return None;
        }
        let rarest = now_ns.saturating_add(RAREST_NS);
        let Some((last_used, last_ns)) = last else {
            return Some(now_ns.saturating_add(SECOND_NS));
        };
        let next = SHARES.iter().find(|&&share| !is_over(used, limit, share));
        let (Some(&next), Some(grown)) = (next, used.checked_sub(last_used)) else {
            return Some(rarest);
        };
        let at_next = u128::from(limit) * u128::from(next) / 100;
        let room = at_next.saturating_sub(u128::from(used));
        let passed = u128::from(now_ns.saturating_sub(last_ns));
        let until = (room * passed).checked_div(u128::from(grown));
        let until = until
            .and_then(|ns| u64::try_from(ns).ok())
            .unwrap_or(RAREST_NS);
        Some(now_ns.saturating_add(until.clamp(MOST_OFTEN_NS, RAREST_NS)))
    }
}

/// Returns true if that share of the limit is used.
fn is_over(used: u64, limit: u64, percent: u64) -> bool {
    u128::from(used) * 100 >= u128::from(limit) * u128::from(percent) && limit > 0
}

/// Returns the number of shares that are used.
fn shares_over(used: u64, limit: u64) -> usize {
    let over = SHARES
        .iter()
        .take_while(|&&share| is_over(used, limit, share));
    over.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_shares(percents: &[u64]) -> Vec<Vec<u64>> {
        let mut alarm = LimitAlarm::default();
        let check = |&percent: &u64| alarm.check(percent * 10, 1000).to_vec();
        percents.iter().map(check).collect()
    }

    /// The shares that are told of each call, in words.
    fn words(percents: &[u64]) -> String {
        format!("{:?}", told_shares(percents))
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

    /// Memory that grows from nothing to its limit, at a rate for each half. Returns the bytes at
    /// which shares were told, in thousandths of the limit.
    fn told_at(rates_per_ms: [u64; 2]) -> Vec<u64> {
        const LIMIT: u64 = 1_000_000;
        const MS: u64 = 1_000_000;
        let mut alarm = LimitAlarm::default();
        let (mut used, mut next_ns, mut told) = (0, 0, Vec::new());
        for ms in 0.. {
            used += rates_per_ms[usize::from(used > LIMIT / 2)];
            if used > LIMIT {
                return told;
            }
            if ms * MS < next_ns {
                continue;
            }
            next_ns = alarm.look(used, LIMIT, ms * MS).unwrap_or_else(|| {
                let shares = alarm.check(used, LIMIT);
                told.extend(shares.iter().map(|_| used * 1000 / LIMIT));
                ms * MS
            });
        }
        unreachable!()
    }

    #[test]
    fn looks_come_as_often_as_the_growth_asks_for() {
        // To the limit in ten seconds, in two and a half, at first slowly, and in less than the
        // longest time between two looks.
        for rates in [[100, 100], [400, 400], [10, 400], [2500, 2500]] {
            let told = told_at(rates);
            let late: Vec<_> = told
                .iter()
                .zip([800, 900, 950])
                .map(|(at, share)| at - share)
                .collect();
            assert!(
                told.len() == 3 && late.iter().all(|it| *it <= 20),
                "{rates:?}: {told:?}"
            );
        }
    }

    #[test]
    fn memory_that_does_not_grow_is_looked_at_rarely() {
        let mut alarm = LimitAlarm::default();
        let mut wait = |used, now_ns| alarm.look(used, 1_000, now_ns).map(|next| next - now_ns);
        assert_eq!(wait(500, 0), Some(SECOND_NS));
        for (used, now_ns) in [(500, 5), (400, 9), (401, u64::MAX / 2)] {
            assert_eq!(wait(used, now_ns), Some(RAREST_NS), "{used}");
        }
        assert_eq!(wait(800, u64::MAX / 2 + 1), None, "it is told first");
        alarm.check(800, 1_000);
        assert_eq!(alarm.look(899, 1_000, u64::MAX), Some(u64::MAX));
        assert_eq!(alarm.look(1, 0, 7), Some(7 + RAREST_NS), "no limit");
    }
}
