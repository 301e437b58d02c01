//! `heapprof symbolize`: writes the same dump with names in it.

use std::path::PathBuf;

use heapprof_symbolizer::export::{Format, Options};

use crate::cli::inputs::source::Source;
use crate::cli::options::filter::FilterArgs;
use crate::cli::output::coverage;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;

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

    /// Write to this file; - is standard output [default: -]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    Destination::of(args.output.as_ref()).refuse_input(&args.source.files)?;
    let mut profile = args.source.profile()?;
    let mut symbols = args.source.symbols(&profile)?;
    args.filter.apply(&mut profile, &mut symbols)?;
    Destination::of(args.output.as_ref())
        .write(|out| Format::Symbolized.write(&profile, &symbols, &Options::default(), out))?;
    coverage::say(&profile, &symbols);
    Ok(())
}
