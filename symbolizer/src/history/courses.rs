//! Courses: how the memory of each row came and went, in a bounded number of steps of time.
//!
//! ```text
//!   steps   [0..1) [1..2) [2..3) [3..4)        full: two steps become one, and steps are twice as
//!           [0..2)        [2..4)        …      long from then on
//! ```
//!
//! The number of steps that a run has at its end is between half the most and the most, however
//! long it lasts. Every row has the same steps.

use heapprof_core::Weight;

/// The most steps.
pub(crate) const MOST: usize = 128;
/// The length of a step at first, in nanoseconds.
const FIRST_NS: u64 = 1_000_000;

/// What happened to the blocks of a row in a step. Bytes, unsampled, with variances.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CourseStep {
    /// Allocated in this step.
    pub came: Sum,
    /// Freed in this step.
    pub went: Sum,
    /// Allocated in this step, and in use at the end of the run.
    pub stays: Sum,
    /// The least bytes in use at once in this step.
    pub low: f64,
    /// The most.
    pub high: f64,
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

    /// Adds another sum.
    pub fn merge(&mut self, other: &Sum) {
        self.bytes += other.bytes;
        self.variance += other.variance;
        self.samples += other.samples;
    }
}

/// The course of one row: its steps, from the beginning of the run on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// The steps.
    pub steps: Vec<CourseStep>,
}

/// The courses of all rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowCourses {
    /// The length of a step, in nanoseconds. The first step begins with the run.
    pub step_ns: u64,
    /// The first step of which all is known: a log that rotates forgets what was before.
    pub first: usize,
    /// By row.
    pub rows: Vec<Course>,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct Courses {
    step_ns: u64,
    rows: Vec<Running>,
}

#[derive(Debug, Clone, Default)]
struct Running {
    course: Course,
    in_use: f64,
}

impl Default for Courses {
    fn default() -> Courses {
        Courses {
            step_ns: FIRST_NS,
            rows: Vec::new(),
        }
    }
}

impl Courses {
    /// A block of the row came.
    pub(crate) fn came(&mut self, row: u32, time_ns: u64, weight: &Weight) {
        let step = self.step_at(time_ns);
        let row = self.row(row);
        row.up_to(step);
        row.in_use += weight.bytes_f64_with_variance().0;
        row.course.steps[step].came.add(weight);
        row.reached(step);
    }

    /// A block of the row went.
    pub(crate) fn went(&mut self, row: u32, time_ns: u64, weight: &Weight) {
        let step = self.step_at(time_ns);
        let row = self.row(row);
        row.up_to(step);
        row.in_use = (row.in_use - weight.bytes_f64_with_variance().0).max(0.0);
        row.course.steps[step].went.add(weight);
        row.reached(step);
    }

    /// A block of the row that came then is in use at the end.
    pub(crate) fn stays(&mut self, row: u32, born_ns: u64, weight: &Weight) {
        let step = self.step_at(born_ns);
        let row = self.row(row);
        row.up_to(step);
        row.course.steps[step].stays.add(weight);
    }

    /// The courses of all rows, each with the steps up to `end_ns`. Before `since_ns`, nothing is
    /// known.
    pub(crate) fn finish(mut self, since_ns: u64, end_ns: u64) -> RowCourses {
        let last = self.step_at(end_ns);
        let complete = |mut row: Running| {
            row.up_to(last);
            row.course
        };
        RowCourses {
            step_ns: self.step_ns,
            first: (since_ns / self.step_ns) as usize,
            rows: self.rows.into_iter().map(complete).collect(),
        }
    }

    fn row(&mut self, index: u32) -> &mut Running {
        let index = index as usize;
        if index >= self.rows.len() {
            self.rows.resize_with(index + 1, Running::default);
        }
        &mut self.rows[index]
    }

    /// The step of that time. Makes steps longer until there is one.
    fn step_at(&mut self, time_ns: u64) -> usize {
        while time_ns / self.step_ns >= MOST as u64 {
            self.step_ns = self.step_ns.saturating_mul(2);
            for row in &mut self.rows {
                row.merge_steps();
            }
        }
        (time_ns / self.step_ns) as usize
    }
}

impl Running {
    /// Makes the steps up to that one. Nothing happened in them.
    fn up_to(&mut self, step: usize) {
        let still = CourseStep {
            low: self.in_use,
            high: self.in_use,
            ..CourseStep::default()
        };
        if step >= self.course.steps.len() {
            self.course.steps.resize(step + 1, still);
        }
    }

    /// Notes what is in use now.
    fn reached(&mut self, step: usize) {
        let step = &mut self.course.steps[step];
        step.low = step.low.min(self.in_use);
        step.high = step.high.max(self.in_use);
    }

    fn merge_steps(&mut self) {
        let pairs = self.course.steps.chunks(2);
        self.course.steps = pairs
            .map(|pair| {
                let mut step = pair[0];
                if let Some(second) = pair.get(1) {
                    step.came.merge(&second.came);
                    step.went.merge(&second.went);
                    step.stays.merge(&second.stays);
                    step.low = step.low.min(second.low);
                    step.high = step.high.max(second.high);
                }
                step
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_row_has_what_came_and_went_in_each_step() {
        let mut courses = Courses::default();
        let block = |size| Weight::of(size, 1);
        courses.came(0, 0, &block(100));
        courses.came(0, 1, &block(50));
        courses.went(0, 2 * MS, &block(100));
        courses.came(1, 3 * MS, &block(7));
        courses.stays(0, 1, &block(50));
        courses.stays(1, 3 * MS, &block(7));
        let RowCourses {
            step_ns,
            rows: courses,
            ..
        } = courses.finish(0, 4 * MS);
        assert_eq!(step_ns, MS);
        let lines = |course: &Course| -> Vec<[f64; 5]> {
            let line = |it: &CourseStep| {
                [
                    it.came.bytes,
                    it.went.bytes,
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
        assert_eq!(courses[1].steps[3].came.bytes, 7.0);
        assert_eq!(courses[1].steps[4].low, 7.0);
    }

    #[test]
    fn steps_become_longer_and_lose_nothing() {
        let mut courses = Courses::default();
        for n in 0..1000 {
            courses.came(0, n * MS, &Weight::of(10, 1));
            courses.went(0, n * MS + 1, &Weight::of(10, 1));
        }
        let RowCourses {
            step_ns,
            rows: courses,
            ..
        } = courses.finish(0, 1000 * MS);
        assert_eq!(step_ns, 8 * MS);
        let steps = &courses[0].steps;
        assert_eq!(steps.len(), 126);
        assert_eq!(steps.iter().map(|it| it.came.bytes).sum::<f64>(), 10_000.0);
        assert!(steps.iter().all(|it| it.low == 0.0));
        assert!(steps[..125].iter().all(|it| it.high == 10.0));
    }
}
