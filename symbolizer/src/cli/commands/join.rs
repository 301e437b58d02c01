//! `heapprof join`: writes the logs of several processes as one log.

use std::path::PathBuf;

use heapprof_symbolizer::Bytes;

use crate::cli::inputs::joined::{join, write};
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::shell_quote::quoted;
use crate::cli::output::{kept_names, say};

/// Join the logs of several processes into one log
///
/// All processes of a service as if they were one: on one clock, that of the wall, and with one
/// heap. `top --at`, `--at peak`, `diff` between two moments, `timeline`, `report` and `dump` then
/// show all processes together.
/// A process that ends gives back what it has, so from its end on its blocks are in use no more;
/// those of the last to end stay in use, and those of a process whose log has no end. `timeline`
/// and `report` join several logs by themselves; `top`, `tree`, `export`, `info` and `symbolize` do
/// with --joined.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record logs (.heaplog), or bundles of logs (.tar)
    #[arg(value_name = "LOG", required = true)]
    files: Vec<PathBuf>,

    /// Write the joined log to this file; - is standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let out = Destination::of(Some(&args.output));
    out.refuse_terminal("a record log")?;
    out.refuse_input(&args.files)?;
    let mut processes = 0;
    join(&args.files, |join| {
        processes = join.processes();
        out.write(|out| write(join, out))
    })?;
    if let Some(out) = out.path() {
        kept_names::carry(&args.files, out);
        let size = std::fs::metadata(out).map_or(0, |it| it.len());
        say::note(&format_args!(
            "{}: {}, {}; next: heapprof timeline {3}; heapprof top --at peak {3}",
            out.display(),
            match processes {
                1 => "1 process".into(),
                n => format!("{n} processes"),
            },
            Bytes(size as f64),
            quoted(out)
        ));
    }
    Ok(())
}
