//! Single file: its profile, or a part of it.

use std::path::Path;

use heapprof_format::ReadError;
use heapprof_symbolizer::{
    Detail, Input, LogPart, Profile, Reading, View, ViewError, note_life, profile_of_log,
};

use crate::cli::options::filter::LabelArgs;
use crate::cli::options::measure::DEFAULT_TEMPORARY;
use crate::cli::output::failure::Failure;
use crate::cli::output::notes::{note_what_is_kept, note_what_is_wrong};
use crate::cli::output::progress::Progress;

/// Reads a part of a file. Notes say what a reader should know about the file itself.
pub(crate) fn read(file: &Path, reading: &Reading) -> Result<Profile, Failure> {
    read_input(file, &Input::open(file)?, reading)
}

/// Reads a part of a file that was opened.
pub(crate) fn read_input(
    file: &Path,
    input: &Input,
    reading: &Reading,
) -> Result<Profile, Failure> {
    let progress = Progress::bytes("reading", input.len());
    let profile = input.read_part(reading, |offset| progress.at(offset));
    progress.finish();
    let profile = profile?;

    if reading.view != View::Whole || reading.pasts.is_some() {
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
    detail: Detail,
) -> Result<Profile, Failure> {
    whole_log_by(file, input, labels, |part, progress| {
        part.profile(detail, |offset| progress.at(offset))
    })
}

/// The same with pasts and courses.
pub(crate) fn whole_log_with_courses(
    file: &Path,
    input: &Input,
    labels: &LabelArgs,
    detail: Detail,
) -> Result<Profile, Failure> {
    whole_log_by(file, input, labels, |part, progress| {
        part.profile_with_courses(detail, DEFAULT_TEMPORARY, None, |offset| {
            progress.at(offset)
        })
    })
}

fn whole_log_by(
    file: &Path,
    input: &Input,
    labels: &LabelArgs,
    read: impl FnOnce(LogPart<'_>, &Progress) -> Result<Profile, ReadError>,
) -> Result<Profile, Failure> {
    let log = input.log()?;
    let progress = Progress::bytes("reading", input.len());
    let profile = read(labels.part(log), &progress);
    progress.finish();
    let mut profile = profile.map_err(|error| input.view_error(ViewError::Read(error)))?;
    note_life(&mut profile.run);
    input.note_damage(&mut profile.account);
    labels.name(&mut profile, || profile_of_log(log, |_| ()).ok());
    note_what_is_kept(file, &profile);
    note_what_is_wrong(file, &profile.account);
    Ok(profile)
}
