//! Whole run: what the coarse history of a log that rotated says of the time before its detail.
//!
//! ```text
//!   moments, the largest stacks          detail
//!   ├────┼────┼────┼────┼────┼────┼────┼─────────┤
//!   from           half                 begin   end
//! ```
//!
//! A moment names the eight stacks with the most bytes. A stack is judged only if each moment from
//! its first one on names it: of the others, only an upper bound is known. A few moments suffice if
//! hardly any block went since: then the ages of the blocks tell the rest.

use crate::analysis::explain::coarse_run::{CoarseRun, FEWEST_MOMENTS, GOES_ON};
use crate::analysis::explain::conduct::{Conduct, levels};
use crate::analysis::explain::kind::{FEW_GONE, Kind};
use crate::history::courses::{Course, Sum};
use crate::model::amount::Amount;
use crate::model::change::REAL;
use crate::model::profile::Profile;
use crate::naming::site::SiteMap;
use heapprof_format::CoarseMoment;

/// The stacks that a moment names, if there are as many.
const NAMED: usize = 8;
/// The part of the growth of single stacks that their site must have grown by: otherwise other
/// stacks of the site shrank.
const OF_SITE: f64 = 0.5;
/// The part of what a site had that is left when it has fallen.
const FALLEN: f64 = 2.0 / 3.0;

/// The known past of a site from before the detail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PastBeforeDetail {
    /// The verdict rests on it: the site has grown since that time.
    Grown {
        /// The first moment, in nanoseconds.
        since_ns: u64,
        /// Bytes in use then.
        before: f64,
    },
    /// The site had as much before, and it went.
    Fallen {
        /// When, in nanoseconds.
        time_ns: u64,
        /// The least bytes in use then.
        bytes: f64,
    },
    /// The site grows in the detail, and the coarse history does not tell its past.
    NotKnown {
        /// When the detail begins, in nanoseconds.
        until_ns: u64,
    },
}

/// The growth of a site since the first moment that names its growing stacks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    pub(crate) kind: Kind,
    pub(crate) since_ns: u64,
    pub(crate) before: f64,
    /// In bytes a second, with its standard error.
    pub(crate) rate: f64,
    pub(crate) error: f64,
    /// See [`Conduct::gone`].
    pub(crate) gone: f64,
    /// Samples that are in use at the end, and when that is.
    pub(crate) samples: u64,
    pub(crate) end_ns: u64,
    /// Bytes by which the stacks grew.
    bytes: f64,
}

/// A fall of a site that grows in the detail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fall {
    pub(crate) time_ns: u64,
    pub(crate) bytes: f64,
    /// The part of it that is gone.
    pub(crate) gone: f64,
    /// How often the site rose, the present rise included.
    pub(crate) rises: usize,
}

/// The verdict on a site or a stack over the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum WholeRunVerdict {
    /// The coarse history does not suffice.
    #[default]
    Unknown,
    /// It does not grow.
    Level,
    Grows(Growth),
}

/// The totals of a stack.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    allocated: f64,
    /// Square bytes.
    variance: f64,
    in_use: f64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct WholeRun<'a> {
    run: CoarseRun<'a>,
    map: &'a SiteMap,
    totals: Vec<Totals>,
    /// How many stacks each site has.
    stacks: Vec<usize>,
}

impl<'a> WholeRun<'a> {
    /// `None`: there is no coarse history, or it is of other blocks than the profile.
    pub(crate) fn of(profile: &'a Profile, map: &'a SiteMap) -> Option<WholeRun<'a>> {
        let run = CoarseRun::of(profile)?;
        let mut totals = vec![Totals::default(); profile.stacks.len()];
        for row in &profile.rows {
            let sum = &mut totals[row.stack as usize];
            sum.allocated += row.totals.allocated.bytes_f64();
            sum.variance += row.totals.allocated.bytes_error().powi(2);
            sum.in_use += row.totals.in_use.bytes_f64();
        }
        let mut stacks = vec![0; map.keys().len()];
        for site in (0..totals.len() as u32).filter_map(|stack| map.own(stack)) {
            stacks[site] += 1;
        }
        Some(WholeRun {
            run,
            map,
            totals,
            stacks,
        })
    }

    /// Returns the verdict on each site. `least` is the smallest number of bytes that matters to
    /// the program.
    pub(crate) fn verdicts(&self, least: f64) -> Vec<WholeRunVerdict> {
        let mut sites = vec![WholeRunVerdict::Unknown; self.map.keys().len()];
        for stack in 0..self.totals.len() as u32 {
            if let Some(site) = self.map.own(stack) {
                sites[site] = sites[site].with(self.of_stack(stack, least));
            }
        }
        for (site, verdict) in sites.iter_mut().enumerate() {
            if let WholeRunVerdict::Grows(growth) = verdict
                && self.most_growth(site, growth.since_ns) <= OF_SITE * growth.bytes
            {
                *verdict = WholeRunVerdict::Level;
            }
        }
        sites
    }

    /// Returns the last time that a site which grows by `growth` in the detail had as much as at
    /// the end, and lost it.
    pub(crate) fn fall(&self, site: usize, course: &Course, in_use: &Amount) -> Option<Fall> {
        let least: Vec<f64> = (self.run.moments.iter())
            .map(|moment| self.named(moment, site).0)
            .collect();
        let place = least.iter().rposition(|&bytes| bytes >= in_use.value)?;
        let (bytes, time_ns) = (least[place], self.run.moments[place].time_ns);
        let later = self.run.moments[place + 1..].iter();
        let later = later.map(|moment| self.most(moment, site));
        let in_detail = levels(&course.steps);
        let low = (in_detail.iter().map(|level| level.bytes))
            .chain(later)
            .fold(f64::INFINITY, f64::min);
        let fell = low < FALLEN * bytes && bytes - low > REAL * in_use.error();
        let old = Sum::of_all(self.run.courses.steps_before(course, time_ns)).bytes;
        fell.then_some(Fall {
            time_ns,
            bytes,
            gone: (1.0 - old / bytes).clamp(0.0, 1.0),
            rises: self.rises(site, &least) + 1,
        })
    }

    /// Returns how often a site rises over the moments, by the least that it had.
    fn rises(&self, site: usize, least: &[f64]) -> usize {
        let highest = least.iter().copied().fold(0.0, f64::max);
        let (mut rises, mut is_low) = (0, true);
        for (moment, &bytes) in self.run.moments.iter().zip(least) {
            if is_low && bytes > highest * 2.0 / 3.0 {
                (rises, is_low) = (rises + 1, false);
            }
            is_low |= self.most(moment, site) < highest / 3.0;
        }
        rises
    }

    fn of_stack(&self, stack: u32, least: f64) -> WholeRunVerdict {
        match self.growth_of_stack(stack, least) {
            None => WholeRunVerdict::Unknown,
            Some(None) => WholeRunVerdict::Level,
            Some(Some(growth)) => WholeRunVerdict::Grows(growth),
        }
    }

    /// Returns the growth of a stack, or none if it does not grow. `None`: that is not known.
    fn growth_of_stack(&self, stack: u32, least: f64) -> Option<Option<Growth>> {
        let bytes_of = |moment: &CoarseMoment| {
            let mut named = moment.largest.iter();
            Some((moment.time_ns, named.find(|it| it.0 == stack)?.1 as f64))
        };
        let first = self
            .run
            .moments
            .iter()
            .position(|it| bytes_of(it).is_some())?;
        let moments = self.run.moments[first..].iter().map(bytes_of);
        let moments: Vec<(u64, f64)> = moments.collect::<Option<_>>()?;
        let since_ns = moments[0].0;
        let length_ns = self.run.end_ns.checked_sub(since_ns)?;
        // The detail alone judges what is mostly detail.
        if self.run.is_mostly_detail(since_ns) {
            return None;
        }
        let part = |eighths: u64| self.run.part(since_ns, eighths);
        let (courses, end_ns) = (self.run.courses, self.run.end_ns);
        let course = &courses.stacks.get(stack as usize)?.whole();
        let lows = self.lows(&moments, course);
        let lows = lows.or_else(|| self.lows_of_staying(&moments, course))?;
        let at = |eighths: u64| {
            let place = moments.partition_point(|it| it.0 <= part(eighths));
            let (time_ns, bytes) = moments[place.saturating_sub(1)];
            (bytes, Sum::of_all(courses.steps_before(course, time_ns)))
        };
        let totals = self.totals[stack as usize];
        let all = Sum::of_all(course.steps.iter().map(|step| step.stays));
        // The two ends differ by the blocks that came in between and stay, and by those that were
        // there and went.
        let (then, of_then) = at(3);
        let freed_variance =
            (then - of_then.bytes).max(0.0) * totals.variance / totals.allocated.max(1.0);
        let (old, of_old) = at(4);
        let conduct = Conduct {
            lows,
            error: ((all.variance - of_then.variance).max(0.0) + freed_variance).sqrt(),
            gone: (1.0 - of_old.bytes / old.max(1.0)).clamp(0.0, 1.0),
            // No more went in the second half, and no less came.
            late_allocated: totals.in_use - of_old.bytes,
            late_freed: totals.allocated - totals.in_use,
            late_samples: all.samples - of_old.samples,
            staying_samples: all.samples,
            ..Conduct::default()
        };
        let seconds = length_ns as f64 / 2e9;
        let kind = Kind::of_growth(&conduct, least);
        Some(kind.map(|kind| Growth {
            kind,
            since_ns,
            before: moments[0].1,
            rate: conduct.growth() / seconds,
            error: conduct.error / seconds,
            gone: conduct.gone,
            samples: all.samples,
            end_ns,
            bytes: conduct.growth(),
        }))
    }

    /// Returns the lower envelope of a stack over its moments and the detail, in the second, third
    /// and fourth quarter. `None`: there are too few moments.
    fn lows(&self, moments: &[(u64, f64)], course: &Course) -> Option<[f64; 3]> {
        let (courses, end_ns) = (self.run.courses, self.run.end_ns);
        // In the first step, the blocks of the checkpoint are told one by one.
        let steps = course.steps.iter().enumerate().skip(1);
        let in_detail = steps.map(|(n, step)| (courses.begin_of(n + 1).min(end_ns), step.low));
        let points: Vec<(u64, f64)> = moments.iter().copied().chain(in_detail).collect();
        let low = |quarter: u64| {
            let of_quarter: Vec<f64> = self.of_quarter(&points, quarter).collect();
            let is_enough = of_quarter.len() >= FEWEST_MOMENTS;
            is_enough.then(|| of_quarter.into_iter().fold(f64::INFINITY, f64::min))
        };
        Some([low(1)?, low(2)?, low(3)?])
    }

    /// Returns the same by the ages of the blocks that are in use at the end. At each time, no less
    /// than these was in use. `None`: at a moment more was in use, or it is not known in the second
    /// or third quarter.
    fn lows_of_staying(&self, moments: &[(u64, f64)], course: &Course) -> Option<[f64; 3]> {
        let part = |eighths: u64| self.run.part(moments[0].0, eighths);
        let staying = |ns: u64| Sum::of_all(self.run.courses.steps_before(course, ns)).bytes;
        let stays = |&(ns, bytes): &(u64, f64)| staying(ns) >= (1.0 - FEW_GONE) * bytes;
        let is_seen = |quarter| self.of_quarter(moments, quarter).next().is_some();
        let mut later = moments.iter().filter(|it| it.0 > part(2));
        (later.all(stays) && is_seen(1) && is_seen(2)).then(|| [2, 4, 6].map(|n| staying(part(n))))
    }

    /// Returns the bytes of these points, the first of which is a moment, in a quarter from 0 to 3.
    fn of_quarter(&self, points: &[(u64, f64)], quarter: u64) -> impl Iterator<Item = f64> {
        let part = |eighths: u64| self.run.part(points[0].0, eighths);
        let (from, to) = (part(2 * quarter), part(2 * quarter + 2));
        let of_quarter = points.iter().filter(move |it| from < it.0 && it.0 <= to);
        of_quarter.map(|it| it.1)
    }

    /// The bytes of the named stacks of a site, and how many stacks of the site are not named.
    fn named(&self, moment: &CoarseMoment, site: usize) -> (f64, usize) {
        let named = moment.largest.iter();
        let named = named.filter(|(stack, _)| self.map.own(*stack) == Some(site));
        let (bytes, count) = named.fold((0.0, 0), |(bytes, count), (_, more)| {
            (bytes + *more as f64, count + 1)
        });
        (bytes, self.stacks[site] - count)
    }

    /// The most bytes that a site had at a moment.
    fn most(&self, moment: &CoarseMoment, site: usize) -> f64 {
        let (bytes, others) = self.named(moment, site);
        let least = moment.largest.iter().map(|it| it.1).min();
        let least = least.filter(|_| moment.largest.len() >= NAMED);
        bytes + least.unwrap_or(0) as f64 * others as f64
    }

    /// The most that a site has grown since a moment.
    fn most_growth(&self, site: usize, since_ns: u64) -> f64 {
        let stacks = self.totals.iter().zip(0..);
        let of_site = stacks.filter(|(_, stack)| self.map.own(*stack) == Some(site));
        let in_use: f64 = of_site.map(|(totals, _)| totals.in_use).sum();
        let moment = self.run.moments.iter().find(|it| it.time_ns == since_ns);
        in_use - moment.map_or(0.0, |moment| self.named(moment, site).0)
    }
}

impl WholeRunVerdict {
    /// The verdict on a site with another stack.
    fn with(self, other: WholeRunVerdict) -> WholeRunVerdict {
        match (self, other) {
            (WholeRunVerdict::Grows(one), WholeRunVerdict::Grows(other)) => {
                WholeRunVerdict::Grows(one.with(&other))
            }
            (WholeRunVerdict::Grows(growth), _) | (_, WholeRunVerdict::Grows(growth)) => {
                WholeRunVerdict::Grows(growth)
            }
            (WholeRunVerdict::Level, _) | (_, WholeRunVerdict::Level) => WholeRunVerdict::Level,
            (WholeRunVerdict::Unknown, WholeRunVerdict::Unknown) => WholeRunVerdict::Unknown,
        }
    }

    pub(crate) fn growth(self) -> Option<Growth> {
        match self {
            WholeRunVerdict::Grows(growth) => Some(growth),
            WholeRunVerdict::Level | WholeRunVerdict::Unknown => None,
        }
    }
}

impl Growth {
    /// The growth of two stacks of a site. The verdict is that on the one that grows more.
    fn with(self, other: &Growth) -> Growth {
        let larger = if other.bytes > self.bytes {
            *other
        } else {
            self
        };
        Growth {
            before: self.before + other.before,
            rate: self.rate + other.rate,
            error: self.error.hypot(other.error),
            bytes: self.bytes + other.bytes,
            samples: self.samples + other.samples,
            ..larger
        }
    }

    /// Returns false if the detail, a step of which takes `step_s` seconds, shows that the growth
    /// has ended.
    pub(crate) fn continues_in(&self, detail: &Conduct, step_s: f64) -> bool {
        let most = detail.growth() + REAL * detail.error;
        most >= GOES_ON * self.rate * detail.span * step_s
    }
}
