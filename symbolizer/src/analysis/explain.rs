//! Explanation: what the memory of a run does and who does it, the most important first.
//!
//! Each allocation site gets a verdict from its conduct over time (`explain::conduct`,
//! `explain::kind`). Beside the sites, the whole program is looked at: memory that is taken and
//! given back at once, and the time until a limit is reached.
//!
//! The rules and what they find in programs of known conduct are in docs/explain.md.

pub(crate) mod coarse_run;
pub(crate) mod conduct;
pub(crate) mod end_of_use;
pub(crate) mod forecast;
pub(crate) mod kind;
pub(crate) mod rate;
pub(crate) mod readings;
pub(crate) mod spread;
pub(crate) mod statement;
pub(crate) mod whole_run;

use crate::analysis::explain::conduct::Conduct;
use crate::analysis::explain::forecast::Forecast;
use crate::analysis::explain::kind::{FEWEST_RISES, Kind};
use crate::analysis::explain::rate::{LongTerm, Rate, Rates};
use crate::analysis::explain::readings::{MappedGrowth, moments_of};
use crate::analysis::explain::spread::SpreadGrowth;
use crate::analysis::explain::whole_run::{
    Fall, Growth, PastBeforeDetail, WholeRun, WholeRunVerdict,
};
use crate::history::courses::Course;
use crate::model::amount::Amount;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::profile::Profile;
use crate::model::span::Cut;
use crate::naming::site::{SiteKey, SiteMap, is_by_realloc};
use crate::naming::symbols::Symbols;

/// The part of the most bytes in use that matters.
const MATTERS: f64 = 0.01;
/// The part of the most bytes in use that has a finding, whatever its conduct is.
const LARGE: f64 = 0.1;
/// The part of the most bytes in use that a site must have had at any time to have a finding.
const HIGH: f64 = 0.5;
/// Seconds below which a run may be a program's beginning alone.
const SHORT_S: f64 = 10.0;
/// The part of all allocations of which most are temporary that is worth a finding.
const MUCH_CHURN: f64 = 0.1;
/// The fewest temporary bytes of a site that are worth a finding: 64 Ki blocks of 16 bytes take a
/// millisecond or two.
const LEAST_CHURN: f64 = (1 << 20) as f64;
/// The fewest samples by which a program without findings is well. Five samples that stay show a
/// leak ([`kind`]): of a hundred, that is a twentieth of all bytes.
const FEW_SAMPLES: u64 = 100;
/// The part of a site's allocations that are temporary.
const MOSTLY: f64 = 0.8;

/// The verdict on a site, with its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The verdict.
    pub kind: Kind,
    /// The site.
    pub site: SiteKey,
    /// Bytes in use at the end.
    pub in_use: Amount,
    /// The growth of the lower envelope, in bytes a second, with its standard error. For a block
    /// that grows, the error includes how unsteady the growth is.
    pub growth: f64,
    /// See [`growth`](Finding::growth).
    pub growth_error: f64,
    /// The most bytes in use, and when, in nanoseconds.
    pub highest: f64,
    /// See [`highest`](Finding::highest).
    pub highest_ns: u64,
    /// The standard error of [`highest`](Finding::highest).
    pub highest_error: f64,
    /// When its first blocks came, in nanoseconds; `None`: at the beginning of the run.
    pub began_ns: Option<u64>,
    /// When it first had as much as in the last quarter, in nanoseconds; `None`: in the first
    /// quarter of the run.
    pub settled_ns: Option<u64>,
    /// The part of what was in use at half of the time that was freed later.
    pub gone: f64,
    /// Freed in the second half of the time, in bytes.
    pub freed_late: f64,
    /// The standard error of it.
    pub freed_late_error: f64,
    /// Bytes in use, on average over the second half.
    pub mean: f64,
    /// Half of the time, no more is in use.
    pub usual: f64,
    /// The standard error of it.
    pub usual_error: f64,
    /// How often it rose.
    pub rises: usize,
    /// Samples that the verdict rests on.
    pub samples: u64,
    /// The coarse history's part in the verdict.
    pub past_before_detail: Option<PastBeforeDetail>,
    /// The end of the time that is judged, in nanoseconds, if recording was stopped then and the
    /// time behind it cannot be.
    pub until_ns: Option<u64>,
    /// The end of the view, in nanoseconds, if that is not the end of the run: a program may free
    /// all that it has behind it.
    pub view_end_ns: Option<u64>,
}

/// A site that allocates much and frees it at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Churn {
    /// The site.
    pub site: SiteKey,
    /// Bytes that the site allocated. See [`temporary`](Churn::temporary).
    pub allocated: f64,
    /// The temporary part of these bytes.
    pub temporary: f64,
    /// The part of all bytes of the program.
    pub share: f64,
    /// How many of the blocks `realloc` returned.
    pub reallocs: Amount,
    /// True if most of the bytes are in these.
    pub is_by_realloc: bool,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Explanation {
    /// Verdicts on sites: those to look into first, each kind by size.
    pub findings: Vec<Finding>,
    /// Memory that is taken and given back at once.
    pub churn: Vec<Churn>,
    /// Memory that malloc never saw, if it grows.
    pub mapped: Option<MappedGrowth>,
    /// Growth of the program that is in no site alone.
    pub spread: Option<SpreadGrowth>,
    /// When the limit is reached that comes first; `None`: there is none.
    pub forecast: Option<Forecast>,
    /// True if the run is too short, or has too few samples, to say what grows.
    pub is_too_short: bool,
    /// True if the run is so short that what grows may be its beginning alone.
    pub is_short: bool,
    /// True if there are no samples at all.
    pub is_without_samples: bool,
    /// True if the program recorded every allocation.
    pub records_all: bool,
    /// True if the samples are so few that a site with a good part of the memory may have none.
    pub is_of_few_samples: bool,
    /// True if parts of the record are missing: what they had is not judged.
    pub is_in_parts: bool,
}

/// Returns the seconds of the view.
fn length_s(profile: &Profile) -> f64 {
    let to_ns = profile.run.span.map(|span| span.to.time_ns());
    to_ns.unwrap_or(profile.run.duration_ns) as f64 / 1e9
}

impl Explanation {
    /// Explains a profile that was read with pasts and courses.
    pub fn of(profile: &Profile, symbols: &Symbols) -> Explanation {
        let map = SiteMap::of(profile, symbols);
        let mut sites: Vec<SiteSum> = Vec::new();
        sites.resize_with(map.keys().len(), SiteSum::default);
        let mut whole = Course::default();
        for (stack, course) in profile.courses.stacks.iter().enumerate() {
            conduct::add(&mut whole, course);
            if let Some(site) = map.own(stack as u32) {
                conduct::add(&mut sites[site].course, course);
            }
        }
        for (index, row) in profile.rows.iter().enumerate() {
            let Some(site) = map.own(row.stack) else {
                continue;
            };
            let sum = &mut sites[site];
            sum.in_use += Measure::Basic(Metric::InUseBytes).of_row(profile, index);
            sum.allocated += row.totals.allocated.bytes_f64();
            sum.temporary += profile
                .pasts
                .get(index)
                .map_or(0.0, |past| past.temporary.bytes_f64());
        }
        let stopped = stopped_steps(profile);
        let recorded = |step: usize| {
            let before = stopped.iter().take(step);
            before.filter(|is_stopped| !**is_stopped).count()
        };
        if stopped.contains(&true) {
            let stop_ns = profile.run.stops_in_view().first().map_or(0, |stop| stop.0);
            let whole_steps = profile.courses.step_at(stop_ns).unwrap_or_default();
            for sum in &mut sites {
                let steps = sum.course.steps.iter().take(whole_steps);
                let course = Course {
                    steps: steps.copied().collect(),
                    before: Vec::new(),
                };
                sum.before_stop = Some((stop_ns, course));
            }
            let courses = sites.iter_mut().map(|sum| &mut sum.course);
            courses
                .chain([&mut whole])
                .for_each(|course| *course = course.without(&stopped));
        }
        let most = profile.peak.map_or(0.0, |peak| peak.bytes.to_f64());
        let peak_step = peak_step(profile).map(recorded);
        let step_s = profile.courses.step_ns as f64 / 1e9;
        let least = MATTERS * most;
        let mut findings: Vec<Finding> = Vec::new();
        let whole_run = WholeRun::of(profile, &map);
        let verdicts = whole_run.as_ref().map(|it| it.verdicts(least));
        let in_detail = part_in_detail(profile);
        for (site, (key, sum)) in map.keys().iter().zip(&sites).enumerate() {
            let conduct = Conduct::of(&sum.course);
            let whole = verdicts
                .as_ref()
                .map_or(WholeRunVerdict::Unknown, |all| all[site]);
            let growth = whole.growth().filter(|growth| {
                let detail = conduct.as_ref();
                detail.is_none_or(|conduct| growth.continues_in(conduct, step_s))
            });
            let Some(conduct) = conduct.or(growth.map(|_| Conduct::default())) else {
                continue;
            };
            let at_peak = peak_step.and_then(|step| sum.course.steps.get(step));
            let at_peak = at_peak.is_some_and(|step| step.high > conduct.highest / 2.0);
            // Blocks that are freed at once are churn, if they are many.
            let is_temporary = sum.temporary > MOSTLY * sum.allocated;
            let kind = Kind::of(&conduct, least, at_peak);
            let kind = kind.filter(|kind| kind.is_trouble() || !is_temporary);
            let growth = growth.filter(|_| kind != Some(Kind::Burst));
            let kind = growth.map(|growth| growth.kind).or(kind);
            let may_grow = || {
                let part = in_detail.filter(|_| whole == WholeRunVerdict::Unknown);
                part.is_some_and(|part| Kind::of_growth_in_part(&conduct, least, part).is_some())
            };
            if kind.is_none_or(|kind| !kind.is_trouble()) && may_grow() {
                let mut finding = Finding::of(Kind::Unknown, key, sum, &conduct, step_s);
                let until_ns = profile.courses.begin_ns;
                finding.past_before_detail = Some(PastBeforeDetail::NotKnown { until_ns });
                findings.push(finding);
            } else if let Some(kind) = kind {
                let mut finding = Finding::of(kind, key, sum, &conduct, step_s);
                if let Some(growth) = growth {
                    finding.by_whole_run(&growth);
                } else if let Some(whole_run) = &whole_run
                    && kind.grows()
                    && let Some(fall) = whole_run.fall(site, &sum.course, &sum.in_use)
                {
                    finding.by_fall(&fall);
                }
                findings.push(finding);
            } else if !is_temporary && conduct.is_hidden(&sum.course, least) {
                findings.push(sum.up_to_stop(key, least, step_s, &conduct));
            } else if !is_temporary && sum.is_large(&conduct, most) {
                findings.push(Finding::of(Kind::Varies, key, sum, &conduct, step_s));
            }
        }
        findings.sort_by(|a, b| {
            (!a.kind.is_trouble(), -a.weight(), &a.site.function)
                .partial_cmp(&(!b.kind.is_trouble(), -b.weight(), &b.site.function))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let long = LongTerm::of(profile, &whole);
        let conduct = Conduct::of(&whole);
        let detail = conduct.as_ref();
        let detail = detail.map(|it| Rate::of_detail(it, profile.courses.begin_ns, step_s, least));
        let rates = Rates::of(detail, long.as_ref(), least);
        let in_use = Measure::Basic(Metric::InUseBytes).total(profile);
        let found = findings.iter().map(|it| it.growth.max(0.0)).sum();
        let spread = conduct
            .as_ref()
            .and_then(|it| SpreadGrowth::of(it, found, (in_use, most), step_s));
        let view_end_ns = profile.run.span.map(|span| span.to.time_ns());
        for finding in &mut findings {
            finding.view_end_ns = view_end_ns.filter(|&ns| ns < u64::MAX);
        }
        Explanation {
            findings,
            spread,
            churn: churn(profile, symbols, &map, &sites),
            mapped: MappedGrowth::of(profile, symbols, &map),
            forecast: profile
                .memory
                .and_then(|reading| Forecast::of(&reading, rates.as_ref(), moments_of(profile))),
            is_too_short: conduct.is_none()
                && verdicts.is_none_or(|all| all.iter().all(|it| it.growth().is_none())),
            is_short: length_s(profile) < SHORT_S,
            is_without_samples: profile.rows.is_empty(),
            records_all: profile.run.interval == Some(1),
            is_of_few_samples: profile.run.interval != Some(1)
                && conduct.is_none_or(|conduct| conduct.samples < FEW_SAMPLES),
            is_in_parts: profile.lacks_parts(),
        }
    }

    /// Returns true if nothing is to look into.
    pub fn is_well(&self) -> bool {
        !self.is_too_short
            && !self.is_of_few_samples
            && !self.is_in_parts
            && self.is_without_trouble()
    }

    /// Returns true if nothing is found that is to look into.
    pub(crate) fn is_without_trouble(&self) -> bool {
        self.churn.is_empty()
            && self.mapped.is_none()
            && self.spread.is_none()
            && self
                .findings
                .iter()
                .all(|finding| !finding.kind.is_trouble() && !finding.kind.is_open())
            && self
                .forecast
                .as_ref()
                .is_none_or(|forecast| !forecast.is_near())
    }
}

impl Finding {
    fn of(kind: Kind, site: &SiteKey, sum: &SiteSum, conduct: &Conduct, step_s: f64) -> Finding {
        let error = match kind {
            Kind::GrowingBlock => conduct.error.hypot(conduct.unsteadiness()),
            _ => conduct.error,
        };
        Finding {
            kind,
            site: site.clone(),
            in_use: sum.in_use,
            growth: conduct.growth() / (conduct.span * step_s),
            growth_error: error / (conduct.span * step_s),
            highest: conduct.highest,
            highest_ns: conduct.highest_ns,
            highest_error: conduct.highest_error,
            began_ns: conduct.began_ns,
            settled_ns: conduct.settled_ns,
            gone: conduct.gone,
            freed_late: conduct.late_freed,
            freed_late_error: conduct.late_freed_error,
            mean: conduct.mean,
            usual: conduct.usual,
            usual_error: conduct.usual_error,
            rises: conduct.rises,
            samples: conduct.samples,
            past_before_detail: None,
            until_ns: None,
            view_end_ns: None,
        }
    }

    /// Rests the verdict on the growth over the whole run, in place of that in the detail.
    fn by_whole_run(&mut self, growth: &Growth) {
        (self.kind, self.gone) = (growth.kind, growth.gone);
        (self.growth, self.growth_error) = (growth.rate, growth.error);
        self.samples = self.samples.max(growth.samples);
        if self.in_use.value > self.highest {
            (self.highest, self.highest_ns) = (self.in_use.value, growth.end_ns);
            self.highest_error = self.in_use.error();
        }
        self.past_before_detail = Some(PastBeforeDetail::Grown {
            since_ns: growth.since_ns,
            before: growth.before,
        });
    }

    /// It had as much before, and old blocks went: that is no leak.
    fn by_fall(&mut self, fall: &Fall) {
        self.kind = match fall.rises >= FEWEST_RISES {
            true => Kind::Periodic,
            false => Kind::Backlog,
        };
        (self.gone, self.rises) = (fall.gone, fall.rises);
        self.past_before_detail = Some(PastBeforeDetail::Fallen {
            time_ns: fall.time_ns,
            bytes: fall.bytes,
        });
    }

    /// The bytes that the order goes by.
    fn weight(&self) -> f64 {
        match self.kind {
            Kind::Burst | Kind::Periodic => self.highest,
            _ => self.in_use.value.max(self.mean),
        }
    }
}

/// Returns the part of the run's time that the log has in detail, from 0 to 1, if that is less than
/// half. `None` also for a window, whose time is all that is judged.
fn part_in_detail(profile: &Profile) -> Option<f64> {
    let span = profile.run.span;
    let is_of_all = span.is_none_or(|span| span.from == Cut::Nothing);
    let end_ns = span.map_or(profile.run.duration_ns, |span| span.to.time_ns());
    let detail_ns = end_ns.checked_sub(profile.courses.begin_ns)?;
    (is_of_all && detail_ns < end_ns / 2).then(|| detail_ns as f64 / end_ns as f64)
}

/// The sums of a site.
#[derive(Debug, Clone, Default)]
struct SiteSum {
    course: Course,
    /// When recording stopped for the first time, and the course up to there.
    before_stop: Option<(u64, Course)>,
    in_use: Amount,
    allocated: f64,
    temporary: f64,
}

impl SiteSum {
    /// Returns true if the site is known to have a good part of `most` bytes, the most of the
    /// program, at the end or in the second half, or to have had a larger part at any time.
    fn is_large(&self, conduct: &Conduct, most: f64) -> bool {
        let is_late = self.in_use.value.max(conduct.mean) >= LARGE * most && conduct.is_known();
        let is_highest_known = conduct.highest_error < conduct.highest / 2.0;
        is_late || conduct.highest >= HIGH * most && is_highest_known
    }

    /// Returns the finding on a site whose blocks went while recording was stopped: its conduct up
    /// to the first stop, if that can be told, or that it cannot be judged.
    fn up_to_stop(&self, site: &SiteKey, least: f64, step_s: f64, all: &Conduct) -> Finding {
        let up_to = self.before_stop.as_ref();
        let judged = up_to.and_then(|(stop_ns, course)| {
            let conduct = Conduct::of(course)?;
            // Growth up to a stop may be that of a cache that is being filled.
            let kind = Kind::of(&conduct, least, false).filter(|kind| !kind.is_trouble())?;
            let mut finding = Finding::of(kind, site, self, &conduct, step_s);
            finding.until_ns = Some(*stop_ns);
            Some(finding)
        });
        let unknown = || {
            let freed = self.course.steps.iter().map(|step| step.freed_in_stops);
            Finding {
                freed_late: freed.sum(),
                freed_late_error: 0.0,
                ..Finding::of(Kind::Unknown, site, self, all, step_s)
            }
        };
        judged.unwrap_or_else(unknown)
    }
}

/// For each step, whether recording was stopped for most of it.
fn stopped_steps(profile: &Profile) -> Vec<bool> {
    let run = &profile.run;
    let end_ns = run.span.map_or(run.duration_ns, |span| span.to.time_ns());
    profile.courses.stopped(&run.stops_in_view(), end_ns)
}

/// The step of the peak; `None`: it is before all that is known.
fn peak_step(profile: &Profile) -> Option<usize> {
    let time_ns = profile.peak.map_or(0, |peak| peak.time_ns);
    profile.courses.step_at(time_ns)
}

fn churn(profile: &Profile, symbols: &Symbols, map: &SiteMap, sites: &[SiteSum]) -> Vec<Churn> {
    let all: f64 = sites.iter().map(|sum| sum.allocated).sum();
    let is_much = |sum: &SiteSum| {
        sum.allocated > MUCH_CHURN * all
            && sum.temporary > MOSTLY * sum.allocated
            && sum.temporary >= LEAST_CHURN
    };
    let of_site = |(site, sum): (usize, &SiteSum)| {
        let (mut reallocs, mut reallocated) = (Amount::default(), 0.0);
        for (index, row) in profile.rows.iter().enumerate() {
            let is_own = map.own(row.stack) == Some(site);
            if is_own && is_by_realloc(profile, symbols, &profile.stacks[row.stack as usize]) {
                reallocs += Measure::Basic(Metric::AllocatedObjects).of_row(profile, index);
                reallocated += row.totals.allocated.bytes_f64();
            }
        }
        Churn {
            site: map.keys()[site].clone(),
            allocated: sum.allocated,
            temporary: sum.temporary,
            share: sum.allocated / all,
            reallocs,
            is_by_realloc: reallocated > MOSTLY * sum.allocated,
        }
    };
    let much = sites.iter().enumerate().filter(|(_, sum)| is_much(sum));
    let mut churn: Vec<Churn> = much.map(of_site).collect();
    churn.sort_by(|a, b| b.temporary.total_cmp(&a.temporary));
    churn
}
