//! Single file: its profile, or a part of it.

use std::path::Path;

use heapprof_format::ReadError;
use heapprof_symbolizer::{
    Input, LogPart, Midway, PastNumbers, Profile, ReadRequest, View, ViewError, WantedExtras,
    note_life, profile_of_log,
};

use crate::cli::options::filter::LabelArgs;
use crate::cli::options::measure::DEFAULT_TEMPORARY;
use crate::cli::output::failure::Failure;
use crate::cli::output::notes::{note_what_is_kept, note_what_is_wrong};
use crate::cli::output::progress::Progress;

/// Reads a part of a file. Notes say what a reader should know about the file itself.
pub(crate) fn read(file: &Path, request: &ReadRequest) -> Result<Profile, Failure> {
    read_input(file, &Input::open(file)?, request)
}

/// Reads a part of a file that was opened.
pub(crate) fn read_input(
    file: &Path,
    input: &Input,
    request: &ReadRequest,
) -> Result<Profile, Failure> {
    let progress = Progress::bytes("reading", input.len());
    let profile = input.read_part(request, |offset| progress.at(offset));
    progress.finish();
    let profile = profile?;

    if request.view != View::Whole || request.pasts.is_some() {
        note_what_is_kept(file, &profile);
    }
    note_what_is_wrong(file, &profile.account);
    Ok(profile)
}

/// The whole of a log, or of its part under labels, for what is shown over time. Notes say what a
/// reader should know about the file itself.
pub(crate) fn whole_log(
    file: &Path,
    input: &Input,
    labels: &LabelArgs,
    extras: WantedExtras,
) -> Result<Profile, Failure> {
    let read = whole_log_by(file, input, labels, |part, progress| {
        let profile = part.profile(extras, |offset| progress.at(offset))?;
        Ok((profile, ()))
    });
    Ok(read?.0)
}

/// The same with courses and these numbers of pasts, and the state midway.
pub(crate) fn whole_log_with_courses<'a>(
    file: &Path,
    input: &'a Input,
    labels: &'a LabelArgs,
    extras: WantedExtras,
    numbers: PastNumbers,
) -> Result<(Profile, Midway<'a>), Failure> {
    whole_log_by(file, input, labels, |part, progress| {
        part.profile_with_courses(extras, DEFAULT_TEMPORARY, numbers, |offset| {
            progress.at(offset)
        })
    })
}

/// Reads a log by `read`, which returns another thing beside the profile.
fn whole_log_by<'a, T>(
    file: &Path,
    input: &'a Input,
    labels: &'a LabelArgs,
    read: impl FnOnce(LogPart<'a>, &Progress) -> Result<(Profile, T), ReadError>,
) -> Result<(Profile, T), Failure> {
    let log = input.log()?;
    let progress = Progress::bytes("reading", input.len());
    let read = read(labels.part(log), &progress);
    progress.finish();
    let (mut profile, other) = read.map_err(|error| input.view_error(ViewError::Read(error)))?;
    note_life(&mut profile.run);
    input.note_damage(&mut profile.account);
    labels.name(&mut profile, || profile_of_log(log, |_| ()).ok());
    note_what_is_kept(file, &profile);
    note_what_is_wrong(file, &profile.account);
    Ok((profile, other))
}
