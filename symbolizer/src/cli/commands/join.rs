//! `heapprof join`: the logs of several processes as one.

use std::io;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{Bytes, Input, Join, JoinError, ViewError};

use crate::cli::commands::run::quoted;
use crate::cli::inputs::several::different;
use crate::cli::inputs::source::note_what_is_wrong;
use crate::cli::output::destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::progress::Progress;
use crate::cli::output::say;

/// Join the logs of several processes into one log
///
/// All processes of a service as if they were one: on one clock, that of the wall, and with one heap. What was in use at a moment
/// (`top --at`), when the most was (`--at peak`), what came between two moments (`diff`), `timeline`, `report` and
/// `dump` are then of all of them together. A process that ends gives back what it has, so from its end on its blocks are in use no more; those
/// of the last to end stay in use, and those of a process whose log has no end. `timeline` and `report` join several logs by themselves;
/// `top`, `tree`, `export`, `info` and `symbolize` do with --joined.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record logs (.heaplog), or bundles of them (.tar)
    #[arg(value_name = "LOG", required = true)]
    files: Vec<PathBuf>,

    /// Where to write the joined log; - is standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let out = destination::file(Some(&args.output));
    destination::refuse_terminal(out, "a record log")?;
    destination::refuse_input(out, &args.files)?;
    let mut processes = 0;
    join(&args.files, |join| {
        processes = join.processes();
        destination::to(out, |out| write(join, out))
    })?;
    if let Some(out) = out {
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

/// Joins the logs into one. `write` is called with the join, to write it.
fn join(
    files: &[PathBuf],
    write: impl FnOnce(Join<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut files = different(files)?;
    // The first is the one that the whole is named after: the one that began the others, mostly.
    files.sort_by_key(|one| one.start.map(|start| start.wall_ns));
    let mut join = Join::new();
    for one in &files {
        let log = one.input.log()?;
        let progress = Progress::bytes("reading", one.input.len());
        let name = one.path.display().to_string();
        let added = join.add(name, log, one.has_parent, |offset| progress.at(offset));
        progress.finish();
        let path = &one.path;
        let account = added.map_err(|source| match source {
            JoinError::Read(error) => one.input.view_error(ViewError::Read(error)).into(),
            other => Failure::Asked(format!("{}: {other}", path.display())),
        })?;
        note_what_is_wrong(path, &account);
    }
    write(join)
}

/// What messages call several logs.
pub(crate) fn name_of(files: &[PathBuf]) -> PathBuf {
    let Some((first, others)) = files.split_first() else {
        return PathBuf::new();
    };
    let mut name = first.clone().into_os_string();
    if !others.is_empty() {
        name.push(format!(" and {} more", others.len()));
    }
    name.into()
}

/// The logs as one, in a file without a name; errors call it by that one.
pub(crate) fn joined(files: &[PathBuf], name: &Path) -> Result<Input, Failure> {
    let failed = |source| Failure::Temporary {
        folder: std::env::temp_dir(),
        source,
    };
    let mut file = tempfile::tempfile().map_err(failed)?;
    join(files, |join| write(join, &mut file).map_err(failed))?;
    Input::of_log(&file, name.into()).map_err(failed)
}

/// Writes a joined log.
fn write(join: Join<'_>, out: &mut impl io::Write) -> io::Result<()> {
    let progress = Progress::bytes("joining", join.len());
    let written = join.write(&mut io::BufWriter::new(out), |done| progress.at(done));
    progress.finish();
    written
}
