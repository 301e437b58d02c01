//! Detached: what is said at the end of a recording of a process that heapprof was attached to.

use std::path::PathBuf;
use std::time::Duration;

use heapprof_format::EndReason;
use heapprof_symbolizer::attach::DetachedRecording;
use heapprof_symbolizer::{Printable, RegularFile, end_of_file};

use crate::cli::output::failure::Failure;

/// Prints the line about the end.
pub(crate) fn tell_end(pid: u32, ended: &DetachedRecording) {
    let log = match &ended.log {
        Some(log) => format!("log: {}", Printable(log)),
        None => {
            "nothing was recorded: it is a copy of a process that heapprof was attached to".into()
        }
    };
    eprintln!(
        "heapprof: detached from process {pid}; its threads were stopped for {}; {log}{}",
        milliseconds(ended.stopped),
        match ended.is_code_in_use {
            true => " (a thread is still in code of heapprof, which stays)",
            false => "",
        }
    );
}

/// Checks that the log of a recording could be written, if there is one.
///
/// # Errors
/// As [`check_log`].
pub(crate) fn check_end(pid: u32, ended: &DetachedRecording) -> Result<(), Failure> {
    (ended.log.as_deref()).map_or(Ok(()), |log| check_log(pid, log))
}

/// Checks that a log, with the path that the process sees, could be written.
///
/// # Errors
/// If it could not be, or not to its end.
pub(crate) fn check_log(pid: u32, log: &str) -> Result<(), Failure> {
    let of_process = PathBuf::from(format!("/proc/{pid}/root{log}"));
    // A process that has ended has no root.
    let paths = [of_process, PathBuf::from(log)];
    let Some(file) = paths.iter().find_map(|path| RegularFile::open(path).ok()) else {
        return Ok(());
    };
    let what = match end_of_file(&file) {
        _ if file.meta().len() == 0 => "is empty: nothing",
        Some(EndReason::LogFailed) => "is incomplete: not all",
        _ => return Ok(()),
    };
    Err(Failure::Unfulfilled(format!(
        "the log {} {what} could be written to it; is its disk full, or its size limited (ulimit -f)? Choose another folder with -o",
        Printable(log)
    )))
}

/// Returns a time in words.
pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
