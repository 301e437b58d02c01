//! Document head: the members that the JSON of every command begins with.

use heapprof_symbolizer::Profile;
use serde::Serialize;

use crate::cli::output::heading::how_exact;

/// Flattened into each document: of which run it speaks, and how exact its numbers are.
#[derive(Serialize)]
pub(crate) struct Head<'a> {
    program: &'a str,
    pid: u32,
    pub(crate) estimator: String,
}

impl<'a> Head<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        Head {
            program: &profile.run.program,
            pid: profile.run.pid,
            estimator: how_exact(profile),
        }
    }
}
