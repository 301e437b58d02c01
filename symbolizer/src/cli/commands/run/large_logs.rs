//! Large logs: logs of a run that are compressed at its end.

use std::path::{Path, PathBuf};

use heapprof_symbolizer::Bytes;

use crate::cli::commands::run::records::Records;
use crate::cli::output::exchanged_log::{Exchange, Form, exchange, files_of, refuse_growing};
use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// The size of a file that is worth the time: about 0.1 s for a core. Most logs are smaller.
const LARGE: u64 = 16 << 20;

/// Compresses the large logs of a run. A log of a process that still runs stays as it is.
pub(super) fn compress(records: &Records, is_quiet: bool) {
    for log in records.kept().iter().chain(&records.before) {
        let files = match files_of(log) {
            Ok(files) if files.iter().any(|file| is_large(file)) => files,
            _ => continue,
        };
        if refuse_growing(&files).is_err() {
            continue;
        }
        match compress_files(&files) {
            // A log that could not be compressed is as good as before.
            Err(error) => say::note(&format_args!("note: not compressed: {}", in_words(&error))),
            Ok((0, _)) => {}
            Ok((before, after)) if !is_quiet => say::note(&format_args!(
                "compressed: {}, {} before, {} now (--no-compress leaves logs as they are)",
                log.display(),
                Bytes(before as f64),
                Bytes(after as f64)
            )),
            Ok(_) => {}
        }
    }
}

/// Returns the sums of the lengths before and after.
fn compress_files(files: &[PathBuf]) -> Result<(u64, u64), Failure> {
    let mut sums = (0, 0);
    for file in files.iter().filter(|file| is_large(file)) {
        if let Exchange::Done { before, after } = exchange(file, Form::Compressed)? {
            sums = (sums.0 + before, sums.1 + after);
        }
    }
    Ok(sums)
}

fn is_large(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.len() >= LARGE)
}

/// An error with its causes.
fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |words, cause| {
        format!("{words}: {cause}")
    })
}
