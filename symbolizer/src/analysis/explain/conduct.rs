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

use crate::history::courses::{Course, CourseStep, Sum};

/// The fewest steps with quarters that say anything.
const FEWEST_STEPS: usize = 16;

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
    /// Mean bytes in use over the last two quarters.
    pub(crate) mean: f64,
    /// The part of what is in use at the half that is freed by the end, from 0 to 1.
    pub(crate) gone: f64,
    /// The part of what came in the first half that stays, divided by the same part of the third
    /// quarter. A leak loses no old blocks: 1, whatever else its site allocates.
    pub(crate) kept: f64,
    /// Samples that came in the last two quarters and stay.
    pub(crate) late_samples: u64,
    /// Allocated and freed in the last two quarters.
    pub(crate) came: f64,
    pub(crate) went: f64,
    /// Allocated in all.
    pub(crate) allocated: f64,
    /// The part of it that came in the first tenth of the run, or of the site's own time.
    pub(crate) early: f64,
    /// The most bytes in use at once, and the step of it.
    pub(crate) highest: f64,
    pub(crate) highest_at: usize,
    /// The part of the run's steps in which more than half of the most is in use.
    pub(crate) time_high: f64,
    /// How often it rises from below a third of the most to above two thirds.
    pub(crate) rises: usize,
    /// The time from the middle of the second quarter to that of the fourth, in steps.
    pub(crate) span: f64,
    /// Samples of all that came.
    pub(crate) samples: u64,
    /// Blocks in use at the end, as samples.
    pub(crate) staying_samples: u64,
}

impl Conduct {
    /// Returns the conduct, from `first` on, the first step of which all is known. `None`: the time
    /// is too short to say.
    pub(crate) fn of(course: &Course, first: usize) -> Option<Conduct> {
        let steps = &course.steps;
        let is_used = |step: &CourseStep| step.came.samples > 0 || step.high > 0.0;
        let begin = first.max(steps.iter().position(is_used)?);
        let len = steps.len().checked_sub(begin)?;
        if len < FEWEST_STEPS {
            return None;
        }
        let quarter = |n: usize| begin + len * n / 4;
        let lows = [1, 2, 3].map(|n| least(&steps[quarter(n)..quarter(n + 1)]));
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
        let allocated: f64 = sum(|it| it.came.bytes, steps);
        let tenth = (begin + len.div_ceil(10)).max(steps.len().div_ceil(10));
        let early: f64 = sum(|it| it.came.bytes, &steps[..tenth]);
        let (highest_at, highest) = steps
            .iter()
            .enumerate()
            .map(|(at, step)| (at, step.high))
            .fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
        let is_high = |step: &&CourseStep| step.high > highest / 2.0;
        let middle = |step: &CourseStep| (step.low + step.high) / 2.0;
        Some(Conduct {
            lows,
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
                    let came: f64 = steps.iter().map(|it| it.came.bytes).sum();
                    staying(steps).bytes / came.max(1.0)
                };
                let of_third = part(&steps[half..quarter(3)]);
                if of_third > 0.0 {
                    part(&steps[..half]) / of_third
                } else {
                    0.0
                }
            },
            late_samples: staying(late).samples,
            came: sum(|it| it.came.bytes, late),
            went: sum(|it| it.went.bytes, late),
            allocated,
            early: if allocated > 0.0 {
                early / allocated
            } else {
                1.0
            },
            highest,
            highest_at,
            time_high: steps.iter().filter(is_high).count() as f64 / steps.len() as f64,
            rises: rises(&steps[begin..], in_use(&steps[..begin]).bytes, highest),
            span: len as f64 / 2.0,
            samples: steps.iter().map(|it| it.came.samples).sum(),
            staying_samples: steps.iter().map(|it| it.stays.samples).sum(),
        })
    }

    /// The growth of the lower envelope, in bytes.
    pub(crate) fn growth(&self) -> f64 {
        self.lows[2] - self.lows[0]
    }
}

/// Adds the course of another stack of the site. The lows and highs of two stacks need not fall
/// together, so those of their sum lie within the sums.
pub(crate) fn add(sum: &mut Course, course: &Course) {
    if sum.steps.len() < course.steps.len() {
        sum.steps.resize(course.steps.len(), CourseStep::default());
    }
    for (sum, step) in sum.steps.iter_mut().zip(&course.steps) {
        sum.came.merge(&step.came);
        sum.went.merge(&step.went);
        sum.stays.merge(&step.stays);
        sum.low += step.low;
        sum.high += step.high;
    }
}

fn least(steps: &[CourseStep]) -> f64 {
    steps.iter().map(|it| it.low).fold(f64::INFINITY, f64::min)
}

fn most(steps: &[CourseStep]) -> f64 {
    steps.iter().map(|it| it.high).fold(0.0, f64::max)
}

/// The bytes in use behind these steps, the first ones of the run.
fn in_use(steps: &[CourseStep]) -> Sum {
    let mut sum = Sum::default();
    for step in steps {
        sum.bytes += step.came.bytes - step.went.bytes;
        sum.variance += step.came.variance - step.went.variance;
    }
    Sum {
        bytes: sum.bytes.max(0.0),
        variance: sum.variance.max(0.0),
        samples: 0,
    }
}

/// The blocks that came in these steps and stay.
fn staying(steps: &[CourseStep]) -> Sum {
    let mut sum = Sum::default();
    for step in steps {
        sum.merge(&step.stays);
    }
    sum
}

/// How often it rises from below a third of the most to above two thirds.
fn rises(steps: &[CourseStep], at_begin: f64, highest: f64) -> usize {
    let (mut rises, mut is_low, mut level) = (0, true, at_begin);
    for step in steps {
        if step.high > highest * 2.0 / 3.0 && is_low {
            rises += 1;
            is_low = false;
        }
        level += step.came.bytes - step.went.bytes;
        is_low |= level < highest / 3.0;
    }
    rises
}
