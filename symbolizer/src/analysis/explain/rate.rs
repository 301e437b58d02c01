//! Rate: how fast the bytes in use of the whole program grow, and since when.
//!
//! A log that rotated may have minutes in detail, and weeks in its coarse history. Growth of the
//! lower envelope is then judged over moments and detail together, in quarters as elsewhere. If
//! the growth is not steady over that time, its later half is judged, and so on.
//!
//! ```text
//!   moments of the coarse history             detail
//!   ├────┼────┼────┼────┼────┼────┼────┼────┼───────┤
//!   since      2nd         3rd         4th quarter        all of the time
//!                          since 2nd   3rd   4th          its later half
//! ```
//!
//! Not here: limits, and when they are reached (`explain::forecast`).

use crate::analysis::explain::coarse_run::{CoarseRun, FEWEST_MOMENTS, GOES_ON};
use crate::analysis::explain::conduct::{Conduct, levels};
use crate::analysis::explain::kind::is_steady;
use crate::analysis::explain::readings::Trend;
use crate::history::courses::{Course, Sum};
use crate::model::change::REAL;
use crate::model::profile::Profile;

/// Growth in the detail that is so many times as fast as before is another growth.
const RISES: f64 = 4.0;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    /// The beginning of the time that is judged, in nanoseconds.
    pub(crate) since_ns: u64,
    /// In bytes a second, with its standard error.
    pub(crate) growth: f64,
    pub(crate) error: f64,
    /// True if it is more than noise, and enough to matter.
    pub(crate) is_real: bool,
    /// The least bytes in use in the last quarter.
    low: f64,
}

/// The rates that a forecast rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    /// The rate to count on.
    pub(crate) main: Rate,
    /// The rate of another time that contradicts it.
    pub(crate) other: Option<Rate>,
    /// True if the coarse history has a part in it.
    pub(crate) by_history: bool,
}

/// The bytes in use of the whole program, over the coarse history and the detail.
#[derive(Debug)]
pub(crate) struct LongTerm<'a> {
    /// Its moments are those behind the last time that recording was stopped.
    run: CoarseRun<'a>,
    /// The moments, and the ends of the steps.
    levels: Vec<Level>,
    whole: &'a Course,
    /// The end of the first quarter, in which a program fills its tables.
    filled_ns: u64,
}

/// A part of the time, up to the end.
#[derive(Debug, Clone, Copy)]
struct Part {
    rate: Rate,
    /// True if the growth, if there is any, is so in both halves.
    is_steady: bool,
    /// The most bytes in use in the second quarter.
    highest: f64,
}

/// The bytes in use at a moment.
#[derive(Debug, Clone, Copy)]
struct Level {
    time_ns: u64,
    bytes: f64,
    variance: f64,
}

/// The lowest level of a quarter.
#[derive(Debug, Clone, Copy)]
struct Low {
    level: Level,
    /// The distance between the lowest levels: a low between two moments may be as much lower.
    spacing: f64,
}

impl Rate {
    /// The rate in the detail, which begins then. A step takes `step_s` seconds, and fewer than
    /// `least` bytes are no growth.
    pub(crate) fn of_detail(conduct: &Conduct, since_ns: u64, step_s: f64, least: f64) -> Rate {
        let seconds = conduct.span * step_s;
        Rate {
            since_ns,
            growth: conduct.growth() / seconds,
            error: conduct.error / seconds,
            is_real: conduct.growth() > (REAL * conduct.error).max(least),
            low: conduct.lows[2],
        }
    }

    /// The rate of a number of the readings.
    pub(crate) fn of_readings(trend: &Trend) -> Rate {
        Rate {
            since_ns: 0,
            growth: trend.growth,
            error: trend.error,
            is_real: true,
            low: 0.0,
        }
    }
}

impl Rates {
    /// `None`: neither is known.
    pub(crate) fn of(
        detail: Option<Rate>,
        long: Option<&LongTerm<'_>>,
        least: f64,
    ) -> Option<Rates> {
        let by_history = long.and_then(|long| Some((long, long.rate(least)?)));
        let Some((history, long)) = by_history else {
            return detail.map(|main| Rates {
                main,
                other: None,
                by_history: false,
            });
        };
        let of_long = |other| Rates {
            main: long,
            other,
            by_history: true,
        };
        let Some(detail) = detail else {
            return Some(of_long(None));
        };
        let of_detail = Rates {
            main: detail,
            other: Some(long),
            by_history: true,
        };
        let has_ended = long.is_real && detail.growth + REAL * detail.error < GOES_ON * long.growth;
        let least_rise = detail.growth - REAL * detail.error.hypot(long.error);
        let rises = detail.is_real && least_rise > RISES * long.growth.max(0.0);
        // The heap has been as large before, and came back: then the rise is not news.
        let is_new = detail.low > history.highest(history.filled_ns, u64::MAX);
        Some(match (has_ended, rises) {
            (true, _) => of_detail,
            (_, true) if is_new => of_detail,
            (_, true) => of_long(Some(detail)),
            _ => of_long(None),
        })
    }
}

impl<'a> LongTerm<'a> {
    /// `whole` is the course of the whole program. `None`: there is no coarse history of it.
    pub(crate) fn of(profile: &'a Profile, whole: &'a Course) -> Option<LongTerm<'a>> {
        let mut run = CoarseRun::of(profile)?;
        // Blocks that came while recording was stopped are in no moment.
        let stops = profile.run.stops(0, run.end_ns);
        let stop_ns = stops.last().map_or(0, |stop| stop.1);
        let later = run.moments.partition_point(|it| it.time_ns < stop_ns);
        run.moments = &run.moments[later..];
        let first = run.moments.first()?;
        let coarse = run.moments.iter().map(|it| Level {
            time_ns: it.time_ns,
            bytes: it.bytes as f64,
            variance: (it.bytes_error as f64).powi(2),
        });
        let in_detail = levels(&whole.steps).into_iter().enumerate();
        let in_detail = in_detail.map(|(step, level)| Level {
            time_ns: run.courses.begin_of(step + 1).min(run.end_ns),
            bytes: level.bytes,
            variance: level.variance,
        });
        Some(LongTerm {
            run,
            levels: coarse.chain(in_detail).collect(),
            whole,
            filled_ns: run.part(first.time_ns, 2),
        })
    }

    /// Returns the rate of the longest time up to the end that grows steadily, or is level, or
    /// falls as much as it rises. `None`: there is none, or the detail knows as much.
    fn rate(&self, least: f64) -> Option<Rate> {
        let mut since_ns = self.run.moments.first()?.time_ns;
        let (mut level, mut unsteady) = (None, None);
        while let Some(part) = self.part_since(since_ns, least) {
            // Growth in a part of a longer time counts if it leads beyond all that was before.
            let is_first = level.or(unsteady).is_none();
            let is_new = || part.rate.low > self.highest(self.filled_ns, since_ns);
            if part.rate.is_real && part.is_steady && (is_first || is_new()) {
                return Some(part.rate);
            }
            if !part.rate.is_real {
                level = level.or(Some(part.rate));
            } else if part.rate.low < part.highest {
                unsteady = unsteady.or(Some(Rate {
                    is_real: false,
                    ..part.rate
                }));
            }
            since_ns += (self.run.end_ns - since_ns) / 2;
        }
        level.or(unsteady)
    }

    /// Returns the time from then to the end. `None`: there are too few moments, or more than half
    /// of it is detail.
    fn part_since(&self, since_ns: u64, least: f64) -> Option<Part> {
        let length_ns = self.run.end_ns.checked_sub(since_ns)?;
        if self.run.is_mostly_detail(since_ns) {
            return None;
        }
        let part = |quarters: u64| self.run.part(since_ns, 2 * quarters);
        let low = |quarter: u64| self.low(part(quarter), part(quarter + 1));
        let lows = [low(1)?, low(2)?, low(3)?];
        let [second, _, fourth] = lows;
        // Blocks that are there at both moments cancel. Those that stay to the end are.
        let before = (self.run.courses).steps_before(self.whole, second.level.time_ns);
        let at_both = Sum::of_all(before).variance;
        let variance = second.level.variance + fourth.level.variance - 2.0 * at_both;
        let spacings = second.spacing.hypot(fourth.spacing);
        let error = variance.max(0.0).sqrt().hypot(spacings);
        let lows = lows.map(|low| low.level.bytes);
        let growth = lows[2] - lows[0];
        let seconds = length_ns as f64 / 2e9;
        let rate = Rate {
            since_ns,
            growth: growth / seconds,
            error: error / seconds,
            is_real: growth > (REAL * error).max(least),
            low: lows[2],
        };
        Some(Part {
            rate,
            is_steady: is_steady(&lows),
            highest: self.highest(part(1), part(2)),
        })
    }

    /// Returns the low of a part of the time; `None`: there are too few moments.
    fn low(&self, from_ns: u64, to_ns: u64) -> Option<Low> {
        let levels = self.levels.iter();
        let levels = levels.filter(|it| from_ns < it.time_ns && it.time_ns <= to_ns);
        let mut levels: Vec<Level> = levels.copied().collect();
        if levels.len() < FEWEST_MOMENTS {
            return None;
        }
        levels.sort_by(|a, b| a.bytes.total_cmp(&b.bytes));
        let lowest = levels.len() / FEWEST_MOMENTS;
        Some(Low {
            level: levels[0],
            spacing: (levels[lowest].bytes - levels[0].bytes) / lowest as f64,
        })
    }

    /// Returns the most bytes in use between two moments.
    fn highest(&self, from_ns: u64, to_ns: u64) -> f64 {
        let moments = self.run.moments.iter();
        let moments = moments.filter(|it| from_ns < it.time_ns && it.time_ns <= to_ns);
        moments.map(|it| it.highest as f64).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::courses::Courses;
    use heapprof_format::CoarseMoment;

    const MINUTE: u64 = 60_000_000_000;

    /// Two hours with a moment a minute, and a minute of detail. `bytes` are in use at a minute.
    fn rate(bytes: &dyn Fn(u64) -> u64, bytes_error: u64, every: usize, old: f64) -> Option<Rate> {
        let minutes = (1..=119).step_by(every);
        let moments: Vec<CoarseMoment> = minutes
            .map(|minute| CoarseMoment {
                time_ns: minute * MINUTE,
                bytes: bytes(minute),
                bytes_error,
                highest: bytes(minute),
                ..CoarseMoment::default()
            })
            .collect();
        let old = Sum {
            variance: old,
            ..Sum::default()
        };
        let whole = Course {
            steps: Vec::new(),
            before: vec![old],
        };
        let courses = Courses {
            begin_ns: 119 * MINUTE,
            ..Courses::default()
        };
        let levels = moments.iter().map(|it| Level {
            time_ns: it.time_ns,
            bytes: it.bytes as f64,
            variance: (it.bytes_error as f64).powi(2),
        });
        let long = LongTerm {
            run: CoarseRun {
                moments: &moments,
                courses: &courses,
                end_ns: 120 * MINUTE,
            },
            levels: levels.collect(),
            whole: &whole,
            filled_ns: 30 * MINUTE,
        };
        long.rate(1.0)
    }

    #[test]
    fn blocks_that_stay_have_no_part_in_the_error() {
        let level = |_| 5_000_000;
        // In an hour, from the middle of the second quarter to that of the fourth.
        let seconds = 119.0 * 30.0;
        let error = |old: f64| rate(&level, 4000, 1, old).expect("a rate").error * seconds;
        assert!((error(0.0) - 4000.0 * 2f64.sqrt()).abs() < 1.0);
        // All but a quarter of the variance stays to the end.
        assert!((error(0.75 * 16e6) - 4000.0 * 0.5f64.sqrt()).abs() < 1.0);
        assert_eq!(error(16e6), 0.0);
    }

    #[test]
    fn few_moments_of_a_heap_that_changes_leave_the_growth_uncertain() {
        // Between 0 and 10 MB, at random, and beside it 10 KB more each minute.
        let noise = |minute: u64| minute.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let bytes = |minute: u64| 1_000_000 + noise(minute) % 10_000_000 + 10_000 * minute;
        let of = |every: usize| rate(&bytes, 0, every, 0.0);
        let all = of(1).expect("a rate");
        let few = of(5).expect("a rate");
        assert!(few.error > 2.0 * all.error, "{few:?} {all:?}");
        let truth = 10_000.0 / 60.0;
        for rate in [all, few] {
            assert!((rate.growth - truth).abs() < 3.0 * rate.error, "{rate:?}");
        }
        // Less than four in a quarter.
        assert_eq!(of(8), None);
    }
}
