//! Spread growth: growth of the whole program that is in no site alone.

use crate::analysis::explain::conduct::Conduct;
use crate::analysis::explain::kind::Kind;
use crate::model::amount::Amount;
use crate::naming::site::SiteKey;

/// The part of the most bytes in use that the program must have grown by.
const MUCH: f64 = 0.1;
/// The part of its growth that sites with a finding have at most.
const IN_SITES: f64 = 0.5;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct SpreadGrowth {
    /// Bytes in use at the end.
    pub in_use: Amount,
    /// Growth of the whole program, in bytes a second.
    pub growth: f64,
    /// The standard error of it.
    pub growth_error: f64,
    /// A name in the place of a site's.
    pub site: SiteKey,
}

impl SpreadGrowth {
    /// Returns the growth by the conduct of the whole program, which has `in_use` and had so many
    /// bytes at most. `found` is the growth of single sites, in bytes a second. A step of the
    /// course has `step_s` seconds. `None`: the program does not grow, or single sites do.
    pub(crate) fn of(
        conduct: &Conduct,
        found: f64,
        (in_use, most): (Amount, f64),
        step_s: f64,
    ) -> Option<SpreadGrowth> {
        Kind::of_growth(conduct, MUCH * most).filter(|kind| kind.grows())?;
        let seconds = conduct.span * step_s;
        let growth = conduct.growth() / seconds;
        (found < IN_SITES * growth).then(|| SpreadGrowth {
            in_use,
            growth,
            growth_error: conduct.error / seconds,
            site: SiteKey::of_no_site("[many sites]"),
        })
    }
}
