//! End of use: the time after which a program frees its memory because it ends.

use heapprof_format::EndReason;

use crate::analysis::explain::conduct;
use crate::history::courses::Course;
use crate::model::profile::Profile;
use crate::model::run::Ending;

/// The part of what was usually in use below which a program is taken to be ending.
const ENDING: f64 = 0.5;

impl Profile {
    /// Returns the time after which a program frees its memory because it ends, by the courses of a
    /// whole run, in nanoseconds; `None`: it does not, or the log does not say that it ended. The
    /// blocks that stay are judged at that time.
    pub fn end_of_use_ns(&self) -> Option<u64> {
        if self.run.ending != Ending::Said(EndReason::Exit) {
            return None;
        }
        let mut whole = Course::default();
        for course in &self.courses.stacks {
            conduct::add(&mut whole, course);
        }
        let mut level = 0.0;
        let levels = whole.steps.iter().map(|step| {
            level += step.allocated.bytes - step.freed.bytes;
            level
        });
        let levels: Vec<f64> = levels.collect();
        let mut late = levels[levels.len() * 3 / 4..].to_vec();
        late.sort_by(f64::total_cmp);
        let usual = *late.get(late.len() / 2)?;
        if *levels.last()? >= ENDING * usual {
            return None;
        }
        let last = levels.iter().rposition(|&level| level >= ENDING * usual)?;
        Some(self.courses.begin_of(last + 1))
    }
}
