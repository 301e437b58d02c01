//! Forecast: when a memory limit is reached, if the heap goes on growing as it does.

use heapprof_format::{MemoryField, MemoryReading};

use crate::analysis::explain::conduct::Conduct;
use crate::model::change::REAL;

/// Times beyond this are not told, in seconds: seven days.
pub const LONGEST_S: f64 = 7.0 * 86_400.0;
/// Standard errors on each side of the growth.
const NINETY_FIVE: f64 = 1.96;
/// A limit that is reached within this time is trouble, in seconds: a day.
const NEAR_S: f64 = 86_400.0;

/// The limit that is reached first.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The limit, in words.
    pub limit: &'static str,
    /// The limit, in bytes.
    pub bytes: u64,
    /// The bytes that are used.
    pub used: u64,
    /// Growth of the lower envelope of what is in use, in bytes a second, with its standard error.
    pub growth: f64,
    /// See [`growth`](Forecast::growth).
    pub growth_error: f64,
    /// Seconds until the limit; `None`: not at this rate, or not within [`LONGEST_S`].
    pub seconds: Option<Interval>,
}

/// A time with its 95 % interval, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// At the rate.
    pub at_rate: f64,
    /// At the fastest rate that the samples permit.
    pub least: f64,
    /// At the slowest; `None`: never, or beyond [`LONGEST_S`].
    pub most: Option<f64>,
}

impl Forecast {
    /// The forecast by the last reading of the memory, for a heap with that conduct. A step takes
    /// `step_s` seconds, and fewer than `least` bytes are no growth.
    pub(crate) fn of(
        reading: &MemoryReading,
        conduct: &Conduct,
        step_s: f64,
        least: f64,
    ) -> Option<Forecast> {
        let time_s = conduct.span * step_s;
        let (growth, growth_error) = (conduct.growth() / time_s, conduct.error / time_s);
        let grows = conduct.growth() > (REAL * conduct.error).max(least);
        let get = |field| reading.get(field);
        let limits = [
            (
                "the cgroup's memory.max",
                MemoryField::CgroupMax,
                MemoryField::CgroupUsed,
            ),
            (
                "the cgroup's memory.high",
                MemoryField::CgroupHigh,
                MemoryField::CgroupUsed,
            ),
            (
                "RLIMIT_AS",
                MemoryField::AddressSpaceMax,
                MemoryField::Virtual,
            ),
        ];
        limits
            .into_iter()
            .filter_map(|(limit, max, used)| {
                let (bytes, used) = (get(max)?, get(used)?);
                let room = bytes.saturating_sub(used) as f64;
                let seconds = grows
                    .then(|| Interval::of(room, growth, growth_error))
                    .flatten();
                Some(Forecast {
                    limit,
                    bytes,
                    used,
                    growth,
                    growth_error,
                    seconds,
                })
            })
            .min_by_key(|it| it.bytes.saturating_sub(it.used))
    }

    /// Returns true if the limit may be reached within a day.
    pub fn is_near(&self) -> bool {
        self.seconds.is_some_and(|it| it.least < NEAR_S)
    }
}

impl Interval {
    /// The time in which so much room is used up; `None`: not within [`LONGEST_S`].
    fn of(room: f64, growth: f64, error: f64) -> Option<Interval> {
        let within = |rate: f64| {
            let seconds = room / rate;
            (rate > 0.0 && seconds <= LONGEST_S).then_some(seconds)
        };
        Some(Interval {
            at_rate: within(growth)?,
            least: room / (growth + NINETY_FIVE * error),
            most: within(growth - NINETY_FIVE * error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(max: u64, used: u64) -> MemoryReading {
        let mut reading = MemoryReading::at(0);
        reading.set(MemoryField::CgroupMax, max);
        reading.set(MemoryField::CgroupUsed, used);
        reading
    }

    fn grows_by(bytes: f64, error: f64) -> Conduct {
        Conduct {
            lows: [0.0, bytes / 2.0, bytes],
            error,
            span: 10.0,
            ..Conduct::default()
        }
    }

    #[test]
    fn the_time_to_a_limit_has_the_interval_of_the_growth() {
        // 100 bytes a second, in 10 steps of a second.
        let forecast = |error| {
            Forecast::of(
                &reading(100_000, 40_000),
                &grows_by(1000.0, error),
                1.0,
                1.0,
            )
            .unwrap()
        };
        let exact = forecast(0.0).seconds.unwrap();
        assert_eq!(
            (exact.at_rate, exact.least, exact.most),
            (600.0, 600.0, Some(600.0))
        );
        let sampled = forecast(100.0).seconds.unwrap();
        assert_eq!(sampled.least.round(), 502.0);
        assert_eq!(sampled.most.unwrap().round(), 746.0);
        assert!(forecast(100.0).is_near());
        // Less than three standard errors are no growth.
        assert_eq!(forecast(400.0).seconds, None);
    }

    #[test]
    fn a_limit_that_is_far_away_is_not_told_in_seconds() {
        let far = Forecast::of(&reading(1 << 50, 0), &grows_by(1000.0, 0.0), 1.0, 1.0).unwrap();
        assert_eq!(far.seconds, None);
        assert!(!far.is_near());
        let none = MemoryReading::at(0);
        assert_eq!(Forecast::of(&none, &grows_by(1.0, 0.0), 1.0, 0.0), None);
    }
}
