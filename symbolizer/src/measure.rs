//! A measure: what a table or a profile shows of each stack. The four metrics, and what only the
//! past tells: those need a log that was read with pasts ([`Reading`](crate::Reading)).

use std::fmt;
use std::ops::AddAssign;

use heapprof_core::{Estimate, Past};

use crate::metric::Metric;
use crate::profile::Profile;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    /// One of the four.
    Basic(Metric),
    /// In use when the most bytes were.
    PeakBytes,
    /// Blocks at that moment.
    PeakObjects,
    /// Bytes freed soon after they were allocated.
    TemporaryBytes,
    /// Blocks freed soon after they were allocated.
    TemporaryObjects,
    /// Byte-seconds: in-use bytes, integrated over time.
    HeaptimeBytes,
    /// Object-seconds.
    HeaptimeObjects,
    /// Usable bytes beyond those requested, of blocks in use.
    Slack,
    /// How long blocks live: not a sum, but a distribution.
    Lifetime,
}

impl Measure {
    /// Those of the past that are sums, in the order in which pprof profiles list them behind the
    /// four.
    pub const SUMS: [Measure; 7] = [
        Measure::PeakObjects,
        Measure::PeakBytes,
        Measure::TemporaryObjects,
        Measure::TemporaryBytes,
        Measure::HeaptimeObjects,
        Measure::HeaptimeBytes,
        Measure::Slack,
    ];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Basic(metric) => metric.name(),
            Measure::PeakBytes => "peak",
            Measure::PeakObjects => "peak-objects",
            Measure::TemporaryBytes => "temporary",
            Measure::TemporaryObjects => "temporary-objects",
            Measure::HeaptimeBytes => "heaptime",
            Measure::HeaptimeObjects => "heaptime-objects",
            Measure::Slack => "slack",
            Measure::Lifetime => "lifetime",
        }
    }

    /// Its name and unit as a sample type of pprof.
    pub fn sample_type(self) -> (&'static str, &'static str) {
        match self {
            Measure::Basic(Metric::AllocatedObjects) => ("alloc_objects", "count"),
            Measure::Basic(Metric::AllocatedBytes) => ("alloc_space", "bytes"),
            Measure::Basic(Metric::InUseObjects) => ("inuse_objects", "count"),
            Measure::Basic(Metric::InUseBytes) => ("inuse_space", "bytes"),
            Measure::PeakBytes => ("peak_space", "bytes"),
            Measure::PeakObjects => ("peak_objects", "count"),
            Measure::TemporaryBytes => ("temporary_space", "bytes"),
            Measure::TemporaryObjects => ("temporary_objects", "count"),
            Measure::HeaptimeBytes => ("heaptime_space", "byte-seconds"),
            Measure::HeaptimeObjects => ("heaptime_objects", "object-seconds"),
            Measure::Slack => ("slack_space", "bytes"),
            Measure::Lifetime => ("lifetime", "seconds"),
        }
    }

    /// Whether it counts bytes, or byte-seconds.
    pub fn is_bytes(self) -> bool {
        match self {
            Measure::Basic(metric) => metric.is_bytes(),
            Measure::PeakBytes
            | Measure::TemporaryBytes
            | Measure::HeaptimeBytes
            | Measure::Slack => true,
            _ => false,
        }
    }

    /// Whether it is multiplied by a time.
    pub fn is_over_time(self) -> bool {
        matches!(self, Measure::HeaptimeBytes | Measure::HeaptimeObjects)
    }

    /// Whether it needs the past.
    pub fn needs_pasts(self) -> bool {
        !matches!(self, Measure::Basic(_))
    }

    /// The amount in a row of that index; nothing when the profile has no pasts, or for
    /// [`Measure::Lifetime`].
    pub fn of_row(self, profile: &Profile, row: usize) -> Amount {
        let none = Past::default();
        let past = profile.pasts.get(row).unwrap_or(&none);
        let objects = |e: &Estimate| Amount::of(e.objects_f64(), e.objects_error(), e.samples);
        let bytes = |e: &Estimate| Amount::of(e.bytes_f64(), e.bytes_error(), e.samples);
        match self {
            Measure::Basic(metric) => {
                let totals = &profile.rows[row].totals;
                let estimate = if metric.is_in_use() {
                    &totals.in_use
                } else {
                    &totals.allocated
                };
                if metric.is_bytes() {
                    bytes(estimate)
                } else {
                    objects(estimate)
                }
            }
            Measure::PeakBytes => bytes(&past.peak),
            Measure::PeakObjects => objects(&past.peak),
            Measure::TemporaryBytes => bytes(&past.temporary),
            Measure::TemporaryObjects => objects(&past.temporary),
            Measure::HeaptimeBytes => {
                let time = &past.heaptime;
                Amount::of(time.byte_seconds(), time.byte_seconds_error(), time.samples)
            }
            Measure::HeaptimeObjects => {
                let time = &past.heaptime;
                Amount::of(
                    time.object_seconds(),
                    time.object_seconds_error(),
                    time.samples,
                )
            }
            Measure::Slack => bytes(&past.slack),
            Measure::Lifetime => Amount::default(),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A sum with its variance.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amount {
    /// How much.
    pub value: f64,
    /// The square of its standard error.
    pub variance: f64,
    /// Samples it rests on.
    pub samples: u64,
}

impl Amount {
    fn of(value: f64, error: f64, samples: u64) -> Amount {
        Amount {
            value,
            variance: error * error,
            samples,
        }
    }

    /// Its standard error.
    pub fn error(&self) -> f64 {
        self.variance.max(0.0).sqrt()
    }

    /// Whole, for formats that hold whole numbers.
    pub fn rounded(&self) -> u64 {
        self.value.round().max(0.0) as u64
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.value += other.value;
        self.variance += other.variance;
        self.samples += other.samples;
    }
}
