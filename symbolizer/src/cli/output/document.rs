//! Document head: the members that the JSON of every command begins with.

use heapprof_symbolizer::Profile;
use serde::Serialize;

use crate::cli::output::heading::describe_precision;

/// Flattened into each document: of which run it speaks, and how exact its numbers are.
#[derive(Serialize)]
pub(crate) struct Head<'a> {
    version: u32,
    program: &'a str,
    pid: u32,
    pub(crate) estimator: String,
    /// False if something is missing from the record of the run: `caveats` says what.
    pub(crate) complete: bool,
}

/// The version of the JSON documents: another number if the meaning of a key changes.
pub(crate) const VERSION: u32 = 1;

impl<'a> Head<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        Head {
            version: VERSION,
            program: &profile.run.program,
            pid: profile.run.pid,
            estimator: describe_precision(profile),
            complete: profile.is_complete(),
        }
    }
}
