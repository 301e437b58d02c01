//! `heapprof watch`: shows a running process, or a log, in the terminal.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::watch::{Options, watch};
use heapprof_symbolizer::{Input, InputError};

use crate::cli::inputs::process::log_of_named;
use crate::cli::options::measure::{MeasureArg, TemporaryArgs};
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::colour;
use crate::cli::output::failure::Failure;

/// Watch a running process in the terminal, as top(1) does: curve, sites, rates, growth
///
/// Follows the log of the process, which pays nothing for it, and draws the screen once a second.
/// Lines are allocation sites as in `heapprof top`, with what each allocates a second, how fast it
/// grows, and whether that growth is real. Keys: ? for help, s for the metric, / to filter, Enter
/// for the callers of a site, m to mark the moment, d to dump, space to pause the view, q to quit.
/// A log that has ended is shown as it ended. Works in a terminal only: `heapprof top` is for pipes
/// and files.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The process id of a program that runs under heapprof, or a record log (.heaplog)
    #[arg(value_name = "PID|LOG")]
    source: PathBuf,

    /// The number that is shown and sorted by at first
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: MeasureArg,

    /// Show at first only sites with this text in their function, file or module
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,

    #[command(flatten)]
    temporary: TemporaryArgs,

    #[command(flatten)]
    places: SymbolArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let measure = args.metric.0;
    if measure.is_mapped() {
        return Err(Failure::Senseless(format!(
            "{measure} is of mappings, which watch does not follow; `heapprof top -m {measure}` shows them"
        )));
    }
    if measure.is_of_pages() {
        return Err(Failure::Senseless(format!(
            "{measure} is of one reading of pages, which watch does not follow; `heapprof top -m {measure}` shows it"
        )));
    }
    let (log, pid) = source(&args.source)?;
    let shown = args.source.display();
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::Unfulfilled(format!(
            "watch draws on a terminal, and standard input or output is none; `heapprof top {}` prints the same sites",
            log.display()
        )));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(Failure::Unfulfilled(format!(
            "watch cannot draw on this terminal (TERM is not set, or dumb); `heapprof top {}` prints the same sites",
            log.display()
        )));
    }
    let options = Options {
        log: log.clone(),
        pid,
        search: args.places.search_for(&log)?,
        measure: args.metric.0,
        temporary: args.temporary.temporary(),
        filter: args.filter.clone(),
        is_coloured: colour::is_on(),
    };
    watch(options).map_err(|error| Failure::Unfulfilled(format!("cannot watch {shown}: {error}")))
}

/// The log, and its process if that is named.
fn source(named: &Path) -> Result<(PathBuf, Option<u32>), Failure> {
    if let Some((log, pid)) = log_of_named(named)? {
        return Ok((log, Some(pid)));
    }
    let input = match Input::open(named) {
        // A log whose process has not had its first sample.
        Err(InputError::Empty { .. } | InputError::CutOff { .. }) => {
            return Ok((named.to_owned(), None));
        }
        input => input?,
    };
    if input.is_bundle() {
        return Err(Failure::Unfulfilled(format!(
            "{}: a bundle does not grow; `heapprof top` reads it",
            named.display()
        )));
    }
    input.log()?;
    Ok((named.to_owned(), None))
}
