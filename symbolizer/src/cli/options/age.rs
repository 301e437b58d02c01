//! Age option: the least age of the blocks that are shown.
//!
//! A leak is old. Most blocks in use at a moment are young.

use heapprof_symbolizer::{Measure, Moment, View};

use crate::cli::options::quantity::time;
use crate::cli::output::failure::Failure;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Age {
    /// Keep only blocks that have lived for at least TIME (30s, 10m, 24h) at the end, or at --at.
    /// Leaks grow old
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, conflicts_with_all = ["from", "to"], help_heading = "When")]
    older_than: Option<u64>,
}

impl Age {
    /// Refuses a measure that is of more than what is in use.
    pub(crate) fn refuse_beside(&self, measure: Measure) -> Result<(), Failure> {
        if self.older_than.is_none() || !measure.needs_pasts() || measure.is_of_pages() {
            return Ok(());
        }
        Err(Failure::Senseless(format!(
            "--older-than shows what is in use, and {measure} is of the time before as well; leave out one of them"
        )))
    }

    /// The heap at that moment.
    pub(crate) fn at(&self, at: Moment) -> View {
        match self.older_than {
            Some(age_ns) => View::Survivors { age_ns, at },
            None => View::At(at),
        }
    }

    /// Returns true if any age will do.
    pub(crate) fn is_any(&self) -> bool {
        self.older_than.is_none()
    }
}
