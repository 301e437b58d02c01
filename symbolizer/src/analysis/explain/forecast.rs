//! Forecast: when a memory limit is reached, if the memory goes on growing as it does.
//!
//! The rate is that of the heap, by its samples, or that of what the limit counts, by the readings,
//! if this grows faster: mappings grow, too.

use heapprof_format::{MemoryField, MemoryReading};

use crate::analysis::explain::rate::{Rate, Rates};
use crate::analysis::explain::readings::Trend;
use crate::model::memory_course::MemoryMoment;

/// Times beyond this are not told, in seconds: seven days.
pub const LONGEST_S: f64 = 7.0 * 86_400.0;
/// Standard errors on each side of the growth.
const NINETY_FIVE: f64 = 1.96;
/// A limit that is reached within this time is trouble, in seconds: a day.
const NEAR_S: f64 = 86_400.0;

/// A number of the readings.
type Number = fn(&MemoryMoment) -> Option<u64>;

/// The limit that is reached first.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The limit, in words.
    pub limit: &'static str,
    /// The limit, in bytes.
    pub bytes: u64,
    /// The bytes that are used.
    pub used: u64,
    /// When it is reached, if the memory grows as it does.
    pub outlook: Outlook,
    /// The same at the rate of another time, which contradicts that.
    pub other: Option<Outlook>,
}

/// The time until a limit, at a rate of growth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// The beginning of the time that has the rate, in nanoseconds, if the coarse history has a
    /// part in the forecast.
    pub since_ns: Option<u64>,
    /// Growth of the lower envelope of what is used, in bytes a second, with its standard error.
    pub growth: f64,
    /// See [`growth`](Outlook::growth).
    pub growth_error: f64,
    /// Seconds until the limit, at the rate; `None`: it does not grow by more than noise, or the
    /// limit is not reached within [`LONGEST_S`].
    pub seconds: Option<f64>,
    /// The 95 % interval: at the fastest rate that the samples permit; `None`: not within
    /// [`LONGEST_S`].
    pub least_seconds: Option<f64>,
    /// At the slowest.
    pub most_seconds: Option<f64>,
}

impl Forecast {
    /// The forecast by the last reading of the memory, and by those before, for a heap that grows
    /// at those rates. `None`: there is no limit, or no rate.
    pub(crate) fn of(
        reading: &MemoryReading,
        rates: Option<&Rates>,
        moments: &[MemoryMoment],
    ) -> Option<Forecast> {
        let get = |field| reading.get(field);
        let cgroup: Number = |it| it.cgroup;
        let address_space: Number = |it| it.address_space;
        let limits = [
            (
                reading.cgroup_limit(),
                MemoryField::CgroupMax,
                reading.cgroup_held(),
                cgroup,
            ),
            (
                "the cgroup's memory.high",
                MemoryField::CgroupHigh,
                reading.cgroup_held(),
                cgroup,
            ),
            (
                "RLIMIT_AS",
                MemoryField::AddressSpaceMax,
                get(MemoryField::Virtual),
                address_space,
            ),
        ];
        let known = limits
            .into_iter()
            .filter_map(|(limit, max, used, number)| Some((limit, get(max)?, used?, number)));
        let (limit, bytes, used, number) = known.min_by_key(|it| it.1.saturating_sub(it.2))?;
        let room = bytes.saturating_sub(used) as f64;
        let by_readings = Trend::of(moments, number).filter(|trend| {
            rates.is_none_or(|rates| {
                let heap = &rates.main;
                !heap.is_real || trend.growth > heap.growth + NINETY_FIVE * heap.error
            })
        });
        let outlook = |rate: &Rate| Outlook {
            since_ns: rates
                .is_some_and(|it| it.by_history)
                .then_some(rate.since_ns),
            ..Outlook::of(room, rate)
        };
        let (outlook, other) = match by_readings {
            Some(trend) => (Outlook::of(room, &Rate::of_readings(&trend)), None),
            None => (outlook(&rates?.main), rates?.other.as_ref().map(outlook)),
        };
        Some(Forecast {
            limit,
            bytes,
            used,
            outlook,
            other,
        })
    }

    /// Returns true if all that the limit permits is used, but for a thousandth.
    pub(crate) fn is_reached(&self) -> bool {
        self.used >= self.bytes - self.bytes / 1000
    }

    /// Returns true if the limit is reached, or may be within a day.
    pub fn is_near(&self) -> bool {
        let outlook = &self.outlook;
        let is_within_a_day = outlook.least_seconds.is_some_and(|least| least < NEAR_S);
        self.is_reached() || outlook.seconds.is_some() && is_within_a_day
    }
}

impl Outlook {
    fn of(room: f64, rate: &Rate) -> Outlook {
        let within = |growth: f64| {
            let seconds = room / growth;
            (growth > 0.0 && seconds <= LONGEST_S).then_some(seconds)
        };
        let (growth, growth_error) = (rate.growth, rate.error);
        let known = |growth: f64| within(growth).filter(|_| rate.is_real);
        Outlook {
            since_ns: None,
            growth,
            growth_error,
            seconds: known(growth),
            least_seconds: within(growth + NINETY_FIVE * growth_error),
            most_seconds: known(growth - NINETY_FIVE * growth_error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::explain::conduct::Conduct;

    fn reading(max: u64, used: u64) -> MemoryReading {
        let mut reading = MemoryReading::at(0);
        reading.set(MemoryField::CgroupHighEvents, 0); // of version 2
        reading.set(MemoryField::CgroupMax, max);
        reading.set(MemoryField::CgroupUsed, used);
        reading
    }

    /// In 10 steps of a second.
    fn grows_by(bytes: f64, error: f64) -> Rates {
        let conduct = Conduct {
            lows: [0.0, bytes / 2.0, bytes],
            error,
            span: 10.0,
            ..Conduct::default()
        };
        let rate = Rate::of_detail(&conduct, 0, 1.0, 1.0);
        Rates::of(Some(rate), None, 1.0).expect("a rate")
    }

    #[test]
    fn the_time_to_a_limit_has_the_interval_of_the_growth() {
        // 100 bytes a second.
        let forecast = |error| {
            Forecast::of(
                &reading(100_000, 40_000),
                Some(&grows_by(1000.0, error)),
                &[],
            )
            .unwrap()
        };
        let times = |error| {
            let it = forecast(error).outlook;
            let whole = |seconds: Option<f64>| seconds.map(f64::round);
            [it.least_seconds, it.seconds, it.most_seconds].map(whole)
        };
        assert_eq!(times(0.0), [Some(600.0); 3]);
        assert_eq!(times(100.0), [Some(502.0), Some(600.0), Some(746.0)]);
        assert!(forecast(100.0).is_near());
        // Less than three standard errors are no growth, but may be some.
        assert_eq!(times(400.0), [Some(336.0), None, None]);
        assert!(!forecast(400.0).is_near());
        let words = |error| forecast(error).in_words();
        let all = "the cgroup's memory.max is 97.7 KiB, of which 39.1 KiB are used: ";
        let grown = "reached in 10 min at this rate (8 min to 12 min)";
        assert_eq!(words(100.0), format!("{all}{grown}"));
        let unknown = "not reached before 6 min at this rate, if at all";
        assert_eq!(words(400.0), format!("{all}{unknown}"));
    }

    #[test]
    fn mappings_reach_a_limit_too() {
        let moments: Vec<MemoryMoment> = (0..40)
            .map(|second| MemoryMoment {
                time_ns: second * 1_000_000_000,
                mappings: None,
                address_space: None,
                cgroup: Some((second + 1) << 20),
            })
            .collect();
        let limit = reading(100 << 20, 40 << 20);
        let seconds = |rates: Option<&Rates>, moments| {
            let forecast = Forecast::of(&limit, rates, moments)?;
            forecast.outlook.seconds.map(f64::round)
        };
        assert_eq!(seconds(None, &moments), Some(60.0));
        assert_eq!(seconds(None, &[]), None);
        // A heap that grows by less, and one that does not grow.
        let slow = grows_by((1 << 20) as f64, 1000.0);
        assert_eq!(seconds(Some(&slow), &moments), Some(60.0));
        assert_eq!(seconds(Some(&grows_by(0.0, 1e9)), &moments), Some(60.0));
        // One that grows by twice as much.
        let fast = grows_by((20 << 20) as f64, 1000.0);
        assert_eq!(seconds(Some(&fast), &moments), Some(30.0));
    }

    #[test]
    fn a_limit_that_is_used_up_has_no_time() {
        let forecast =
            Forecast::of(&reading(100_000, 99_950), Some(&grows_by(1000.0, 0.0)), &[]).unwrap();
        let words = forecast.in_words();
        let reached = "the cgroup's memory.max is 97.7 KiB, and all of it is used";
        assert_eq!(words, reached);
        let nearly =
            Forecast::of(&reading(100_000, 99_000), Some(&grows_by(1000.0, 0.0)), &[]).unwrap();
        assert!(nearly.in_words().contains("reached in 10 s"));
    }

    #[test]
    fn a_cgroup_of_version_1_has_another_limit() {
        let mut reading = MemoryReading::at(0);
        reading.set(MemoryField::CgroupMax, 1000);
        reading.set(MemoryField::CgroupUsed, 10);
        let forecast = Forecast::of(&reading, Some(&grows_by(10.0, 0.0)), &[]).unwrap();
        assert_eq!(forecast.limit, "the cgroup's memory.limit_in_bytes");
    }

    #[test]
    fn a_limit_that_is_far_away_is_not_told_in_seconds() {
        let far = Forecast::of(&reading(1 << 50, 0), Some(&grows_by(1000.0, 0.0)), &[]).unwrap();
        assert_eq!(
            (far.outlook.seconds, far.outlook.least_seconds),
            (None, None)
        );
        assert!(!far.is_near());
        assert!(
            far.in_words()
                .ends_with("not reached within 7 days at this rate")
        );
        let none = MemoryReading::at(0);
        assert_eq!(Forecast::of(&none, Some(&grows_by(1.0, 0.0)), &[]), None);
    }
}
