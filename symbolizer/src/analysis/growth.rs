//! Scale: the size and the state of a profile that its growth is judged by, beside a growth's own
//! error; and when it can be judged at all.

use std::time::Duration;

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
        Scale::of_growth(profile, &measure.of_all(profile))
    }

    /// The scale of a profile whose rows grow by that together.
    pub(crate) fn of_growth(profile: &Profile, all: &Amount) -> Scale {
        Scale {
            all: all.scale,
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
        // No sample came or went: whether blocks did that were not sampled is not known.
        if growth.value == 0.0 && growth.samples == 0 {
            return Verdict::Small;
        }
        let is_exact = growth.variance <= 0.0 && !self.is_in_parts;
        let is_past = growth.value < 0.0 && growth.past < growth.value / 2.0;
        match Trend::of(growth.value, growth.error(), growth.scale, self.all) {
            Trend::Small => Verdict::Small,
            Trend::Noise if is_exact && is_past => Verdict::Past,
            Trend::Real if is_past => Verdict::Past,
            Trend::Noise if is_exact && growth.is_late() => Verdict::Late,
            Trend::Real if growth.is_late() => Verdict::Late,
            Trend::Noise | Trend::Real if is_exact => Verdict::Exact,
            Trend::Real => Verdict::Real,
            Trend::Noise => Verdict::Noise,
        }
    }
}

/// A younger process is not judged: it may be in the middle of its set-up.
const YOUNGEST: Duration = Duration::from_secs(10);
/// An older one has its set-up behind it, whatever is known of that.
const GROWN_UP: Duration = Duration::from_secs(100);

/// Returns true if what a process had at that age is no part of its beginning: its growth from then
/// on is not the set-up. `explain` leaves the first quarter of the time out, too.
pub(crate) fn is_behind_the_beginning(then: Duration, age: Duration) -> bool {
    then >= age / 4
}

/// Returns true if it is too early to tell how fast a process grows of which the state at `since`
/// is known; `None`: no state behind its beginning is.
pub(crate) fn is_too_early(since: Option<Duration>, age: Duration) -> bool {
    let covers_half = since.is_some_and(|since| since <= age / 2);
    age < YOUNGEST || (age < GROWN_UP && !covers_half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_up_of_a_process_is_no_growth() {
        let at = Duration::from_secs;
        for (since, age, expected) in [
            (Some(3), 9, true),
            (Some(3), 10, false),
            (Some(6), 10, true),
            (Some(6), 12, false),
            (None, 99, true),
            (None, 100, false),
            (Some(110), 130, false),
        ] {
            let is = is_too_early(since.map(at), at(age));
            assert_eq!(is, expected, "{since:?} {age}");
        }
        assert!(is_behind_the_beginning(at(5), at(20)) && !is_behind_the_beginning(at(5), at(21)));
    }

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
        // 10 a second less for 4 s, and 19 or less at the end: most of it is gone.
        let falls = |error, left| {
            let falls = Amount::of(-10.0, error, 40).beside(100.0);
            falls.with_left(left, left, 4.0)
        };
        assert_eq!(scale.verdict(&falls(3.0, 19.0)), Verdict::Past);
        assert_eq!(scale.verdict(&falls(3.0, 20.0)), Verdict::Real);
        assert_eq!(scale.verdict(&falls(0.0, 19.0)), Verdict::Past);
        let mut all = falls(0.0, 19.0);
        all += falls(0.0, 20.0);
        assert_eq!(scale.verdict(&all), Verdict::Exact);
        // A vector that grows: each of its earlier blocks is gone.
        let mut grows = growth(3.0, 100.0).with_left(20.0, 40.0, 4.0);
        grows += Amount::of(-1.0, 0.0, 1).with_left(0.5, 0.0, 4.0);
        assert_eq!(scale.verdict(&grows), Verdict::Real);
        // A leak whose blocks are freed as the program ends.
        let freed = growth(3.0, 100.0).with_left(20.0, 0.0, 4.0);
        assert_eq!(scale.verdict(&freed), Verdict::Real);
        // 40 over the window: the half of it is there on average, or all of it at the end only.
        let rises = |mean, last| growth(3.0, 100.0).with_left(mean, last, 4.0);
        for (mean, last, expected) in [
            (20.0, 40.0, Verdict::Real),
            (8.9, 40.0, Verdict::Real),
            (8.8, 40.0, Verdict::Late),
            // A base of 60, with 20 more at the end than the fitted line leads to, or 100 more.
            (60.0, 100.0, Verdict::Real),
            (60.0, 160.0, Verdict::Real),
            (60.0, 161.0, Verdict::Late),
        ] {
            assert_eq!(scale.verdict(&rises(mean, last)), expected, "{mean} {last}");
        }
        let none = Amount::of(0.0, 0.0, 0).beside(100.0);
        assert_eq!(scale.verdict(&none), Verdict::Small);
        let of_many = Scale { all: 2e4, ..scale };
        assert_eq!(of_many.verdict(&growth(3.0, 100.0)), Verdict::Small);
    }
}
