//! Amount: a sum over blocks, with its variance and the samples it rests on.

use std::ops::AddAssign;

use heapprof_core::Totals;

use crate::model::metric::{Metric, Numbers};

/// A sum with its variance.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amount {
    /// How much.
    pub value: f64,
    /// The square of its standard error.
    pub variance: f64,
    /// Samples it rests on.
    pub samples: u64,
    /// The amount in use beside a growth, divided by the window's length; 0 for other amounts.
    pub scale: f64,
}

impl Amount {
    /// That of a metric: rounded, as [`Numbers`] are.
    pub(crate) fn of_metric(metric: Metric, totals: &Totals) -> Amount {
        Amount::of(
            Numbers::of(totals).get(metric) as f64,
            metric.error_of(totals),
            metric.samples_of(totals),
        )
    }

    pub(crate) fn of(value: f64, error: f64, samples: u64) -> Amount {
        Amount {
            value,
            variance: error * error,
            samples,
            scale: 0.0,
        }
    }

    /// The same, of a growth.
    pub(crate) fn beside(self, scale: f64) -> Amount {
        Amount { scale, ..self }
    }

    /// Its standard error.
    pub fn error(&self) -> f64 {
        self.variance.max(0.0).sqrt()
    }

    /// In standard errors; `None` where there is no error.
    pub fn z(&self) -> Option<f64> {
        (self.variance > 0.0).then(|| self.value / self.error())
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.value += other.value;
        self.variance += other.variance;
        self.samples += other.samples;
        self.scale += other.scale;
    }
}
