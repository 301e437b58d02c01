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
    /// The part of a growth, below nothing, that is due to memory of which little is left at the
    /// window's end.
    pub past: f64,
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
            past: 0.0,
        }
    }

    /// The same, of a growth.
    pub(crate) fn beside(self, scale: f64) -> Amount {
        Amount { scale, ..self }
    }

    /// The same, of the slope of what is in use over a time, with so much in use at its end. If
    /// what goes leaves as much behind, the slope falls by one and a half times what is left at
    /// most, divided by the length. If it falls by more than twice that, most of the memory is
    /// gone. A slope upwards does not tell: a program may free all that it has as it ends.
    pub(crate) fn with_left(self, at_the_end: f64, seconds: f64) -> Amount {
        let is_past = -self.value * seconds > 2.0 * at_the_end;
        Amount {
            past: if is_past { self.value } else { 0.0 },
            ..self
        }
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
        self.past += other.past;
    }
}
