//! Time options: which part of a run a command shows.

use heapprof_symbolizer::{Moment, View};

use crate::cli::options::age::Age;

/// Moments are `12.5`, `12.5s`, `300ms`, `2m` after the start, `50%` of the run, `10:00:00` or
/// `2026-11-21T10:00:00Z` (UTC), `start`, `end`, `peak`, `peak-rss`, `peak near 26s`, or a marker's
/// name or words of it.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TimeArgs {
    /// The heap at a moment: 12.5s, 300ms, 2m, 50%, 10:00:00, 2026-11-21T10:00:00Z, start, end,
    /// peak, peak-rss, "peak near 26s", or a marker's name (NAME#2: the second). Needs a .heaplog
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true, conflicts_with_all = ["from", "to"], help_heading = "When")]
    at: Option<String>,

    /// Keep only what was allocated after this moment [default: start]; "in use" is then what of it
    /// was still there at the window's end
    #[arg(
        long,
        value_name = "MOMENT",
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    from: Option<String>,

    /// Keep only what was allocated up to this moment [default: end]
    #[arg(
        long,
        value_name = "MOMENT",
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    to: Option<String>,

    #[command(flatten)]
    pub(crate) age: Age,
}

impl TimeArgs {
    /// The view that was asked for.
    pub(crate) fn view(&self) -> View {
        match (&self.at, &self.from, &self.to) {
            (Some(at), ..) => self.age.at(at.as_str().into()),
            (None, None, None) if self.age.is_any() => View::Whole,
            (None, None, None) => self.age.at(Moment::End),
            (None, from, to) => View::Window(
                from.as_deref().map_or(Moment::Start, Moment::from),
                to.as_deref().map_or(Moment::End, Moment::from),
            ),
        }
    }
}
