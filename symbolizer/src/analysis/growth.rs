//! Scale: the size and the state of a profile that its growth is judged by, beside a growth's own
//! error.

use heapprof_core::Trend;

use crate::analysis::completeness::Recorded;
use crate::model::amount::Amount;
use crate::model::change::Verdict;
use crate::model::measure::Measure;
use crate::model::profile::Profile;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scale {
    /// The amount that all have in use, divided by the window's length.
    all: f64,
    /// True if parts of the record are missing: then nothing is exact.
    is_in_parts: bool,
}

impl Scale {
    /// The scale of a growth metric.
    pub fn of(profile: &Profile, measure: Measure) -> Scale {
        Scale {
            all: measure.of_all(profile).scale,
            is_in_parts: profile.recorded() == Recorded::InParts,
        }
    }

    /// The scale of changes between two moments: any size matters.
    pub fn of_changes(profile: &Profile) -> Scale {
        Scale {
            all: 0.0,
            is_in_parts: profile.recorded() == Recorded::InParts,
        }
    }

    /// Judges a growth.
    pub fn verdict(&self, growth: &Amount) -> Verdict {
        let is_exact = growth.variance <= 0.0 && !self.is_in_parts;
        match Trend::of(growth.value, growth.error(), growth.scale, self.all) {
            Trend::Small => Verdict::Small,
            Trend::Noise | Trend::Real if is_exact => Verdict::Exact,
            Trend::Real => Verdict::Real,
            Trend::Noise => Verdict::Noise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_is_judged_by_error_and_size() {
        let growth = |error, scale| Amount::of(10.0, error, 40).beside(scale);
        let scale = Scale {
            all: 100.0,
            is_in_parts: false,
        };
        assert_eq!(scale.verdict(&growth(3.0, 100.0)), Verdict::Real);
        assert_eq!(scale.verdict(&growth(4.0, 100.0)), Verdict::Noise);
        assert_eq!(scale.verdict(&growth(3.0, 2000.0)), Verdict::Small);
        assert_eq!(scale.verdict(&growth(0.0, 2000.0)), Verdict::Small);
        assert_eq!(scale.verdict(&growth(0.0, 100.0)), Verdict::Exact);
        let damaged = Scale {
            is_in_parts: true,
            ..scale
        };
        assert_eq!(damaged.verdict(&growth(0.0, 100.0)), Verdict::Real);
        let of_many = Scale { all: 2e4, ..scale };
        assert_eq!(of_many.verdict(&growth(3.0, 100.0)), Verdict::Small);
    }
}
