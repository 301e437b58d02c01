//! Rates: bytes and blocks that each row allocated a second, of late or over the whole run.
//!
//! ```text
//!   looks   ├────┼────┼────┤ now      rate = (allocated now - at the oldest look) / time
//! ```
//!
//! Until a second look there is only the whole run, and a run that is over has no other rate.

use std::collections::VecDeque;
use std::time::Duration;

use heapprof_core::Estimate;

use crate::model::amount::Amount;
use crate::model::profile::Profile;
use crate::presence::Life;

/// The time between two looks that are kept.
const BETWEEN: Duration = Duration::from_secs(5);
/// Looks that are kept: rates are those of so many times [`BETWEEN`], and up to one more.
const LOOKS: usize = 3;
/// A shorter time is too short for a rate.
const SHORTEST: Duration = Duration::from_millis(900);

/// The looks of late.
#[derive(Debug, Default)]
pub(super) struct RecentLooks {
    looks: VecDeque<Look>,
}

/// The numbers at a time of the clock.
#[derive(Debug)]
struct Look {
    at: Duration,
    /// Allocated by each row.
    rows: Vec<Estimate>,
    in_use_bytes: f64,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rates {
    /// The time that they are of, in seconds; 0: there are none.
    pub(super) seconds: f64,
    /// True if that is the whole run.
    pub(super) is_whole_run: bool,
    /// Allocated in that time, by row.
    rows: Vec<Estimate>,
    /// The growth of bytes in use in that time.
    in_use_change: f64,
}

impl RecentLooks {
    /// Forgets all looks: rows are other ones now.
    pub(super) fn clear(&mut self) {
        self.looks.clear();
    }

    /// Looks at a profile, at a time of a clock that goes on steadily.
    pub(super) fn rates(&mut self, now: Duration, profile: &Profile, life: Life) -> Rates {
        let in_use_bytes = profile.totals().in_use.bytes_f64();
        let allocated = || profile.rows.iter().map(|row| row.totals.allocated);
        let since = |look: &Look| now.saturating_sub(look.at);
        while self.looks.len() > 1
            && self
                .looks
                .get(1)
                .is_some_and(|next| since(next) >= BETWEEN * LOOKS as u32)
        {
            self.looks.pop_front();
        }
        let oldest = self.looks.front().filter(|look| since(look) >= SHORTEST);
        let rates = match oldest.filter(|_| life == Life::Running) {
            Some(look) => {
                let before = look.rows.iter().copied();
                let before = before.chain(std::iter::repeat(Estimate::default()));
                Rates {
                    seconds: since(look).as_secs_f64(),
                    is_whole_run: false,
                    rows: allocated()
                        .zip(before)
                        .map(|(is, was)| is.without(&was))
                        .collect(),
                    in_use_change: in_use_bytes - look.in_use_bytes,
                }
            }
            None => Rates {
                seconds: profile.run.duration_ns as f64 / 1e9,
                is_whole_run: true,
                rows: allocated().collect(),
                in_use_change: in_use_bytes,
            },
        };
        if self.looks.back().is_none_or(|look| since(look) >= BETWEEN) {
            self.looks.push_back(Look {
                at: now,
                rows: allocated().collect(),
                in_use_bytes,
            });
        }
        rates
    }
}

impl Rates {
    /// The allocations of a row a second, in bytes or in blocks.
    pub(super) fn of_row(&self, row: usize, is_bytes: bool) -> Amount {
        let Some(allocated) = self.rows.get(row).filter(|_| self.seconds > 0.0) else {
            return Amount::default();
        };
        let (value, error) = match is_bytes {
            true => (allocated.bytes_f64(), allocated.bytes_error()),
            false => (allocated.objects_f64(), allocated.objects_error()),
        };
        Amount::of(
            value / self.seconds,
            error / self.seconds,
            allocated.samples,
        )
    }

    /// Bytes allocated and bytes freed a second, by all rows.
    pub(super) fn of_all(&self) -> (f64, f64) {
        let allocated: f64 = (0..self.rows.len())
            .map(|row| self.of_row(row, true).value)
            .sum();
        let grown = match self.seconds > 0.0 {
            true => self.in_use_change / self.seconds,
            false => 0.0,
        };
        (allocated, (allocated - grown).max(0.0))
    }

    /// True if nothing was allocated or freed.
    pub(super) fn are_zero(&self) -> bool {
        self.in_use_change == 0.0 && self.rows.iter().all(Estimate::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::{Row, SizeClass, Totals, Weight};

    use super::*;

    /// A profile whose rows have allocated so many blocks of 100 bytes, and freed none.
    fn profile(seconds: u64, blocks: &[u64]) -> Profile {
        let row = |(stack, &blocks): (usize, &u64)| {
            let mut totals = Totals::default();
            for _ in 0..blocks {
                totals.allocated.add(&Weight::of(100, 1));
                totals.in_use.add(&Weight::of(100, 1));
            }
            Row {
                stack: stack as u32,
                class: SizeClass::of(100),
                totals,
            }
        };
        let mut profile = Profile {
            rows: blocks.iter().enumerate().map(row).collect(),
            ..Profile::default()
        };
        profile.run.duration_ns = seconds * 1_000_000_000;
        profile
    }

    #[test]
    fn rates_are_of_the_run_at_first_and_of_late_then() {
        let mut looks = RecentLooks::default();
        let at = Duration::from_secs;
        let first = looks.rates(at(100), &profile(10, &[50]), Life::Running);
        assert!(first.is_whole_run);
        assert_eq!(first.of_row(0, true).value, 500.0);
        assert_eq!(first.of_row(0, false).value, 5.0);
        // Two seconds later: another row came, and has its whole in that time.
        let second = looks.rates(at(102), &profile(12, &[60, 4]), Life::Running);
        assert!(!second.is_whole_run);
        assert_eq!(second.of_row(0, true).value, 500.0);
        assert_eq!(second.of_row(1, true).value, 200.0);
        assert_eq!(second.of_all(), (700.0, 0.0));
        assert_eq!(second.of_row(7, true), Amount::default());
        // Nothing for long: the rate goes to nothing, and the looks stay few.
        for second in 103..140 {
            looks.rates(at(second), &profile(12, &[60, 4]), Life::Running);
            assert!(looks.looks.len() <= LOOKS + 2);
        }
        let quiet = looks.rates(at(140), &profile(12, &[60, 4]), Life::Running);
        assert!(quiet.are_zero() && quiet.seconds <= 20.0, "{quiet:?}");
        let ended = looks.rates(at(141), &profile(12, &[60, 4]), Life::Ended);
        assert!(ended.is_whole_run);
    }
}
