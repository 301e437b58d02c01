//! `heapprof compress`: exchanges logs for their compressed form, or back.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use heapprof_symbolizer::Bytes;

use crate::cli::output::exchanged_log::{Exchange, Form, exchange, files_of, refuse_growing};
use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// Compress logs in their places, or decompress them
///
/// A log has about a sixth of its size then, under the same name, and all commands read it as
/// before. It is a file of zstd frames, so `zstd -dc` prints the log byte for byte. `heapprof run`
/// does this by itself for large logs. A log that rotates is compressed with all of its segments. A
/// log whose process runs is refused. The old file is replaced when the new one is complete,
/// compared and on the disk.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record logs (.heaplog)
    #[arg(value_name = "LOG", required = true)]
    files: Vec<PathBuf>,

    /// Decompress
    #[arg(short, long)]
    decompress: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let form = match args.decompress {
        true => Form::Plain,
        false => Form::Compressed,
    };
    let mut code = ExitCode::SUCCESS;
    let mut fail = |error: &Failure| {
        say::error(error);
        code = ExitCode::FAILURE;
    };
    for log in &args.files {
        let files = match files(log, form) {
            Ok(files) => files,
            Err(error) => {
                fail(&error);
                continue;
            }
        };
        for file in files {
            match exchange(&file, form) {
                Ok(exchange) => show(&file, form, exchange),
                Err(error) => fail(&error),
            }
        }
    }
    code
}

/// The files of a log that may be exchanged.
fn files(log: &Path, form: Form) -> Result<Vec<PathBuf>, Failure> {
    if form == Form::Plain && log.extension().is_some_and(|it| it == "zst") {
        return Err(Failure::Unfulfilled(format!(
            "{0}: decompressed, it needs another name; `zstd -d {0}` gives it one",
            log.display()
        )));
    }
    let files = files_of(log)?;
    refuse_growing(&files)?;
    Ok(files)
}

fn show(file: &Path, form: Form, exchange: Exchange) {
    let file = file.display();
    match (exchange, form) {
        (Exchange::Done { before, after }, _) => say::note(&format_args!(
            "{file}: {} before, {} now",
            Bytes(before as f64),
            Bytes(after as f64)
        )),
        (Exchange::Same, Form::Compressed) => {
            say::note(&format_args!("{file}: compressed already"));
        }
        (Exchange::Same, Form::Plain) => say::note(&format_args!("{file}: not compressed")),
        (Exchange::NotSmaller, _) => say::note(&format_args!(
            "{file}: it cannot be made smaller, and stays as it is"
        )),
    }
}
