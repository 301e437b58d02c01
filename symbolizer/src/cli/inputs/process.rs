//! Process: the log of a running process, which the process is asked for.

use std::path::{Path, PathBuf};

use heapprof_symbolizer::control::Attached;

use crate::cli::options::quantity;
use crate::cli::output::failure::Failure;

/// The command by which the library takes a reading of pages with the addresses of the blocks.
pub(crate) const READ_ADDRESSES: &str = "pages addresses";

/// The log of a process, as this process reaches it. It need not be there.
///
/// # Errors
/// In words: the process does not run under heapprof, or may not be asked; and what to name
/// instead.
pub(crate) fn log_of(pid: u32) -> Result<PathBuf, String> {
    let instead = |why: String| format!("{why}; if it has a log, name the log");
    let answer = Attached::to(pid).and_then(|process| process.ask("status"));
    let answer = answer.map_err(instead)?;
    let line = answer.lines().find_map(|line| line.strip_prefix("log: "));
    let log = line.ok_or("it writes no log")?;
    let log = log
        .strip_suffix(" (incomplete: it could not be written)")
        .unwrap_or(log);
    let as_seen = PathBuf::from(log);
    if as_seen.is_relative() {
        return Ok(Path::new(&format!("/proc/{pid}/cwd")).join(as_seen));
    }
    // A container has files of its own.
    match as_seen.exists() {
        true => Ok(as_seen),
        false => Ok(PathBuf::from(format!("/proc/{pid}/root{log}"))),
    }
}

/// The same, for a reader that needs the log now.
///
/// # Errors
/// As [`log_of`], or the log is not there.
pub(crate) fn log_that_is_there(pid: u32) -> Result<PathBuf, String> {
    let log = log_of(pid)?;
    match log.is_file() {
        true => Ok(log),
        false => Err(format!(
            "its log is not here: {}; name the log",
            log.display()
        )),
    }
}

/// The log of the process whose id is named, with that id. `None`: a file is named.
///
/// # Errors
/// As [`log_that_is_there`].
pub(crate) fn log_of_named(named: &Path) -> Result<Option<(PathBuf, u32)>, Failure> {
    let is_there = named.try_exists().unwrap_or(true);
    let pid = named.to_str().and_then(|text| quantity::pid(text).ok());
    let Some(pid) = pid.filter(|_| !is_there) else {
        return Ok(None);
    };
    let log = log_that_is_there(pid).map_err(|why| Failure::Refused { pid, why })?;
    Ok(Some((log, pid)))
}
