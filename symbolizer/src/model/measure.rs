//! Measure: the number that a table or an exporter shows of each stack.
//!
//! It is one of the four metrics, or a number of the past. The latter need a log that is read with
//! pasts ([`ReadRequest`](crate::ReadRequest)).

use std::fmt;

use crate::history::Past;
use crate::history::past_numbers::PastNumbers;
use heapprof_core::Estimate;

use crate::model::amount::Amount;
use crate::model::metric::{Metric, Numbers};
use crate::model::pace::Pace;
use crate::model::profile::Profile;
use crate::model::quantity::{Bytes, Count};

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
    /// Requested bytes on resident pages, of blocks in use at a reading of pages.
    Resident,
    /// Requested bytes on pages that are swapped out.
    Swapped,
    /// Requested bytes on pages that were never touched, or were given back.
    Untouched,
    /// Free bytes of slabs that blocks in use keep from being given back.
    Pinned,
    /// Bytes a second by which bytes in use grew.
    GrowthBytes,
    /// Blocks a second.
    GrowthObjects,
    /// Bytes of the program's mappings, in place of blocks.
    Mapped,
    /// Resident bytes of the program's mappings.
    MappedResident,
    /// How long blocks live: not a sum, but a distribution.
    Lifetime,
}

impl Default for Measure {
    fn default() -> Self {
        Measure::Basic(Metric::default())
    }
}

impl From<Metric> for Measure {
    fn from(metric: Metric) -> Self {
        Measure::Basic(metric)
    }
}

impl Measure {
    /// All, in the order in which people are offered them.
    pub const ALL: [Measure; 20] = [
        Measure::Basic(Metric::InUseBytes),
        Measure::Basic(Metric::InUseObjects),
        Measure::Basic(Metric::AllocatedBytes),
        Measure::Basic(Metric::AllocatedObjects),
        Measure::PeakBytes,
        Measure::PeakObjects,
        Measure::TemporaryBytes,
        Measure::TemporaryObjects,
        Measure::HeaptimeBytes,
        Measure::HeaptimeObjects,
        Measure::Slack,
        Measure::Resident,
        Measure::Swapped,
        Measure::Untouched,
        Measure::Pinned,
        Measure::GrowthBytes,
        Measure::GrowthObjects,
        Measure::Mapped,
        Measure::MappedResident,
        Measure::Lifetime,
    ];

    /// Those of blocks, in the same order: of a log that grows, neither mappings nor pages are
    /// followed.
    pub const OF_BLOCKS: [Measure; 14] = [
        Measure::Basic(Metric::InUseBytes),
        Measure::Basic(Metric::InUseObjects),
        Measure::Basic(Metric::AllocatedBytes),
        Measure::Basic(Metric::AllocatedObjects),
        Measure::PeakBytes,
        Measure::PeakObjects,
        Measure::TemporaryBytes,
        Measure::TemporaryObjects,
        Measure::HeaptimeBytes,
        Measure::HeaptimeObjects,
        Measure::Slack,
        Measure::GrowthBytes,
        Measure::GrowthObjects,
        Measure::Lifetime,
    ];

    /// Those of the past that are sums, in the order in which pprof profiles list them behind the
    /// four.
    pub const SUMS: [Measure; 9] = [
        Measure::PeakObjects,
        Measure::PeakBytes,
        Measure::TemporaryObjects,
        Measure::TemporaryBytes,
        Measure::HeaptimeObjects,
        Measure::HeaptimeBytes,
        Measure::Slack,
        Measure::GrowthObjects,
        Measure::GrowthBytes,
    ];

    /// Those of the pages of blocks, in the order in which pprof profiles list them.
    pub const OF_PAGES: [Measure; 4] = [
        Measure::Resident,
        Measure::Swapped,
        Measure::Untouched,
        Measure::Pinned,
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
            Measure::Resident => "resident",
            Measure::Swapped => "swapped",
            Measure::Untouched => "untouched",
            Measure::Pinned => "pinned",
            Measure::GrowthBytes => "growth",
            Measure::GrowthObjects => "growth-objects",
            Measure::Mapped => "mapped",
            Measure::MappedResident => "mapped-resident",
            Measure::Lifetime => "lifetime",
        }
    }

    /// The unit of its amounts.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Basic(metric) => metric.unit(),
            Measure::PeakBytes | Measure::TemporaryBytes | Measure::Slack => "bytes",
            Measure::Mapped | Measure::MappedResident => "bytes",
            Measure::Resident | Measure::Swapped | Measure::Untouched | Measure::Pinned => "bytes",
            Measure::PeakObjects | Measure::TemporaryObjects => "objects",
            Measure::HeaptimeBytes => "byte-seconds",
            Measure::HeaptimeObjects => "object-seconds",
            Measure::GrowthBytes => "bytes/second",
            Measure::GrowthObjects => "objects/second",
            Measure::Lifetime => "seconds",
        }
    }

    /// Its name and unit as a sample type of pprof, whose numbers are whole: small units where a
    /// second's worth would be lost. Not smaller than byte-seconds: a month of 100 GiB fits, in
    /// milliseconds it would not.
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
            Measure::HeaptimeObjects => ("heaptime_objects", "object-milliseconds"),
            Measure::Slack => ("slack_space", "bytes"),
            Measure::Resident => ("resident_space", "bytes"),
            Measure::Swapped => ("swapped_space", "bytes"),
            Measure::Untouched => ("untouched_space", "bytes"),
            Measure::Pinned => ("pinned_space", "bytes"),
            Measure::GrowthBytes => ("growth_space", "bytes/hour"),
            Measure::GrowthObjects => ("growth_objects", "objects/hour"),
            Measure::Mapped => ("mapped_space", "bytes"),
            Measure::MappedResident => ("mapped_resident_space", "bytes"),
            Measure::Lifetime => ("lifetime", "seconds"),
        }
    }

    /// Returns true if it counts bytes, or byte-seconds.
    pub fn is_bytes(self) -> bool {
        match self {
            Measure::Basic(metric) => metric.is_bytes(),
            Measure::PeakBytes
            | Measure::TemporaryBytes
            | Measure::HeaptimeBytes
            | Measure::GrowthBytes
            | Measure::Mapped
            | Measure::MappedResident
            | Measure::Slack => true,
            measure if measure.is_of_pages() => true,
            _ => false,
        }
    }

    /// Its fellow that counts bytes, and the one that counts blocks.
    pub fn bytes_and_objects(self) -> (Measure, Measure) {
        match self {
            Measure::Basic(metric) if metric.is_in_use() => {
                (Metric::InUseBytes.into(), Metric::InUseObjects.into())
            }
            Measure::Basic(_) => (
                Metric::AllocatedBytes.into(),
                Metric::AllocatedObjects.into(),
            ),
            Measure::PeakBytes | Measure::PeakObjects => (Measure::PeakBytes, Measure::PeakObjects),
            Measure::TemporaryBytes | Measure::TemporaryObjects => {
                (Measure::TemporaryBytes, Measure::TemporaryObjects)
            }
            Measure::HeaptimeBytes | Measure::HeaptimeObjects => {
                (Measure::HeaptimeBytes, Measure::HeaptimeObjects)
            }
            Measure::GrowthBytes | Measure::GrowthObjects => {
                (Measure::GrowthBytes, Measure::GrowthObjects)
            }
            Measure::Mapped
            | Measure::MappedResident
            | Measure::Resident
            | Measure::Swapped
            | Measure::Untouched
            | Measure::Pinned => (self, Metric::InUseObjects.into()),
            Measure::Slack | Measure::Lifetime => (Measure::Slack, Metric::InUseObjects.into()),
        }
    }

    /// Its meaning, in a few words.
    pub fn explain(self) -> &'static str {
        match self {
            Measure::Basic(Metric::InUseBytes) => "bytes allocated and not freed",
            Measure::Basic(Metric::InUseObjects) => "blocks allocated and not freed",
            Measure::Basic(Metric::AllocatedBytes) => "bytes ever allocated",
            Measure::Basic(Metric::AllocatedObjects) => "blocks ever allocated",
            Measure::PeakBytes => "bytes in use when the whole program had the most",
            Measure::PeakObjects => "blocks in use at that moment",
            Measure::TemporaryBytes => "bytes freed soon after they were allocated",
            Measure::TemporaryObjects => "blocks freed soon after they were allocated",
            Measure::HeaptimeBytes => "byte-seconds: bytes in use, integrated over time",
            Measure::HeaptimeObjects => "object-seconds",
            Measure::Slack => "usable bytes beyond those requested, of blocks in use",
            Measure::Resident => "bytes of blocks in use on resident pages",
            Measure::Swapped => "bytes of blocks in use that are swapped out",
            Measure::Untouched => "bytes of blocks in use that were never touched",
            Measure::Pinned => {
                "free bytes beside blocks in use, which keep these from being given back"
            }
            Measure::GrowthBytes => "bytes a second: the slope of bytes in use over time",
            Measure::GrowthObjects => "blocks a second",
            Measure::Mapped => "bytes of the program's mappings (mmap), in place of blocks",
            Measure::MappedResident => "resident bytes of the program's mappings",
            Measure::Lifetime => "how long blocks live: median and mean, by site",
        }
    }

    /// Returns true if it is multiplied by a time.
    pub fn is_over_time(self) -> bool {
        matches!(self, Measure::HeaptimeBytes | Measure::HeaptimeObjects)
    }

    /// Returns true if it is of mappings, and not of blocks.
    pub fn is_mapped(self) -> bool {
        matches!(self, Measure::Mapped | Measure::MappedResident)
    }

    /// Returns true if it is of the pages of blocks, at a reading of pages.
    pub fn is_of_pages(self) -> bool {
        Measure::OF_PAGES.contains(&self)
    }

    /// Returns true if it is a speed, and may be negative.
    pub fn is_growth(self) -> bool {
        matches!(self, Measure::GrowthBytes | Measure::GrowthObjects)
    }

    /// Whole numbers in the unit of [`sample_type`](Self::sample_type), for the rows in their
    /// order. Rows of sums over time carry what was rounded off over to the next, so that the whole
    /// is right however small its parts are.
    pub fn whole_numbers(self, profile: &Profile) -> Vec<i64> {
        let in_unit = self.in_unit();
        let mut carried = 0.0;
        let rows = profile.rows.iter().enumerate();
        rows.map(|(index, row)| match self {
            Measure::Basic(metric) => {
                i64::try_from(Numbers::of(&row.totals).get(metric)).unwrap_or(i64::MAX)
            }
            _ => {
                let value = self.of_row(profile, index).value * in_unit;
                if !self.is_over_time() || value == 0.0 {
                    return value.round() as i64;
                }
                let whole = (value + carried).round();
                carried += value - whole;
                whole as i64
            }
        })
        .collect()
    }

    /// How many units of its sample type go to one of its own.
    pub(crate) fn in_unit(self) -> f64 {
        match self {
            Measure::GrowthBytes | Measure::GrowthObjects => 3600.0,
            Measure::HeaptimeObjects => 1000.0,
            _ => 1.0,
        }
    }

    /// The sum over all rows.
    pub fn of_all(self, profile: &Profile) -> Amount {
        let mut sum = Amount::default();
        for row in 0..profile.rows.len() {
            sum += self.of_row(profile, row);
        }
        sum
    }

    /// An amount as people read it. Growth is told per second, minute, hour or day.
    pub fn quantity(self, value: f64) -> String {
        let (per, in_it) = match self.is_growth() {
            true => Pace::of(value),
            false => Pace::SECOND,
        }
        .parts();
        self.quantity_in(value * in_it, per)
    }

    /// The same, at a pace that is given, for numbers that are to be compared.
    pub fn quantity_at(self, value: f64, pace: Pace) -> String {
        let (per, in_it) = pace.parts();
        self.quantity_in(value * in_it, per)
    }

    fn quantity_in(self, value: f64, per: &str) -> String {
        match (self.is_bytes(), self.is_over_time()) {
            (true, true) => format!("{}·s", Bytes(value)),
            (false, true) => format!("{value:.3}·s"),
            (true, false) if self.is_growth() => format!("{}/{per}", Bytes(value)),
            (false, false) if self.is_growth() => format!("{value:.1}/{per}"),
            (true, false) => Bytes(value).to_string(),
            (false, false) => Count(value.round() as u64).to_string(),
        }
    }

    /// Returns true if it needs the past.
    pub fn needs_pasts(self) -> bool {
        !matches!(self, Measure::Basic(_))
    }

    /// Returns the numbers of a past that it is made of.
    pub fn past_numbers(self) -> PastNumbers {
        let mut numbers = PastNumbers::NONE;
        match self {
            Measure::PeakBytes | Measure::PeakObjects => numbers.peak = true,
            Measure::TemporaryBytes | Measure::TemporaryObjects => numbers.temporary = true,
            Measure::HeaptimeBytes | Measure::HeaptimeObjects => numbers.heaptime = true,
            Measure::Slack => numbers.slack = true,
            Measure::GrowthBytes | Measure::GrowthObjects => numbers.growth = true,
            Measure::Lifetime => numbers.lifetimes = true,
            Measure::Basic(_) => {}
            // They are of readings.
            Measure::Resident | Measure::Swapped | Measure::Untouched | Measure::Pinned => {}
            Measure::Mapped | Measure::MappedResident => {}
        }
        numbers
    }

    /// The sum of all rows.
    pub fn total(self, profile: &Profile) -> Amount {
        let mut total = Amount::default();
        for row in 0..profile.rows.len() {
            total += self.of_row(profile, row);
        }
        total
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
            Measure::Resident => bytes(&past.pages.resident),
            Measure::Swapped => bytes(&past.pages.swapped),
            Measure::Untouched => bytes(&past.pages.untouched),
            Measure::Pinned => bytes(&past.pages.pinned),
            Measure::GrowthBytes => {
                let growth = &past.growth;
                let at_the_end = profile.rows[row].totals.in_use.bytes_f64();
                Amount::of(growth.bytes_per_second, growth.bytes_error, growth.samples)
                    .beside(growth.scale(growth.bytes_mean, at_the_end))
                    .with_left(growth.bytes_mean, at_the_end, growth.seconds)
            }
            Measure::GrowthObjects => {
                let growth = &past.growth;
                let at_the_end = profile.rows[row].totals.in_use.objects_f64();
                Amount::of(
                    growth.objects_per_second,
                    growth.objects_error,
                    growth.samples,
                )
                .beside(growth.scale(growth.objects_mean, at_the_end))
                .with_left(growth.objects_mean, at_the_end, growth.seconds)
            }
            // All mappings are recorded, and none is an estimate.
            Measure::Mapped => Amount::of(past.mapped as f64, 0.0, 1),
            Measure::MappedResident => Amount::of(past.mapped_resident as f64, 0.0, 1),
            Measure::Lifetime => Amount::default(),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use crate::history::over_time::OverTime;
    use heapprof_core::{Row, SizeClass, Totals, Weight};

    use super::*;

    /// A thousand stacks that held 40 bytes for 10 ms each: 0.4 byte-seconds.
    #[test]
    fn what_is_rounded_off_one_row_is_not_lost() {
        let mut heaptime = OverTime::default();
        heaptime.add(&Weight::of(40, 1), 10_000);
        let past = Past {
            heaptime,
            ..Past::default()
        };
        let row = |stack| Row {
            stack,
            class: SizeClass::of(40),
            totals: Totals::default(),
        };
        let profile = Profile {
            rows: (0..1000).map(row).collect(),
            pasts: vec![past; 1000],
            ..Profile::default()
        };
        let sum = |measure: Measure| measure.whole_numbers(&profile).iter().sum::<i64>();
        assert_eq!(sum(Measure::HeaptimeBytes), 400);
        assert_eq!(sum(Measure::HeaptimeObjects), 10_000);
    }

    #[test]
    fn speeds_are_told_at_a_pace_that_shows_them() {
        for (per_second, text) in [
            (2048.0, "2.0 KiB/s"),
            (-2048.0, "-2.0 KiB/s"),
            (50.0, "2.9 KiB/min"),
            (0.1, "360 B/h"),
            (0.001, "86 B/day"),
            (0.0, "0 B/day"),
        ] {
            assert_eq!(Measure::GrowthBytes.quantity(per_second), text);
        }
        assert_eq!(Measure::GrowthObjects.quantity(2.0), "120.0/min");
    }
}
