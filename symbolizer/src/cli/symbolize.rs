//! `heapprof symbolize`: the same dump, with names in it.

use std::path::PathBuf;

use heapprof_symbolizer::Symbols;
use heapprof_symbolizer::export::{Format, Options};

use crate::cli::failure::Failure;
use crate::cli::filter::FilterArgs;
use crate::cli::source::Source;
use crate::cli::{output, say};

/// Write a gperftools heap dump with function names in it
///
/// google-pprof and jeprof show such a file with names on any machine, without the program and its
/// libraries at hand. Inlined functions are included. From a .heaplog, the dump is of the log's
/// end.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    filter: FilterArgs,

    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut profile = args.source.profile()?;
    let mut symbols = args.source.symbols(&profile)?;
    args.filter.apply(&mut profile, &mut symbols);
    output::to(args.output.as_deref(), |out| {
        Format::Symbolized.write(&profile, &symbols, &Options::default(), out)
    })?;
    say_what_is_missing(&symbols);
    Ok(())
}

/// One line when names are missing; `info` tells the rest.
fn say_what_is_missing(symbols: &Symbols) {
    let (asked, unresolved) = symbols.asked_and_unnamed();
    if unresolved > 0 {
        say::note(&format_args!(
            "note: {unresolved} of {asked} addresses have no name; `heapprof info` says why"
        ));
    }
}
