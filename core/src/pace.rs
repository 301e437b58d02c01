//! Pace: the least time that the rest of a task takes, from the time of its first part.
//!
//! The caller skips work that cannot be finished in time. So the estimate errs to the short side.
//! Work begun in vain costs a moment of the program's end; work given up too early costs the
//! result.

/// Bytes that no machine exceeds in a nanosecond.
const MOST_A_NS: u64 = 2;

/// See the module's text. Amounts are in bytes and nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Least time for which the work must have run. During a shorter time the machine may have done
    /// something else.
    pub known_after_ns: u64,
}

impl Pace {
    /// Returns the least time for `left` bytes after `done` bytes took `elapsed_ns`. The machine
    /// may have been busy, so the rest counts as half again as fast.
    #[must_use]
    pub fn takes_ns(self, left: u64, done: u64, elapsed_ns: u64) -> u64 {
        if elapsed_ns < self.known_after_ns || done == 0 {
            return left / MOST_A_NS;
        }
        let takes = u128::from(left) * u128::from(elapsed_ns) / u128::from(done) / 3 * 2;
        takes.try_into().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PACE: Pace = Pace {
        known_after_ns: 33 * MS,
    };

    /// 9 MB take 10 ms, after 20 ms in which the machine did something else: 100 ms are enough.
    #[test]
    fn a_moment_without_a_processor_is_no_pace() {
        let left = 8_750_000;
        assert!(PACE.takes_ns(left, 250_000, 20 * MS) < 80 * MS);
        // With the shorter limit the time would not suffice by far.
        let hasty = Pace { known_after_ns: MS };
        assert!(hasty.takes_ns(left, 250_000, 20 * MS) > 400 * MS);
    }

    #[test]
    fn what_is_slow_for_long_is_slow() {
        // 250 kB a millisecond for 40 ms, and half again as fast for the rest.
        assert_eq!(PACE.takes_ns(30_000_000, 10_000_000, 40 * MS), 80 * MS);
    }

    #[test]
    fn nothing_done_is_no_pace_either() {
        assert_eq!(PACE.takes_ns(2_000, 0, u64::MAX), 1_000);
        assert_eq!(PACE.takes_ns(u64::MAX, 1, u64::MAX), u64::MAX);
        assert_eq!(PACE.takes_ns(0, 1, 50 * MS), 0);
    }
}
