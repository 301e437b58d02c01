//! Pace: how long the rest of a piece of work takes at least, by how long its first part took.
//!
//! The caller gives up work that cannot be done in time. So the answer errs to the short side: a
//! vain attempt costs a moment of a program's end, giving up too early costs the result.

/// In a nanosecond no machine makes more bytes than that.
const MOST_A_NS: u64 = 2;

/// See the module's text. In bytes and nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// So long something must have been at work. A moment in which the machine did something else
    /// is no pace.
    pub known_after_ns: u64,
}

impl Pace {
    /// Returns the least time for `left` bytes, after `done` bytes took `elapsed_ns`. The machine
    /// may have been busy so far: the rest is assumed to be half again as fast.
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

    /// 9 MB take 10 ms. In the first 20 ms the machine did something else: there is time for them
    /// all the same, of 100 ms.
    #[test]
    fn a_moment_without_a_processor_is_no_pace() {
        let left = 8_750_000;
        assert!(PACE.takes_ns(left, 250_000, 20 * MS) < 80 * MS);
        // As soon as it were one, it would be no time by far.
        let hasty = Pace { known_after_ns: MS };
        assert!(hasty.takes_ns(left, 250_000, 20 * MS) > 400 * MS);
    }

    #[test]
    fn what_is_slow_for_long_is_slow() {
        // 250 kB a millisecond for 40 ms, and half again as fast from here on.
        assert_eq!(PACE.takes_ns(30_000_000, 10_000_000, 40 * MS), 80 * MS);
    }

    #[test]
    fn nothing_done_is_no_pace_either() {
        assert_eq!(PACE.takes_ns(2_000, 0, u64::MAX), 1_000);
        assert_eq!(PACE.takes_ns(u64::MAX, 1, u64::MAX), u64::MAX);
        assert_eq!(PACE.takes_ns(0, 1, 50 * MS), 0);
    }
}
