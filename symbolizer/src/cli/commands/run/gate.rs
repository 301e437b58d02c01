//! Gate: the limit of a run's memory.

use heapprof_symbolizer::{Input, Limit, Measure, Profile, ReadRequest};

use crate::cli::commands::run::Args;
use crate::cli::commands::run::records::Records;
use crate::cli::commands::run::still_running::StillRunning;
use crate::cli::commands::run::unrecorded::{MostResident, Unrecorded};
use crate::cli::commands::run::unsampled::Unsampled;
use crate::cli::inputs::{joined, several};
use crate::cli::options::limit::Gate;
use crate::cli::options::measure::DEFAULT_TEMPORARY;
use crate::cli::output::failure::Failure;

/// Checks that all processes of the run together are within the limit.
pub(super) fn check(
    records: &Records,
    unsampled: &Unsampled,
    (resident, still_running): (Option<MostResident>, &StillRunning),
    (args, limit): (&Args, Limit),
) -> Result<(), Failure> {
    let gate = Gate {
        limit,
        allows_inconclusive: args.allow_inconclusive,
    };
    let Some(profile) = profile(records, unsampled, args)? else {
        return gate.cannot_judge("no log was written");
    };
    let measure = args.metric.0;
    gate.check(&profile, measure)?;
    let allowed = limit.allows(0.0);
    let unrecorded = resident.and_then(|it| it.unrecorded(&profile, &records.before));
    if let Some(unrecorded) = unrecorded.filter(|it| it.may_exceed(&profile, measure, allowed)) {
        gate.cannot_judge(&unrecorded.to_string())?;
    }
    match Unrecorded::of_large(still_running.resident) {
        Some(unrecorded) if unrecorded.may_exceed(&profile, measure, allowed) => {
            gate.cannot_judge(&still_running.to_string())
        }
        _ => Ok(()),
    }
}

/// The profile of the run; `None`: there is no log. Several processes are as one, and what a
/// process was before counts, too. But what is in use at the end is in use at each process's own
/// end: at that of the last one, the others have nothing.
fn profile(
    records: &Records,
    unsampled: &Unsampled,
    args: &Args,
) -> Result<Option<Profile>, Failure> {
    let measure = args.metric.0;
    let request = ReadRequest {
        pasts: measure.needs_pasts().then_some(DEFAULT_TEMPORARY),
        mappings: measure.is_mapped(),
        pages: measure.is_of_pages(),
        ..ReadRequest::default()
    };
    let mut files = records.kept();
    files.extend(unsampled.of_children().cloned());
    let is_in_use = matches!(measure, Measure::Basic(metric) if metric.is_in_use());
    if !is_in_use {
        files.extend(records.before.iter().cloned());
    }
    let input = match &files[..] {
        [] => return Ok(None),
        [log] => Input::open(log)?,
        files if is_in_use => return several::read(files, &request).map(Some),
        files => joined::joined(files, &joined::name_of(files))?,
    };
    Ok(Some(input.read_part(&request, |_| {})?))
}
