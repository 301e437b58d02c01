//! Snapshot: all that is known of a process at a moment, as a value.

use std::sync::Arc;
use std::time::Duration;

use crate::analysis::completeness::Recorded;
use crate::analysis::growth::{Scale, is_too_early};
use crate::history::curve::Curve;
use crate::model::amount::Amount;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::precision::Precision;
use crate::model::profile::Profile;
use crate::model::quantity::Bytes;
use crate::naming::site::SitePaths;
use crate::presence::Life;

use super::comparison::Comparison;
use super::rates::Rates;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Rows, with their pasts.
    pub(super) profile: Profile,
    /// The sites that its stacks pass.
    pub(super) paths: Arc<SitePaths>,
    pub(super) curve: Curve,
    pub(super) rates: Rates,
    /// The change since a moment, if the user compares.
    pub(super) comparison: Option<Comparison>,
    /// The change since a moment behind the beginning of a process that runs, if one is known.
    pub(super) baseline: Option<Comparison>,
    pub(super) life: Life,
    /// Bytes of the log.
    pub(super) log_bytes: u64,
    /// Resident bytes of the process, if it runs here.
    pub(super) resident: Option<u64>,
    /// Why the log cannot be read on, if so.
    pub(super) problem: Option<String>,
    /// Changes if another file has the log's path: numbers of sites are other ones then.
    pub(super) generation: u64,
}

impl Snapshot {
    /// How exact the numbers are, in a few words.
    pub(super) fn exactness(&self) -> String {
        let intervals = self.profile.run.intervals();
        match (self.profile.precision(), intervals) {
            (Precision::Exact, _) if self.profile.recorded() == Recorded::InParts => {
                "parts of the record are missing".into()
            }
            (Precision::Exact, _) => "every allocation recorded".into(),
            (_, Some((least, most))) if least != most => format!(
                "one sample every {} to {}",
                Bytes(least as f64),
                Bytes(most as f64)
            ),
            (_, Some((interval, _))) => {
                format!("one sample every {}", Bytes(interval as f64))
            }
            _ => "sampled".into(),
        }
    }

    /// True if numbers are estimates.
    pub(super) fn is_sampled(&self) -> bool {
        self.profile.precision() == Precision::Sampled
    }

    /// Whether recording is stopped now.
    pub(super) fn is_stopped(&self) -> bool {
        let regimes = &self.profile.run.regimes;
        regimes.last().is_some_and(|regime| regime.interval == 0)
    }

    /// Whether it is too early to tell what grows: the set-up of a process is no growth.
    pub(super) fn is_too_early(&self) -> bool {
        let since = self.baseline.as_ref().map(|it| it.since_ns);
        let age = Duration::from_nanos(self.profile.run.duration_ns);
        self.life == Life::Running && is_too_early(since.map(Duration::from_nanos), age)
    }

    /// The growth of a row, in bytes or in blocks a second: since the baseline, or else over the
    /// whole run.
    pub(super) fn growth_of_row(&self, row: usize, is_bytes: bool) -> Amount {
        match (&self.baseline, is_bytes) {
            _ if self.is_too_early() => Amount::default(),
            (Some(baseline), _) => baseline.growth_of_row(&self.profile, row, is_bytes),
            (None, true) => Measure::GrowthBytes.of_row(&self.profile, row),
            (None, false) => Measure::GrowthObjects.of_row(&self.profile, row),
        }
    }

    /// The growth of all rows.
    pub(super) fn growth_of_all(&self, is_bytes: bool) -> Amount {
        let mut sum = Amount::default();
        for row in 0..self.profile.rows.len() {
            sum += self.growth_of_row(row, is_bytes);
        }
        sum
    }

    /// The scale that growth, or the change since a moment, is judged by.
    pub(super) fn scale(&self, is_bytes: bool) -> Scale {
        match self.comparison {
            Some(_) => Scale::of_changes(&self.profile),
            None => Scale::of_growth(&self.profile, &self.growth_of_all(is_bytes)),
        }
    }

    /// The doubts that a reader of the numbers should have, most important first.
    pub(super) fn caveats(&self) -> Vec<String> {
        let mut caveats: Vec<String> = self.problem.iter().cloned().collect();
        if self.is_stopped() && self.life == Life::Running {
            caveats.push("recording is stopped: `heapprof ctl PID start` starts it".into());
        }
        caveats.extend(self.profile.conditions());
        caveats
    }

    /// The half width of the interval of a total, in the metric's unit; `None`: it is exact.
    pub(super) fn half_width(&self, metric: Metric) -> Option<f64> {
        let error = self.profile.error(metric).filter(|_| self.is_sampled())?;
        Some(error * crate::model::confidence::Confidence::default().standard_errors())
    }
}
