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
    /// The average in use beside a growth, divided by the window's length; 0 for other amounts.
    pub mean: f64,
    /// The amount in use at the end, divided likewise.
    pub last: f64,
}

/// A growth is late if its slope over the window makes more of the average in use. A curve that
/// rises all the time makes 2 of it, and one that rises in the last third 4.7. A block of the last
/// moment makes 6.
const LATE_SLOPE: f64 = 4.5;
/// A growth is late if the end has more of what the fitted line leads to.
const LATE_END: f64 = 2.0;

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
            mean: 0.0,
            last: 0.0,
        }
    }

    /// The same, of a growth.
    pub(crate) fn beside(self, scale: f64) -> Amount {
        Amount { scale, ..self }
    }

    /// The same, of the slope of what is in use over a time, with so much in use on average, and at
    /// its end. If
    /// what goes leaves as much behind, the slope falls by one and a half times what is left at
    /// most, divided by the length. If it falls by more than twice that, most of the memory is
    /// gone. A slope upwards does not tell: a program may free all that it has as it ends.
    pub(crate) fn with_left(self, mean: f64, at_the_end: f64, seconds: f64) -> Amount {
        let is_past = -self.value * seconds > 2.0 * at_the_end;
        let a_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        Amount {
            past: if is_past { self.value } else { 0.0 },
            mean: a_second(mean),
            last: a_second(at_the_end),
            ..self
        }
    }

    /// Returns true if a growth is that of the last moments: nearly all memory is there only then,
    /// or far more than what the slope leads to.
    pub(crate) fn is_late(&self) -> bool {
        let leads_to = self.mean + self.value / 2.0;
        self.value > 0.0
            && self.mean > 0.0
            && (self.value > LATE_SLOPE * self.mean || self.last > LATE_END * leads_to)
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
        self.mean += other.mean;
        self.last += other.last;
    }
}
