//! Gate: what a script is told of a run, the limit of its memory and the path of its log.

use std::io::{self, Write};

use heapprof_symbolizer::{Input, Limit, Profile, Reading};

use crate::cli::commands::run::Args;
use crate::cli::commands::run::records::Records;
use crate::cli::inputs::joined;
use crate::cli::options::limit::Gate;
use crate::cli::options::measure::DEFAULT_TEMPORARY;
use crate::cli::output::failure::Failure;

/// Prints the path of the program's log.
pub(super) fn print_log(records: &Records) -> Result<(), Failure> {
    let Some(log) = &records.log else {
        return Err(Failure::Asked("no log was written".into()));
    };
    writeln!(io::stdout(), "{}", log.display()).map_err(Failure::Stdout)
}

/// Checks that all processes of the run together are within the limit.
pub(super) fn check(records: &Records, args: &Args, limit: Limit) -> Result<(), Failure> {
    let gate = Gate {
        limit,
        allows_inconclusive: args.allow_inconclusive,
    };
    match profile(records, args)? {
        Some(profile) => gate.check(&profile, args.metric.0),
        None => gate.cannot_judge("no log was written"),
    }
}

/// The profile of the run, of several processes as if they were one; `None`: there is no log.
fn profile(records: &Records, args: &Args) -> Result<Option<Profile>, Failure> {
    let Some(log) = &records.log else {
        return Ok(None);
    };
    let measure = args.metric.0;
    let reading = Reading {
        pasts: measure.needs_pasts().then_some(DEFAULT_TEMPORARY),
        mappings: measure.is_mapped(),
        ..Reading::default()
    };
    let mut files = vec![log.clone()];
    files.extend_from_slice(&records.of_children);
    let input = match &files[..] {
        [log] => Input::open(log)?,
        files => joined::joined(files, &joined::name_of(files))?,
    };
    Ok(Some(input.read_part(&reading, |_| {})?))
}
