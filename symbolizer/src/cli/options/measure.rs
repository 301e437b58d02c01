//! Measure options: which number of the heap a command shows, and what counts as temporary.

use clap::builder::PossibleValue;
use heapprof_symbolizer::{By, Measure, Metric, Temporary};

use crate::cli::options::quantity::time;
use crate::cli::output::failure::Failure;

/// Options that say which blocks count as temporary.
#[derive(Debug, clap::Args)]
pub(crate) struct TemporaryArgs {
    /// Count blocks as temporary that are freed within this time [default: 10ms, unless
    /// --within-allocations is given]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    within: Option<u64>,

    /// Count blocks as temporary that are freed before their thread's next N allocations; 1: before
    /// the next one. When sampled, they are estimated by the thread's samples in between
    #[arg(long, value_name = "N", value_parser = allocations, allow_negative_numbers = true)]
    within_allocations: Option<u64>,
}

/// Temporary blocks, if nothing else is said.
pub(crate) const DEFAULT_TEMPORARY: Temporary = Temporary {
    within_ns: Some(10_000_000),
    before_allocations: None,
};

impl TemporaryArgs {
    /// Refuses what would change nothing: a word on what is temporary where `measure` is something
    /// else.
    pub(crate) fn refuse_beside(&self, measure: Measure) -> Result<(), Failure> {
        let is_temporary = matches!(measure, Measure::TemporaryBytes | Measure::TemporaryObjects);
        let given = match (self.within, self.within_allocations) {
            (Some(_), _) => "--within",
            (None, Some(_)) => "--within-allocations",
            (None, None) => return Ok(()),
        };
        if is_temporary {
            return Ok(());
        }
        Err(Failure::Senseless(format!(
            "{given} says what is temporary, and {measure} is asked for; add -m temporary or -m temporary-objects"
        )))
    }

    pub(crate) fn temporary(&self) -> Temporary {
        Temporary {
            within_ns: match self.within_allocations {
                None => self.within.or(DEFAULT_TEMPORARY.within_ns),
                Some(_) => self.within,
            },
            before_allocations: self.within_allocations,
        }
    }
}

fn allocations(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|&n| n > 0);
    number.ok_or_else(|| "a whole number, 1 or more, and less than 2^64".into())
}

/// All measures, as clap wants them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasureArg(pub(crate) Measure);

impl clap::ValueEnum for MeasureArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [MeasureArg; Measure::ALL.len()] = {
            let mut all = [MeasureArg(Measure::Lifetime); Measure::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = MeasureArg(Measure::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Measure::TemporaryBytes => {
                "bytes freed soon after they were allocated (--within, --within-allocations)"
            }
            measure => measure.explain(),
        };
        let value = PossibleValue::new(self.0.name()).help(help);
        Some(value.aliases(other_names(self.0)))
    }
}

/// Other names that people type: those of pprof's sample types, and shorter ones.
fn other_names(measure: Measure) -> &'static [&'static str] {
    match measure {
        Measure::Basic(Metric::InUseBytes) => &[
            "in-use",
            "in_use",
            "inuse",
            "in_use_bytes",
            "inuse-bytes",
            "inuse_bytes",
            "inuse-space",
            "inuse_space",
            "live",
            "live-bytes",
            "bytes",
        ],
        Measure::Basic(Metric::InUseObjects) => &[
            "in-use-blocks",
            "in_use_objects",
            "inuse-objects",
            "inuse_objects",
            "live-objects",
            "objects",
            "blocks",
        ],
        Measure::Basic(Metric::AllocatedBytes) => &[
            "allocated",
            "alloc",
            "allocated_bytes",
            "alloc-bytes",
            "alloc_bytes",
            "alloc-space",
            "alloc_space",
        ],
        Measure::Basic(Metric::AllocatedObjects) => &[
            "allocations",
            "allocs",
            "allocated-blocks",
            "allocated_objects",
            "alloc-objects",
            "alloc_objects",
        ],
        Measure::PeakBytes => &["peak-bytes", "peak_bytes", "peak_space"],
        Measure::PeakObjects => &["peak-blocks", "peak_objects"],
        Measure::TemporaryBytes => &["temporary-bytes", "temporary_bytes", "temporary_space"],
        Measure::TemporaryObjects => &["temporary-blocks", "temporary_objects"],
        Measure::HeaptimeBytes => &["heaptime-bytes", "heaptime_bytes", "heaptime_space"],
        Measure::HeaptimeObjects => &["heaptime-blocks", "heaptime_objects"],
        Measure::Slack => &["slack-bytes", "slack_bytes", "slack_space"],
        Measure::Resident => &["resident-bytes", "resident_bytes", "resident_space"],
        Measure::Swapped => &["swapped-bytes", "swapped_bytes", "swapped_space"],
        Measure::Untouched => &["untouched-bytes", "untouched_bytes", "untouched_space"],
        Measure::Pinned => &["pinned-bytes", "pinned_bytes", "pinned_space"],
        Measure::GrowthBytes => &["growth-bytes", "growth_bytes", "growth_space"],
        Measure::GrowthObjects => &["growth-blocks", "growth_objects"],
        Measure::Mapped => &["mapped-bytes", "mapped_bytes", "mapped_space"],
        Measure::MappedResident => &["mapped_resident", "mapped_resident_space"],
        Measure::Lifetime => &["lifetimes"],
    }
}

/// Those that are sums, which can be exported and compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SumArg(pub(crate) Measure);

impl clap::ValueEnum for SumArg {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: std::sync::LazyLock<Vec<SumArg>> = std::sync::LazyLock::new(|| {
            let measures = MeasureArg::value_variants().iter();
            let sums = measures.filter(|arg| arg.0 != Measure::Lifetime);
            sums.map(|arg| SumArg(arg.0)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        MeasureArg(self.0).to_possible_value()
    }
}

/// Says that a metric is not kept by a group, and what shows nearly the same.
pub(crate) fn not_known_by(measure: Measure, by: By) -> String {
    let instead = match measure {
        Measure::PeakBytes | Measure::PeakObjects => {
            ", or show what was in use at the peak: --at peak"
        }
        _ => "",
    };
    format!("--metric {measure} is not known by {by}; leave out one of them{instead}")
}
