//! Kinds: the verdict on a site, from its conduct.

use crate::analysis::explain::coarse_run::GOES_ON;
use crate::analysis::explain::conduct::{Conduct, Difference};
use crate::model::change::REAL;

/// The conduct of a site, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It grows, and old blocks hardly ever go.
    Leak,
    /// A few blocks that are replaced by ever larger ones.
    GrowingBlock,
    /// It grows, but old blocks go: it is filled faster than it is emptied.
    Backlog,
    /// For a short time it has much more than otherwise, when the whole program has its most.
    Burst,
    /// It rises and falls again and again.
    Periodic,
    /// It is full, and what is in it is replaced.
    Cache,
    /// It was allocated at the beginning, or until some time, and stays.
    OneTime,
    /// It has less and less.
    Falls,
    /// It has grown, but that may be chance, or over.
    MayGrow,
    /// It has a good part of the memory, and its conduct is none of these.
    Varies,
    /// Much of it went while recording was stopped, and whether it was replaced is not known. Or it
    /// grows in the detail of a log, and of the time before too little is known.
    Unknown,
}

/// The part of blocks that may go from a leak: some of them are no part of it.
pub(crate) const FEW_GONE: f64 = 0.2;
/// The least of [`Conduct::kept`] of a leak among blocks that go.
const ENOUGH_KEPT: f64 = 0.7;
/// The fewest samples that came late and stay.
const FEWEST_OF_GROWTH: u64 = 5;
/// The fewest late samples that stay by which a site of few samples may grow.
const FEWEST_OF_DOUBT: u64 = 3;
/// Standard errors of a growth that is hardly chance: the ± of it does not reach 0.
const LIKELY: f64 = 1.96;
/// The part of the growth that the envelope must rise by in each half of the time.
const STEADY: f64 = 0.15;
/// The part of what is in use that counts as a change.
const CHANGE: f64 = 0.1;
/// The fewest rises of a periodic site.
pub(crate) const FEWEST_RISES: usize = 3;
/// The fewest samples whose coming and going says something.
const FEWEST_SAMPLES: u64 = 20;
/// The most samples that a few large blocks have.
const FEW_BLOCKS: u64 = 3;

impl Kind {
    /// The word for it, in JSON and in text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Leak => "leak",
            Kind::GrowingBlock => "growing block",
            Kind::Backlog => "backlog",
            Kind::Burst => "burst",
            Kind::Periodic => "periodic",
            Kind::Cache => "cache",
            Kind::OneTime => "one-time",
            Kind::Falls => "falls",
            Kind::MayGrow => "may grow",
            Kind::Varies => "varies",
            Kind::Unknown => "cannot be judged",
        }
    }

    /// Returns true if it is something to look into.
    pub fn is_trouble(self) -> bool {
        matches!(
            self,
            Kind::Leak | Kind::GrowingBlock | Kind::Backlog | Kind::Burst
        )
    }

    /// Returns true if it is neither known to be trouble nor known to be none.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Kind::MayGrow | Kind::Unknown)
    }

    /// Returns true if it grows.
    pub(crate) fn grows(self) -> bool {
        matches!(self, Kind::Leak | Kind::GrowingBlock | Kind::Backlog)
    }

    /// Returns the kind; `None`: it is none of these. `least` is the smallest number of bytes that
    /// matters to the program, `at_peak` true if the site has its most when the program has.
    pub(crate) fn of(conduct: &Conduct, least: f64, at_peak: bool) -> Option<Kind> {
        if let Some(kind) = Kind::of_growth(conduct, least) {
            return Some(kind);
        }
        let [_, third, fourth] = conduct.lows;
        if conduct.highest < least {
            return None;
        }
        let stays = conduct.late_freed < CHANGE * conduct.mean && conduct.mean > least;
        if conduct.early > 0.9 && stays && conduct.is_known() {
            return Some(Kind::OneTime);
        }
        if conduct.rises >= FEWEST_RISES {
            return Some(Kind::Periodic);
        }
        if at_peak && is_burst(conduct) {
            return Some(Kind::Burst);
        }
        if falls(conduct, least) {
            return Some(Kind::Falls);
        }
        if stays && conduct.last_changed < CHANGE * conduct.mean && is_of_many(conduct) {
            return Some(Kind::OneTime);
        }
        if conduct.mean < least || conduct.is_over {
            return None;
        }
        if conduct.samples < FEWEST_SAMPLES {
            let may_grow = only_allocates(conduct) && conduct.late_samples >= FEWEST_OF_DOUBT;
            return may_grow.then_some(Kind::MayGrow);
        }
        if may_grow(conduct, least) {
            return Some(Kind::MayGrow);
        }
        let is_level = has_ended(conduct, REAL)
            || (fourth - third).abs() < (2.0 * conduct.error).max(CHANGE * conduct.mean)
                && conduct.highs[2] - fourth
                    < conduct.mean / 2.0 + 2.0 * REAL * conduct.level_error;
        let replaced = conduct.late_freed.min(conduct.late_allocated);
        (is_level && replaced > CHANGE * conduct.mean && conduct.gone > FEW_GONE)
            .then_some(Kind::Cache)
    }

    /// Returns the kind of growth; `None`: it does not grow.
    pub(crate) fn of_growth(conduct: &Conduct, least: f64) -> Option<Kind> {
        Kind::of_growth_in_part(conduct, least, 1.0)
    }

    /// Returns the kind of growth of a site whose conduct is that in a part of the run, from 0 to
    /// 1: the growth that matters, if the whole run had it.
    pub(crate) fn of_growth_in_part(conduct: &Conduct, least: f64, part: f64) -> Option<Kind> {
        let growth = conduct.growth();
        // If hardly anything is freed, a few samples prove that it grows, though not how much.
        let is_real = growth > REAL * conduct.error
            || only_allocates(conduct) && conduct.late_samples >= FEWEST_OF_GROWTH
            || growth > LIKELY * conduct.error && has_risen(conduct);
        let grows = is_real
            && is_growth(conduct, part * least, part * CHANGE)
            && !has_ended(conduct, LIKELY);
        let stays = conduct.gone < FEW_GONE;
        grows.then_some(match stays || conduct.kept > ENOUGH_KEPT {
            true if stays || goes_on(conduct) => Kind::Leak,
            true => Kind::MayGrow,
            false if conduct.staying_samples <= FEW_BLOCKS => Kind::GrowingBlock,
            false => Kind::Backlog,
        })
    }
}

/// Returns true if hardly anything is freed of what comes in the second half.
fn only_allocates(conduct: &Conduct) -> bool {
    conduct.late_freed < FEW_GONE * conduct.late_allocated
}

/// Returns true if an envelope with these lows rises in each half of the time.
pub(crate) fn is_steady(&[second, third, fourth]: &[f64; 3]) -> bool {
    let least = STEADY * (fourth - second);
    third - second > least && fourth - third > least
}

/// Returns true if the lower envelope rises in each half of the time, perhaps by chance: by more
/// than `least` bytes, and by more than that part of itself.
fn is_growth(conduct: &Conduct, least: f64, part: f64) -> bool {
    let growth = conduct.growth();
    let matters = growth > least && growth > part * conduct.lows[2];
    matters && is_steady(&conduct.lows)
}

/// Returns true if it grows by more than its ±, though not by more than noise; or if it has grown,
/// and by more than the ± in the second half, though not steadily.
fn may_grow(conduct: &Conduct, least: f64) -> bool {
    let is_likely = conduct.growth() > LIKELY * conduct.error || has_risen(conduct);
    let is_late = |half: Difference| half.bytes > LIKELY * half.error_by_chance;
    let rises_late = conduct.rises_since.is_some_and(|since| is_late(since[1]));
    let rises = is_likely && is_growth(conduct, least, CHANGE) || has_risen(conduct) && rises_late;
    rises && !has_ended(conduct, REAL)
}

/// Returns true if more is in use at the end than behind the first quarter, by more than noise.
fn has_risen(conduct: &Conduct) -> bool {
    let since = conduct.rises_since.map(|since| since[0]);
    since.is_some_and(|rise| rise.bytes > REAL * rise.error_by_chance)
}

/// Returns true if it is sure to grow up to the end: in the last quarter by more than its ±, or in
/// the second half by more than noise, and not less in the last quarter than before.
fn goes_on(conduct: &Conduct) -> bool {
    conduct.rises_since.is_none_or(|[_, half, last]| {
        last.bytes > LIKELY * last.error
            || half.bytes > REAL * half.error && !has_slowed(conduct, LIKELY)
    })
}

/// Returns true if it grew, and hardly in the last quarter, by so many standard errors.
fn has_ended(conduct: &Conduct, errors: f64) -> bool {
    let of_quarter = conduct.growth() / 2.0;
    let is_little = |last: Difference| last.bytes < GOES_ON * of_quarter;
    has_slowed(conduct, errors) && conduct.rises_since.is_some_and(|since| is_little(since[2]))
}

/// Returns true if it grew, and less in the last quarter: by so many standard errors, and by more
/// than it rises and falls there.
fn has_slowed(conduct: &Conduct, errors: f64) -> bool {
    let growth = conduct.growth();
    // The envelope spans two quarters.
    let of_quarter = growth / 2.0;
    let range = conduct.highs[2] - conduct.lows[2];
    // Blocks come by chance, too, whose sizes are known.
    let error = (conduct.error).max(growth / (conduct.growth_samples as f64).sqrt());
    // Half of the growth's variance is that of a quarter; a quarter of it that of `of_quarter`.
    let by_chance = errors * 0.75f64.sqrt() * error;
    let is_less = |last: Difference| of_quarter - last.bytes > range.max(by_chance);
    growth > 0.0 && conduct.rises_since.is_some_and(|since| is_less(since[2]))
}

/// Returns true if both envelopes fall in each half of the time, by more than noise.
fn falls(conduct: &Conduct, least: f64) -> bool {
    let does = |envelope: &[f64; 3]| {
        let fall = envelope[0] - envelope[2];
        let matters = fall > least.max(CHANGE * envelope[0]);
        matters && fall > REAL * conduct.error && is_steady(&envelope.map(|bytes| -bytes))
    };
    does(&conduct.lows) && does(&conduct.highs)
}

/// Returns true if the samples are so many that a steady growth would hardly leave out a quarter.
fn is_of_many(conduct: &Conduct) -> bool {
    conduct.level_error.powi(2) * FEWEST_SAMPLES as f64 <= conduct.mean.powi(2)
}

/// Returns true if it has three times what it usually has or more, and not because it is filled at
/// the end.
fn is_burst(conduct: &Conduct) -> bool {
    let little = conduct.highest / 3.0;
    let is_back = conduct.last < little || conduct.mean < little;
    conduct.stands_out && conduct.usual < little && is_back
}
