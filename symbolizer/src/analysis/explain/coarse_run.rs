//! Coarse run: the moments of a coarse history, and the detail that follows them.
//!
//! Glossary: detail.
//!
//! ```text
//!   moments                              detail
//!   ├────┼────┼────┼────┼────┼────┼────┼─────────┤
//!   since          4 eighths           begin    end
//! ```
//!
//! Not here: the growth of sites (`whole_run`), and that of the whole program (`rate`).

use heapprof_format::CoarseMoment;

use crate::history::courses::Courses;
use crate::model::profile::Profile;
use crate::model::span::Cut;

/// The fewest moments of a quarter whose least says anything.
pub(crate) const FEWEST_MOMENTS: usize = 4;
/// The part of the earlier growth that must have gone on in the detail.
pub(crate) const GOES_ON: f64 = 0.25;

/// See the module's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoarseRun<'a> {
    pub(crate) moments: &'a [CoarseMoment],
    /// The courses of the detail.
    pub(crate) courses: &'a Courses,
    pub(crate) end_ns: u64,
}

impl<'a> CoarseRun<'a> {
    /// `None`: there is no coarse history, or it is of other blocks than the profile, or of several
    /// processes. A stack that these have named at a moment may have more then.
    pub(crate) fn of(profile: &'a Profile) -> Option<CoarseRun<'a>> {
        let run = &profile.run;
        let is_of_all = run.span.is_none_or(|span| span.from == Cut::Nothing);
        let is_of_one = run.forked_from == 0 && !run.is_joined;
        let is_known = !profile.coarse.is_empty() && is_of_all && is_of_one;
        is_known.then(|| CoarseRun {
            moments: &profile.coarse,
            courses: &profile.courses,
            end_ns: run.span.map_or(run.duration_ns, |span| span.to.time_ns()),
        })
    }

    /// Returns the time behind so many eighths of the time from then to the end.
    pub(crate) fn part(&self, since_ns: u64, eighths: u64) -> u64 {
        let length_ns = self.end_ns.saturating_sub(since_ns);
        since_ns + (u128::from(length_ns) * u128::from(eighths) / 8) as u64
    }

    /// Returns true if the detail is more than half of the time from then to the end.
    pub(crate) fn is_mostly_detail(&self, since_ns: u64) -> bool {
        self.part(since_ns, 4) > self.courses.begin_ns
    }
}
