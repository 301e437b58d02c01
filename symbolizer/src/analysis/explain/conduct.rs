//! Conduct: what the memory of a site does over a run, in a few numbers.
//!
//! The time from a site's first block to the end is divided into quarters. The first one is left
//! out: a program fills its tables when it starts.
//!
//! ```text
//!   in use │        ╱╲  ╱╲  ╱╲ ╱       lows: the least of each quarter, the lower envelope
//!          │    ╱╲╱╱  ╲╱  ╲╱  ╲        old: in use at the half; gone: the part that is freed later
//!          │___╱______________
//!            1st  2nd  3rd  4th
//! ```

use crate::history::courses::{Course, CourseStep, StackCourse, Sum};

/// The fewest steps with quarters that say anything.
const FEWEST_STEPS: usize = 16;
/// The part of the most bytes that hides a conduct, if it goes while recording is stopped.
const HIDDEN: f64 = 0.1;
/// Standard errors of a rise that is real. The highest and the lowest of a hundred levels that
/// differ by chance alone are three and a half apart.
const REAL_RISE: f64 = 4.0;

/// See the module's text. Bytes, unsampled.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Conduct {
    /// The least bytes in use in the second, third and fourth quarter.
    pub(crate) lows: [f64; 3],
    /// The standard error of the difference of the last low and the first.
    pub(crate) error: f64,
    /// The standard error of the bytes in use at the end.
    pub(crate) level_error: f64,
    /// The most bytes in use in the second, third and fourth quarter.
    pub(crate) highs: [f64; 3],
    /// From the ends of the first, second and third quarter to the end of the time. `None`: blocks
    /// went while recording was stopped, or the course is not known.
    pub(crate) rises_since: Option<[Difference; 3]>,
    /// Mean bytes in use over the last two quarters.
    pub(crate) mean: f64,
    /// The part of what is in use at the half that is freed by the end, from 0 to 1.
    pub(crate) gone: f64,
    /// The part of the samples of the first half that stays, divided by the same part of the third
    /// quarter. A leak loses no old blocks: 1, whatever else its site allocates. A large block is
    /// one sample: the earlier arrays of a container do not hide that its elements stay.
    pub(crate) kept: f64,
    /// Samples that came since the middle of the second quarter and stay.
    pub(crate) growth_samples: u64,
    /// Samples that came in the last two quarters and stay.
    pub(crate) late_samples: u64,
    /// Allocated and freed in the last two quarters.
    pub(crate) late_allocated: f64,
    pub(crate) late_freed: f64,
    /// The standard error of the latter.
    pub(crate) late_freed_error: f64,
    /// Allocated and freed in the last quarter, in bytes.
    pub(crate) last_changed: f64,
    /// Allocated in all.
    pub(crate) allocated: f64,
    /// The part of it that came in the first tenth of the run, or of the site's own time.
    pub(crate) early: f64,
    /// The most bytes in use at once, and when, in nanoseconds.
    pub(crate) highest: f64,
    pub(crate) highest_ns: u64,
    /// The standard error of the most.
    pub(crate) highest_error: f64,
    /// When its first blocks came, in nanoseconds; `None`: in the first tenth of the run.
    pub(crate) began_ns: Option<u64>,
    /// When it first had the least of the last quarter, in nanoseconds; `None`: in the first
    /// quarter of the run.
    pub(crate) settled_ns: Option<u64>,
    /// The bytes in use of which it has more in one half of the run's steps, and less in the other.
    pub(crate) usual: f64,
    /// The standard error of it.
    pub(crate) usual_error: f64,
    /// True if the most is more than that by more than noise.
    pub(crate) stands_out: bool,
    /// Bytes in use at the end.
    pub(crate) last: f64,
    /// True if nothing is in use at the end, and nothing came in the last quarter, or recording
    /// was stopped at the end.
    pub(crate) is_over: bool,
    /// How often it rises from below a third of the most to above two thirds, by more than noise.
    pub(crate) rises: usize,
    /// The time from the middle of the second quarter to that of the fourth, in steps.
    pub(crate) span: f64,
    /// Samples of all that came.
    pub(crate) samples: u64,
    /// Blocks in use at the end, as samples.
    pub(crate) staying_samples: u64,
}

/// A difference of the bytes in use at two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Difference {
    pub(crate) bytes: f64,
    /// The standard error: that of the blocks that are there at one of the moments only.
    pub(crate) error: f64,
    /// The same, if blocks whose sizes are known came and went by chance, too.
    pub(crate) error_by_chance: f64,
}

impl Conduct {
    /// Returns the conduct; `None`: the time is too short to say.
    pub(crate) fn of(course: &Course) -> Option<Conduct> {
        let steps = &course.steps;
        let is_used = |step: &CourseStep| step.allocated.samples > 0 || step.high > 0.0;
        let begin = steps.iter().position(is_used)?;
        let len = steps.len().checked_sub(begin)?;
        if len < FEWEST_STEPS {
            return None;
        }
        let quarter = |n: usize| begin + len * n / 4;
        let mut lows = [1, 2, 3].map(|n| least(&steps[quarter(n)..quarter(n + 1)]));
        // Blocks that are not known may be in the place of those that went while recording was
        // stopped. As such blocks go, known ones come: that is no growth.
        lows[0] += freed_in_stops(&steps[..quarter(2)]);
        let highs = [1, 2, 3].map(|n| most(&steps[quarter(n)..quarter(n + 1)]));
        let half = quarter(2);
        let (old, old_that_stays) = (in_use(&steps[..half]), staying(&steps[..half]));
        // The two ends of the envelope differ by the blocks that came in between and stay, and by
        // those that were there and went.
        let second = begin + len * 3 / 8;
        let (then, of_then) = (in_use(&steps[..second]), staying(&steps[..second]));
        let variance =
            staying(&steps[second..]).variance + (then.variance - of_then.variance).max(0.0);
        let late = &steps[half..];
        let sum = |of: fn(&CourseStep) -> f64, steps: &[CourseStep]| steps.iter().map(of).sum();
        let allocated: f64 = sum(|it| it.allocated.bytes, steps);
        let tenth = (begin + len.div_ceil(10)).max(steps.len().div_ceil(10));
        let early: f64 = sum(|it| it.allocated.bytes, &steps[..tenth]);
        let highest_at = highest_at(steps)?;
        let (highest, highest_ns) = (steps[highest_at].high, steps[highest_at].high_ns);
        let middle = |step: &CourseStep| (step.low + step.high) / 2.0;
        let levels = levels(steps);
        let usual_at = {
            let mut order: Vec<usize> = (0..steps.len()).collect();
            order.sort_by(|&a, &b| middle(&steps[a]).total_cmp(&middle(&steps[b])));
            order[order.len() / 2]
        };
        let usual = middle(&steps[usual_at]);
        let of_usual = levels[usual_at].variance;
        let of_highest = high_variance(steps, &levels, highest_at);
        let last = levels.last().map_or(0.0, |level| level.bytes);
        let settled = levels.iter().position(|level| level.bytes >= lows[2]);
        let settled = settled.filter(|&step| step > steps.len() / 4);
        let is_known = freed_in_stops(steps) == 0.0;
        Some(Conduct {
            lows,
            rises_since: is_known.then(|| [1, 2, 3].map(|n| difference(steps, quarter(n)))),
            error: variance.sqrt(),
            level_error: in_use(steps).variance.sqrt(),
            highs,
            mean: late.iter().map(middle).sum::<f64>() / late.len() as f64,
            gone: match old.bytes > 0.0 {
                true => (1.0 - old_that_stays.bytes / old.bytes).clamp(0.0, 1.0),
                false => 1.0,
            },
            kept: {
                let part = |steps: &[CourseStep]| {
                    let allocated: u64 = steps.iter().map(|it| it.allocated.samples).sum();
                    staying(steps).samples as f64 / allocated.max(1) as f64
                };
                let of_third = part(&steps[half..quarter(3)]);
                if of_third > 0.0 {
                    part(&steps[..half]) / of_third
                } else {
                    0.0
                }
            },
            growth_samples: staying(&steps[second..]).samples,
            late_samples: staying(late).samples,
            late_allocated: sum(|it| it.allocated.bytes, late),
            late_freed: sum(|it| it.freed.bytes, late),
            late_freed_error: sum(|it| it.freed.variance, late).sqrt(),
            last_changed: sum(
                |it| it.allocated.bytes + it.freed.bytes,
                &steps[quarter(3)..],
            ),
            allocated,
            early: if allocated > 0.0 {
                early / allocated
            } else {
                1.0
            },
            highest,
            highest_ns,
            highest_error: high_error(steps, &levels, highest_at),
            began_ns: (begin > steps.len() / 10).then(|| steps[begin].high_ns),
            settled_ns: settled.map(|step| steps[step].high_ns),
            usual,
            usual_error: of_usual.sqrt(),
            stands_out: is_rise(highest - usual, of_highest + of_usual),
            last,
            is_over: staying(steps).samples == 0
                && (steps[quarter(3)..]
                    .iter()
                    .all(|it| it.allocated.samples == 0)
                    || steps.last().is_some_and(|it| it.freed_in_stops > 0.0)),
            rises: rises(steps, &levels, begin, highest),
            span: len as f64 / 2.0,
            samples: steps.iter().map(|it| it.allocated.samples).sum(),
            staying_samples: steps.iter().map(|it| it.stays.samples).sum(),
        })
    }

    /// Returns true if the site had `least` bytes or more, and a good part of them went while
    /// recording was stopped.
    pub(crate) fn is_hidden(&self, course: &Course, least: f64) -> bool {
        self.highest >= least && freed_in_stops(&course.steps) > HIDDEN * self.highest
    }

    /// Returns true if the bytes in use are more than a guess.
    pub(crate) fn is_known(&self) -> bool {
        self.level_error < self.mean / 2.0
    }

    /// The growth of the lower envelope, in bytes.
    pub(crate) fn growth(&self) -> f64 {
        self.lows[2] - self.lows[0]
    }

    /// How unsteady that growth is, in bytes: if its halves went on for the time of both, half of
    /// the difference. It stands in place of a standard error where few blocks, whose sizes are
    /// known, make the growth.
    pub(crate) fn unsteadiness(&self) -> f64 {
        let [second, third, fourth] = self.lows;
        ((fourth - third) - (third - second)).abs()
    }
}

/// Adds the course of another stack of the site. The lows and highs of two stacks need not fall
/// together, so those of their sum lie within the sums. The time of the high is that of a stack
/// that has most of it.
pub(crate) fn add(sum: &mut Course, course: &StackCourse) {
    if sum.before.len() < course.before.len() {
        sum.before.resize(course.before.len(), Sum::default());
    }
    for (sum, before) in sum.before.iter_mut().zip(&course.before) {
        sum.merge(before);
    }
    if sum.steps.len() < course.steps.len() {
        sum.steps.resize(course.steps.len(), CourseStep::default());
    }
    for (sum, step) in sum.steps.iter_mut().zip(course.steps.iter()) {
        sum.merge_sums(step);
        sum.low += step.low;
        sum.high += step.high;
        if step.high >= sum.high / 2.0 {
            sum.high_ns = step.high_ns;
        }
    }
}

/// The step with the most bytes in use, the first one of several.
fn highest_at(steps: &[CourseStep]) -> Option<usize> {
    let order = (0..steps.len()).rev();
    order.max_by(|&a, &b| steps[a].high.total_cmp(&steps[b].high))
}

/// The difference between the bytes in use at the end and those behind the first `then` steps.
fn difference(steps: &[CourseStep], then: usize) -> Difference {
    let (before, behind) = steps.split_at(then);
    let (then, of_then, came) = (in_use(before), staying(before), staying(behind));
    let count = |of: fn(&CourseStep) -> u64| before.iter().map(of).sum::<u64>();
    let in_use_then = count(|it| it.allocated.samples).saturating_sub(count(|it| it.freed.samples));
    let went = Sum {
        bytes: then.bytes - of_then.bytes,
        variance: then.variance - of_then.variance,
        samples: in_use_then.saturating_sub(of_then.samples),
    };
    let by_chance = |sum: &Sum| {
        sum.variance
            .max(sum.bytes.powi(2) / sum.samples.max(1) as f64)
    };
    Difference {
        bytes: came.bytes - went.bytes,
        error: (came.variance + went.variance.max(0.0)).sqrt(),
        error_by_chance: (by_chance(&came) + by_chance(&went)).sqrt(),
    }
}

fn least(steps: &[CourseStep]) -> f64 {
    steps.iter().map(|it| it.low).fold(f64::INFINITY, f64::min)
}

fn most(steps: &[CourseStep]) -> f64 {
    steps.iter().map(|it| it.high).fold(0.0, f64::max)
}

fn freed_in_stops(steps: &[CourseStep]) -> f64 {
    steps.iter().map(|it| it.freed_in_stops).sum()
}

/// Returns the bytes in use behind each of these steps, the first ones of the run. The variance is
/// that of the blocks that are there.
pub(crate) fn levels(steps: &[CourseStep]) -> Vec<Sum> {
    let (mut bytes, mut variance) = (0.0, 0.0);
    let level = |step: &CourseStep| {
        bytes += step.allocated.bytes - step.freed.bytes;
        variance += step.allocated.variance - step.freed.variance;
        Sum {
            bytes: f64::max(bytes, 0.0),
            variance: f64::max(variance, 0.0),
            samples: 0,
        }
    };
    steps.iter().map(level).collect()
}

/// The bytes in use behind these steps, the first ones of the run.
fn in_use(steps: &[CourseStep]) -> Sum {
    levels(steps).last().copied().unwrap_or_default()
}

/// The blocks that came in these steps and stay.
fn staying(steps: &[CourseStep]) -> Sum {
    Sum::of_all(steps.iter().map(|step| step.stays))
}

/// The most that the variance of a step's high may be.
fn high_variance(steps: &[CourseStep], levels: &[Sum], at: usize) -> f64 {
    let before = at.checked_sub(1).map_or(0.0, |at| levels[at].variance);
    before + steps[at].allocated.variance
}

/// The standard error of a step's high: that of as many bytes of the blocks of that time.
fn high_error(steps: &[CourseStep], levels: &[Sum], at: usize) -> f64 {
    let before = at.checked_sub(1).map_or(0.0, |at| levels[at].bytes);
    let bytes = before + steps[at].allocated.bytes;
    (high_variance(steps, levels, at) * steps[at].high / bytes.max(1.0)).sqrt()
}

fn is_rise(difference: f64, variance: f64) -> bool {
    difference > REAL_RISE * variance.sqrt()
}

/// How often it rises from below a third of the most to above two thirds, and by more than noise.
/// A low and a high differ by the blocks that came and went between, of which those count that are
/// there at one of the two.
fn rises(steps: &[CourseStep], levels: &[Sum], begin: usize, highest: f64) -> usize {
    let mut low = begin.checked_sub(1).map_or(Sum::default(), |at| levels[at]);
    let (mut rises, mut is_low, mut between, mut in_stops) = (0, true, 0.0, 0.0);
    for (at, step) in steps.iter().enumerate().skip(begin) {
        between += step.allocated.variance + step.freed.variance;
        let variance = (low.variance + high_variance(steps, levels, at)).min(between);
        let is_high = step.high > highest * 2.0 / 3.0;
        if is_low && is_high && is_rise(step.high - low.bytes, variance) {
            rises += 1;
            is_low = false;
        }
        // Blocks that went while recording was stopped may have been replaced: that is no fall.
        in_stops += step.freed_in_stops;
        let level = levels[at].bytes + in_stops;
        if level < highest / 3.0 && (!is_low || level < low.bytes) {
            (is_low, between) = (true, 0.0);
            low = Sum {
                bytes: level,
                ..levels[at]
            };
        }
    }
    rises
}
