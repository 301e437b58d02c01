//! Measure options: which number of the heap a command shows, and what counts as temporary.

use clap::builder::PossibleValue;
use heapprof_symbolizer::Measure;
use heapprof_symbolizer::Temporary;

use crate::cli::options::quantity::time;
use crate::cli::output::failure::Failure;

/// Options that say which blocks count as temporary.
#[derive(Debug, clap::Args)]
pub(crate) struct TemporaryArgs {
    /// A temporary block is one freed up to so long after it was allocated [default: 10ms, unless
    /// --within-allocations is given]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    within: Option<u64>,

    /// Or one freed before its thread's next N allocations; 1: before the next one. When sampled,
    /// they are estimated by the thread's samples in between
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
        Some(PossibleValue::new(self.0.name()).help(help))
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
