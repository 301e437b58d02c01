//! Joined logs: several logs as one.

use std::io;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{Input, Join, JoinError, ViewError};

use crate::cli::inputs::several::{Different, One, different};
use crate::cli::output::failure::Failure;
use crate::cli::output::notes::note_what_is_wrong;
use crate::cli::output::progress::Progress;

/// Joins the logs into one. `write` is called with the join, to write it.
pub(crate) fn join(
    files: &[PathBuf],
    write: impl FnOnce(Join<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Different {
        mut files,
        empty_logs,
    } = different(files)?;
    // The first is the one that the whole is named after: the one that began the others, mostly.
    files.sort_by_key(|one| one.start.map(|start| start.wall_ns));
    files.iter_mut().for_each(One::find_inherited);
    let mut join = Join::new();
    join.beside_empty(empty_logs);
    for one in &files {
        let log = one.input.log()?;
        let progress = Progress::bytes("reading", one.input.len());
        let name = one.path.display().to_string();
        let added = join.add(name, log, one.has_parent, |offset| progress.at(offset));
        progress.finish();
        let path = &one.path;
        let mut account = added.map_err(|source| match source {
            JoinError::Read(error) => one.input.view_error(ViewError::Read(error)).into(),
            other => Failure::Unfulfilled(format!("{}: {other}", path.display())),
        })?;
        one.input.note_damage(&mut account);
        note_what_is_wrong(path, &account);
    }
    write(join)
}

/// Returns the name of several logs in messages.
pub(crate) fn name_of(files: &[PathBuf]) -> PathBuf {
    let Some((first, others)) = files.split_first() else {
        return PathBuf::new();
    };
    let mut name = first.clone().into_os_string();
    if !others.is_empty() {
        name.push(format!(" and {} more", others.len()));
    }
    name.into()
}

/// The logs as one, in a file without a name; errors call it by that one.
pub(crate) fn joined(files: &[PathBuf], name: &Path) -> Result<Input, Failure> {
    let failed = |source| Failure::Temporary {
        folder: std::env::temp_dir(),
        source,
    };
    let mut file = tempfile::tempfile().map_err(failed)?;
    join(files, |join| write(join, &mut file).map_err(failed))?;
    Input::of_log(&file, name.into()).map_err(failed)
}

/// Writes a joined log.
pub(crate) fn write(join: Join<'_>, out: &mut impl io::Write) -> io::Result<()> {
    let progress = Progress::bytes("joining", join.len());
    let written = join.write(&mut io::BufWriter::new(out), |done| progress.at(done));
    progress.finish();
    written
}
