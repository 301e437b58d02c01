//! Snapshot: all that is known of a process at a moment, as a value.

use std::sync::Arc;

use crate::analysis::completeness::Recorded;
use crate::analysis::growth::Scale;
use crate::history::curve::Curve;
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

    /// The scale that growth, or the change since a moment, is judged by.
    pub(super) fn scale(&self, is_bytes: bool) -> Scale {
        match (&self.comparison, is_bytes) {
            (Some(_), _) => Scale::of_changes(&self.profile),
            (None, true) => Scale::of(&self.profile, Measure::GrowthBytes),
            (None, false) => Scale::of(&self.profile, Measure::GrowthObjects),
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
