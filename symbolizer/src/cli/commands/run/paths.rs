//! Paths: the files that a run wrote, as a script asks for them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::Json;
use serde::Serialize;

use crate::cli::commands::run::records::{Records, dumps_of};
use crate::cli::commands::run::summary::profile;
use crate::cli::commands::run::unsampled::{Unsampled, name_of, start_of};
use crate::cli::output::document::VERSION;
use crate::cli::output::failure::Failure;

/// A choice of paths.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum PrintLog {
    /// The path of the program's log
    Program,
    /// The paths of all logs, a line each, the program's first
    All,
    /// All files, in JSON on one line
    Json,
}

/// Prints the paths behind the program's own output.
pub(super) fn print(
    what: PrintLog,
    records: &Records,
    unsampled: &Unsampled,
    status: u8,
) -> Result<(), Failure> {
    let out = &mut io::stdout();
    match what {
        PrintLog::Program => match &records.log {
            Some(log) => writeln!(out, "{}", log.display()).map_err(Failure::Stdout),
            None if records.of_children.is_empty() => {
                Err(Failure::Unfulfilled("no log was written".into()))
            }
            None => Err(Failure::Unfulfilled(
                "the program itself left no log; --print-log=all prints the others".into(),
            )),
        },
        PrintLog::All => {
            let mut logs = records.kept().into_iter().chain(records.before.clone());
            logs.try_for_each(|log| writeln!(out, "{}", log.display()))
                .map_err(Failure::Stdout)
        }
        PrintLog::Json => {
            let document = document(records, unsampled, status)?;
            Json::Compact.write(&document, out).map_err(Failure::Stdout)
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    status: u8,
    complete: bool,
    caveats: Vec<String>,
    log: Option<PathBuf>,
    processes: Vec<Process>,
    before: Vec<Process>,
    unsampled: Vec<OfProgram<'a>>,
}

/// A process, by its log.
#[derive(Serialize)]
struct Process {
    log: PathBuf,
    program: String,
    pid: u32,
    dumps: Vec<PathBuf>,
}

/// The logs without a sample of one program.
#[derive(Serialize)]
struct OfProgram<'a> {
    program: &'a str,
    logs: usize,
}

impl Process {
    fn of(log: &Path) -> Process {
        let start = start_of(log).unwrap_or_default();
        Process {
            log: log.into(),
            program: name_of(&start),
            pid: start.pid,
            dumps: dumps_of(log),
        }
    }
}

fn document<'a>(
    records: &Records,
    unsampled: &'a Unsampled,
    status: u8,
) -> Result<Document<'a>, Failure> {
    let (complete, caveats) = match profile(records, unsampled)? {
        Some(profile) => (profile.is_complete(), profile.conditions()),
        None => (false, vec!["no log was written".to_owned()]),
    };
    let of_each = |logs: &[PathBuf]| logs.iter().map(|log| Process::of(log)).collect();
    let programs = unsampled.programs().into_iter();
    Ok(Document {
        version: VERSION,
        status,
        complete,
        caveats,
        log: records.log.clone(),
        processes: of_each(&records.kept()),
        before: of_each(&records.before),
        unsampled: programs
            .map(|(program, logs)| OfProgram { program, logs })
            .collect(),
    })
}
