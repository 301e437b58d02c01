//! Signed numbers: differences, their errors and their z, as the forms of a difference show them.

use heapprof_symbolizer::{Change, DiffSite, Measure, Pace};

/// Quantities of a metric as a table shows them: rates of growth by one unit of time.
pub(super) struct Signed {
    metric: Measure,
    pace: Pace,
}

impl Signed {
    pub(super) fn of(metric: Measure, changes: &[(&DiffSite, &Change)]) -> Signed {
        let all = changes.iter().map(|(_, change)| change.difference().abs());
        let pace = Pace::of(all.fold(0.0, f64::max));
        Signed { metric, pace }
    }

    pub(super) fn quantity(&self, value: f64) -> String {
        match self.metric.is_growth() {
            true => self.metric.quantity_at(value, self.pace),
            false => self.metric.quantity(value),
        }
    }

    pub(super) fn difference(&self, value: f64) -> String {
        let sign = if value < 0.0 { "-" } else { "+" };
        format!("{sign}{}", self.quantity(value.abs()))
    }
}

/// The standard error of a difference.
pub(super) fn standard_error(signed: &Signed, change: &Change) -> String {
    match change.is_unsure {
        true => "?".into(),
        false => signed.quantity(change.error()),
    }
}

/// The difference in standard errors. An error of next to nothing makes a number that says no more
/// than "certain".
pub(super) fn z_of(change: &Change) -> String {
    match change.z() {
        Some(z) if z.is_finite() && z >= 1000.0 => ">999".into(),
        Some(z) if z.is_finite() && z <= -1000.0 => "<-999".into(),
        Some(z) if z.is_finite() => format!("{z:.1}"),
        _ => "-".into(),
    }
}
