//! Metric: one of the four totals of a row (bytes or objects, allocated or in use), and the four
//! together, rounded.

use std::fmt;
use std::ops::AddAssign;

use heapprof_core::{Estimate, Totals};

/// One of the four numbers that every row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Metric {
    /// Bytes allocated and not freed.
    #[default]
    InUseBytes,
    /// Blocks allocated and not freed.
    InUseObjects,
    /// Bytes ever allocated.
    AllocatedBytes,
    /// Blocks ever allocated.
    AllocatedObjects,
}

impl Metric {
    /// All four, in the order in which pprof lists its sample types.
    pub const ALL: [Metric; 4] = [
        Metric::AllocatedObjects,
        Metric::AllocatedBytes,
        Metric::InUseObjects,
        Metric::InUseBytes,
    ];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Metric::InUseBytes => "in-use-bytes",
            Metric::InUseObjects => "in-use-objects",
            Metric::AllocatedBytes => "allocated-bytes",
            Metric::AllocatedObjects => "allocated-objects",
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        if self.is_bytes() { "bytes" } else { "objects" }
    }

    /// Returns true if it counts bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Metric::InUseBytes | Metric::AllocatedBytes)
    }

    /// Returns true if it leaves out what was freed.
    pub fn is_in_use(self) -> bool {
        matches!(self, Metric::InUseBytes | Metric::InUseObjects)
    }

    /// The standard error of this metric.
    pub fn error_of(self, totals: &Totals) -> f64 {
        let estimate = self.estimate_of(totals);
        if self.is_bytes() {
            estimate.bytes_error()
        } else {
            estimate.objects_error()
        }
    }

    /// Samples that this metric rests on.
    pub fn samples_of(self, totals: &Totals) -> u64 {
        self.estimate_of(totals).samples
    }

    /// The estimate that it is a number of.
    pub fn estimate_of(self, totals: &Totals) -> &Estimate {
        if self.is_in_use() {
            &totals.in_use
        } else {
            &totals.allocated
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The four numbers, whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// Blocks allocated and not freed.
    pub in_use_objects: u64,
    /// Bytes allocated and not freed.
    pub in_use_bytes: u64,
    /// Blocks ever allocated.
    pub allocated_objects: u64,
    /// Bytes ever allocated.
    pub allocated_bytes: u64,
}

impl Numbers {
    /// A row's estimates, rounded. Bytes come with at least one object, as readers of dumps demand.
    pub fn of(totals: &Totals) -> Self {
        let pair = |estimate: &Estimate| {
            let (objects, bytes) = (estimate.objects(), estimate.bytes());
            (if bytes > 0 { objects.max(1) } else { objects }, bytes)
        };
        let ((in_use_objects, in_use_bytes), (allocated_objects, allocated_bytes)) =
            (pair(&totals.in_use), pair(&totals.allocated));
        Numbers {
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
        }
    }

    /// The number of that metric.
    pub fn get(&self, metric: Metric) -> u64 {
        match metric {
            Metric::InUseBytes => self.in_use_bytes,
            Metric::InUseObjects => self.in_use_objects,
            Metric::AllocatedBytes => self.allocated_bytes,
            Metric::AllocatedObjects => self.allocated_objects,
        }
    }

    /// Returns true if all are zero.
    pub fn is_zero(&self) -> bool {
        *self == Numbers::default()
    }
}

impl AddAssign for Numbers {
    fn add_assign(&mut self, other: Numbers) {
        self.in_use_objects = self.in_use_objects.saturating_add(other.in_use_objects);
        self.in_use_bytes = self.in_use_bytes.saturating_add(other.in_use_bytes);
        self.allocated_objects = self
            .allocated_objects
            .saturating_add(other.allocated_objects);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
    }
}
