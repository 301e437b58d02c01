//! Courses: the allocations and frees of each stack, in a bounded number of steps of time.
//!
//! ```text
//!   steps   [0..1) [1..2) [2..3) [3..4)        full: two steps become one, and steps are twice as
//!           [0..2)        [2..4)        …      long from then on
//! ```
//!
//! The number of steps that a run has at its end is between half the most and the most, however
//! long it lasts. Every stack has the same steps. They begin where the detail of a log does.

use heapprof_core::Weight;

use crate::history::steps::Steps;

/// The most steps.
pub(crate) const MOST: usize = 128;
/// The steps of the time before, for blocks that are still in use.
const STEPS_BEFORE: u64 = 64;
/// The length of a step at first, in nanoseconds.
const FIRST_NS: u64 = 1_000_000;
/// The part of a step that a low lasts at least: a realloc ends one block and, when it has copied
/// that, begins another.
const SHORTEST_LOW: u64 = 16;

/// The events of a stack in a step. Bytes, unsampled, with variances.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CourseStep {
    /// Allocated in this step.
    pub allocated: Sum,
    /// Freed in this step.
    pub freed: Sum,
    /// Allocated in this step, and in use at the end of the run.
    pub stays: Sum,
    /// The least bytes in use at once in this step.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// When that was, in nanoseconds.
    pub high_ns: u64,
    /// The part of `freed` that was freed while recording was stopped, in bytes. Blocks
    /// that were allocated then are not known.
    pub freed_in_stops: f64,
}

/// A sum over samples, and its variance.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    /// Bytes.
    pub bytes: f64,
    /// Square bytes.
    pub variance: f64,
    /// Samples.
    pub samples: u64,
}

impl Sum {
    fn add(&mut self, weight: &Weight) {
        let (bytes, variance) = weight.bytes_f64_with_variance();
        self.merge(&Sum {
            bytes,
            variance,
            samples: 1,
        });
    }

    /// Returns the sum of all.
    pub(crate) fn of_all(sums: impl IntoIterator<Item = Sum>) -> Sum {
        sums.into_iter().fold(Sum::default(), |mut sum, it| {
            sum.merge(&it);
            sum
        })
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Sum) {
        self.bytes += other.bytes;
        self.variance += other.variance;
        self.samples += other.samples;
    }
}

/// The course of one stack, in little memory. There may be tens of thousands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackCourse {
    /// See [`Course::steps`].
    pub steps: Steps<CourseStep>,
    /// See [`Course::before`].
    pub before: Vec<Sum>,
}

impl StackCourse {
    /// Returns the course with all its steps.
    pub(crate) fn whole(&self) -> Course {
        Course {
            steps: self.steps.iter().copied().collect(),
            before: self.before.clone(),
        }
    }
}

/// The course of one stack or several: the steps, from the beginning of what is known on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// The steps.
    pub steps: Vec<CourseStep>,
    /// Blocks from before the first step that are in use at the end, by `Courses::before_ns` of
    /// their allocation; may be shorter than that time. They are among the first step's `stays`,
    /// too.
    pub before: Vec<Sum>,
}

impl Course {
    /// Returns the course without the steps in which recording was stopped. Blocks that were freed
    /// in them are moved to the next step, where they are no longer in use.
    pub(crate) fn without(&self, is_stopped: &[bool]) -> Course {
        let mut steps: Vec<CourseStep> = Vec::new();
        let mut moved = CourseStep::default();
        for (number, step) in self.steps.iter().enumerate() {
            if is_stopped.get(number) == Some(&true) {
                moved.merge_sums(step);
                moved.freed_in_stops += step.freed.bytes;
                continue;
            }
            let mut step = *step;
            step.merge_sums(&moved);
            moved = CourseStep::default();
            steps.push(step);
        }
        if let Some(last) = steps.last_mut() {
            last.merge_sums(&moved);
        }
        Course {
            steps,
            before: self.before.clone(),
        }
    }
}

impl CourseStep {
    /// Adds the allocations and frees of another step.
    pub(crate) fn merge_sums(&mut self, other: &CourseStep) {
        self.allocated.merge(&other.allocated);
        self.freed.merge(&other.freed);
        self.stays.merge(&other.stays);
        self.freed_in_stops += other.freed_in_stops;
    }
}

/// The courses of all stacks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Courses {
    /// When the first step begins: with the run, or later, if the log rotated.
    pub begin_ns: u64,
    /// The length of a step, in nanoseconds.
    pub step_ns: u64,
    /// By stack; may be shorter than the stacks.
    pub stacks: Vec<StackCourse>,
}

impl Courses {
    /// The length of a step of [`Course::before`], in nanoseconds. The first one begins with the
    /// run.
    pub(crate) fn before_ns(&self) -> u64 {
        step_before(self.begin_ns)
    }

    /// Returns the blocks of a course that are in use at the end and were allocated before
    /// that time, by steps that end up to then.
    pub(crate) fn steps_before<'c>(
        &self,
        course: &'c Course,
        time_ns: u64,
    ) -> impl Iterator<Item = Sum> + use<'c> {
        let steps = (time_ns / self.before_ns()) as usize;
        course.before.iter().take(steps).copied()
    }

    /// Returns the step of that time; `None`: it is before the first one.
    pub(crate) fn step_at(&self, time_ns: u64) -> Option<usize> {
        let since = time_ns.checked_sub(self.begin_ns)?;
        Some((since / self.step_ns.max(1)) as usize)
    }

    /// When a step begins, in nanoseconds.
    pub(crate) fn begin_of(&self, step: usize) -> u64 {
        (step as u64)
            .saturating_mul(self.step_ns.max(1))
            .saturating_add(self.begin_ns)
    }

    /// Returns for each step up to `end_ns` whether recording was stopped for most of it. `stops`
    /// are beginnings and ends.
    pub(crate) fn stopped(&self, stops: &[(u64, u64)], end_ns: u64) -> Vec<bool> {
        let is_stopped = |step: usize| {
            let (begin, end) = (self.begin_of(step), self.begin_of(step + 1).min(end_ns));
            let parts = stops.iter();
            let parts = parts.map(|&(from, to)| to.min(end).saturating_sub(from.max(begin)));
            parts.sum::<u64>() > end.saturating_sub(begin) / 2
        };
        let steps = self.stacks.iter().map(|course| course.steps.len());
        (0..steps.max().unwrap_or_default())
            .map(is_stopped)
            .collect()
    }
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct CoursesSoFar {
    begin_ns: u64,
    step_ns: u64,
    /// The step of the last event, and when it begins.
    step: usize,
    step_begin_ns: u64,
    stacks: Vec<Running>,
}

#[derive(Debug, Clone, Default)]
struct Running {
    course: StackCourse,
    in_use: f64,
    /// The time of the last event.
    last_ns: u64,
}

impl Default for CoursesSoFar {
    fn default() -> CoursesSoFar {
        CoursesSoFar {
            begin_ns: 0,
            step_ns: FIRST_NS,
            step: 0,
            step_begin_ns: 0,
            stacks: Vec::new(),
        }
    }
}

/// The length of a step of the time before `begin_ns`.
fn step_before(begin_ns: u64) -> u64 {
    begin_ns.div_ceil(STEPS_BEFORE).max(1)
}

impl CoursesSoFar {
    /// Says that nothing is known of the time before, but the blocks that are in use then: those
    /// that were told, and those that are told next.
    pub(crate) fn begin_at(&mut self, begin_ns: u64) {
        (self.begin_ns, self.step_ns) = (begin_ns, FIRST_NS);
        (self.step, self.step_begin_ns) = (0, begin_ns);
        for running in &mut self.stacks {
            while running.course.steps.len() > 1 {
                running.merge_steps();
            }
            running.last_ns = begin_ns;
        }
    }

    /// A block of the stack was allocated.
    pub(crate) fn alloc(&mut self, stack: u32, time_ns: u64, weight: &Weight) {
        let time_ns = time_ns.max(self.begin_ns);
        let step = self.step_at(time_ns);
        let step_ns = self.step_ns;
        let running = self.running(stack);
        let in_use = running.in_use + weight.bytes_f64_with_variance().0;
        let step = running.at(step, time_ns, step_ns);
        step.allocated.add(weight);
        if in_use > step.high {
            (step.high, step.high_ns) = (in_use, time_ns);
        }
        running.in_use = in_use;
    }

    /// A block of the stack was freed.
    pub(crate) fn free(&mut self, stack: u32, time_ns: u64, weight: &Weight) {
        let step = self.step_at(time_ns);
        let step_ns = self.step_ns;
        let running = self.running(stack);
        running.at(step, time_ns, step_ns).freed.add(weight);
        running.in_use = (running.in_use - weight.bytes_f64_with_variance().0).max(0.0);
    }

    /// A block of the stack that was allocated then is in use at the end.
    pub(crate) fn stays(&mut self, stack: u32, born_ns: u64, weight: &Weight) {
        let step = self.step_at(born_ns);
        let begin_ns = self.begin_ns;
        let running = self.running(stack);
        running.up_to(step);
        running.course.steps.at(step).stays.add(weight);
        if born_ns < begin_ns {
            let step = (born_ns / step_before(begin_ns)) as usize;
            let before = &mut running.course.before;
            if step >= before.len() {
                before.resize(step + 1, Sum::default());
            }
            before[step].add(weight);
        }
    }

    /// The courses of all stacks, each with the steps up to `end_ns`.
    pub(crate) fn finish(mut self, end_ns: u64) -> Courses {
        let last = self.step_at(end_ns);
        let step_ns = self.step_ns;
        let complete = |mut running: Running| {
            running.at(last, end_ns, step_ns);
            running.course
        };
        Courses {
            begin_ns: self.begin_ns,
            step_ns: self.step_ns,
            stacks: self.stacks.into_iter().map(complete).collect(),
        }
    }

    fn running(&mut self, stack: u32) -> &mut Running {
        let index = stack as usize;
        if index >= self.stacks.len() {
            self.stacks.resize_with(index + 1, Running::default);
        }
        &mut self.stacks[index]
    }

    /// The step of that time, or the first one. Makes steps longer until there is one.
    #[inline]
    fn step_at(&mut self, time_ns: u64) -> usize {
        if time_ns.wrapping_sub(self.step_begin_ns) >= self.step_ns {
            self.change_step(time_ns);
        }
        self.step
    }

    fn change_step(&mut self, time_ns: u64) {
        let time_ns = time_ns.saturating_sub(self.begin_ns);
        while time_ns / self.step_ns >= MOST as u64 {
            self.step_ns = self.step_ns.saturating_mul(2);
            for running in &mut self.stacks {
                running.merge_steps();
            }
        }
        let step = time_ns / self.step_ns;
        self.step = step as usize;
        self.step_begin_ns = self.begin_ns + step * self.step_ns;
    }
}

impl Running {
    /// Makes the steps up to that one. Nothing happened in them.
    #[inline]
    fn up_to(&mut self, step: usize) {
        if step < self.course.steps.len() {
            return;
        }
        let still = CourseStep {
            low: self.in_use,
            high: self.in_use,
            high_ns: self.last_ns,
            ..CourseStep::default()
        };
        self.course.steps.extend_to(step + 1, still);
    }

    /// Returns the step, before an event at that time. The bytes in use until then are a low if
    /// they lasted.
    fn at(&mut self, step: usize, time_ns: u64, step_ns: u64) -> &mut CourseStep {
        let before = self.course.steps.len();
        let lasted = time_ns.saturating_sub(self.last_ns) >= step_ns / SHORTEST_LOW;
        self.up_to(step);
        if lasted {
            let steps = &mut self.course.steps;
            for step in before.checked_sub(1).into_iter().chain([step]) {
                let step = steps.at(step);
                step.low = step.low.min(self.in_use);
            }
        }
        self.last_ns = time_ns;
        self.course.steps.at(step)
    }

    fn merge_steps(&mut self) {
        self.course.steps.merge_pairs(|step, second| {
            step.merge_sums(second);
            step.low = step.low.min(second.low);
            if second.high > step.high {
                (step.high, step.high_ns) = (second.high, second.high_ns);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_stack_has_what_came_and_went_in_each_step() {
        let mut courses = CoursesSoFar::default();
        let block = |size| Weight::of(size, 1);
        courses.alloc(0, 0, &block(100));
        courses.alloc(0, 1, &block(50));
        courses.free(0, 2 * MS, &block(100));
        courses.alloc(1, 3 * MS, &block(7));
        courses.stays(0, 1, &block(50));
        courses.stays(1, 3 * MS, &block(7));
        let Courses {
            step_ns,
            stacks: courses,
            ..
        } = courses.finish(4 * MS);
        assert_eq!(step_ns, MS);
        let lines = |course: &StackCourse| -> Vec<[f64; 5]> {
            let line = |it: &CourseStep| {
                [
                    it.allocated.bytes,
                    it.freed.bytes,
                    it.stays.bytes,
                    it.low,
                    it.high,
                ]
            };
            course.steps.iter().map(line).collect()
        };
        assert_eq!(
            lines(&courses[0]),
            [
                [150.0, 0.0, 50.0, 0.0, 150.0],
                [0.0, 0.0, 0.0, 150.0, 150.0],
                [0.0, 100.0, 0.0, 50.0, 150.0],
                [0.0, 0.0, 0.0, 50.0, 50.0],
                [0.0, 0.0, 0.0, 50.0, 50.0]
            ]
        );
        let steps = courses[1].whole().steps;
        assert_eq!((steps[3].allocated.bytes, steps[4].low), (7.0, 7.0));
    }

    #[test]
    fn a_block_that_is_resized_leaves_no_gap() {
        let mut courses = CoursesSoFar::default();
        for n in 1..=10 {
            if n > 1 {
                courses.free(0, n * 2 * MS, &Weight::of(1000 * (n - 1), 1));
            }
            courses.alloc(0, n * 2 * MS + 10, &Weight::of(1000 * n, 1));
        }
        let Courses { stacks, .. } = courses.finish(30 * MS);
        let lows: Vec<f64> = stacks[0].steps.iter().map(|step| step.low).collect();
        assert_eq!(lows[..6], [0.0, 0.0, 0.0, 1000.0, 1000.0, 2000.0]);
        assert_eq!(lows[29], 10_000.0);
    }

    #[test]
    fn an_event_that_comes_late_counts_for_its_own_step() {
        let mut courses = CoursesSoFar::default();
        for ms in [5, 2, 5, 6] {
            courses.alloc(0, ms * MS, &Weight::of(10, 1));
        }
        let Courses { stacks, .. } = courses.finish(6 * MS);
        let allocated = stacks[0].steps.iter().map(|step| step.allocated.samples);
        assert_eq!(allocated.collect::<Vec<_>>(), [0, 0, 1, 0, 0, 2, 1]);
    }

    #[test]
    fn steps_become_longer_and_lose_nothing() {
        let mut courses = CoursesSoFar::default();
        for n in 0..1000 {
            courses.alloc(0, n * MS, &Weight::of(10, 1));
            courses.free(0, n * MS + 1, &Weight::of(10, 1));
        }
        let Courses {
            step_ns,
            stacks: courses,
            ..
        } = courses.finish(1000 * MS);
        assert_eq!(step_ns, 8 * MS);
        let steps = courses[0].whole().steps;
        assert_eq!(steps.len(), 126);
        assert_eq!(
            steps.iter().map(|it| it.allocated.bytes).sum::<f64>(),
            10_000.0
        );
        assert!(steps.iter().all(|it| it.low == 0.0));
        assert!(steps[..125].iter().all(|it| it.high == 10.0));
    }

    #[test]
    fn steps_begin_with_what_is_known() {
        let mut courses = CoursesSoFar::default();
        courses.begin_at(6400 * MS);
        let block = |size| Weight::of(size, 1);
        for (born_ms, size) in [(50, 100), (6399, 30)] {
            courses.alloc(0, born_ms * MS, &block(size));
            courses.stays(0, born_ms * MS, &block(size));
        }
        courses.alloc(0, 6402 * MS, &block(7));
        courses.stays(0, 6402 * MS, &block(7));
        let courses = courses.finish(6403 * MS);
        assert_eq!((courses.begin_ns, courses.step_ns), (6400 * MS, MS));
        let course = &courses.stacks[0];
        let stays: Vec<f64> = course.steps.iter().map(|it| it.stays.bytes).collect();
        assert_eq!(stays, [130.0, 0.0, 7.0, 0.0]);
        assert_eq!(courses.before_ns(), 100 * MS);
        assert_eq!((course.before.len(), course.before[0].bytes), (64, 100.0));
        assert_eq!(course.before[63].bytes, 30.0);
        assert_eq!(courses.step_at(6402 * MS), Some(2));
        assert_eq!(courses.step_at(6399 * MS), None);
        let stops = [(6000 * MS, 6401 * MS)];
        assert_eq!(
            courses.stopped(&stops, 6403 * MS)[..3],
            [true, false, false]
        );
    }
}
