//! Kinds: the verdict on a site, from its conduct.

use crate::analysis::explain::conduct::Conduct;
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
    /// It was allocated at the beginning, and stays.
    OneTime,
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
        let is_known = conduct.level_error < conduct.mean / 2.0;
        let is_early = conduct.early > 0.9 && conduct.late_freed < CHANGE * conduct.mean;
        if is_early && is_known && conduct.mean > least {
            return Some(Kind::OneTime);
        }
        if conduct.rises >= FEWEST_RISES {
            return Some(Kind::Periodic);
        }
        if at_peak && is_burst(conduct) {
            return Some(Kind::Burst);
        }
        if conduct.mean < least || conduct.samples < FEWEST_SAMPLES || conduct.is_over {
            return None;
        }
        let is_level = (fourth - third).abs() < (2.0 * conduct.error).max(CHANGE * conduct.mean)
            && conduct.highs[2] - fourth < conduct.mean / 2.0 + 2.0 * REAL * conduct.level_error;
        (is_level && conduct.late_freed > CHANGE * conduct.mean && conduct.gone > FEW_GONE)
            .then_some(Kind::Cache)
    }

    /// Returns the kind of growth; `None`: it does not grow.
    pub(crate) fn of_growth(conduct: &Conduct, least: f64) -> Option<Kind> {
        Kind::of_growth_in_part(conduct, least, 1.0)
    }

    /// Returns the kind of growth of a site whose conduct is that in a part of the run, from 0 to
    /// 1: the growth that matters, if the whole run had it.
    pub(crate) fn of_growth_in_part(conduct: &Conduct, least: f64, part: f64) -> Option<Kind> {
        let fourth = conduct.lows[2];
        let growth = conduct.growth();
        // If hardly anything is freed, a few samples prove that it grows, though not how much.
        let only_allocates = conduct.late_freed < FEW_GONE * conduct.late_allocated;
        let is_real = growth > REAL * conduct.error
            || only_allocates && conduct.late_samples >= FEWEST_OF_GROWTH;
        let is_steady = is_steady(&conduct.lows);
        let matters = growth > part * least && growth > part * CHANGE * fourth;
        let grows = matters && is_real && is_steady;
        grows.then_some(
            match conduct.gone < FEW_GONE || conduct.kept > ENOUGH_KEPT {
                true => Kind::Leak,
                false if conduct.staying_samples <= FEW_BLOCKS => Kind::GrowingBlock,
                false => Kind::Backlog,
            },
        )
    }
}

/// Returns true if an envelope with these lows rises in each half of the time.
pub(crate) fn is_steady(&[second, third, fourth]: &[f64; 3]) -> bool {
    let least = STEADY * (fourth - second);
    third - second > least && fourth - third > least
}

/// Returns true if it has three times what it usually has or more, and not because it is filled at
/// the end.
fn is_burst(conduct: &Conduct) -> bool {
    let little = conduct.highest / 3.0;
    let is_back = conduct.last < little || conduct.mean < little;
    conduct.stands_out && conduct.usual < little && is_back
}
