//! Kept names: writes the file beside a log that keeps the names of its addresses.
//!
//! It is written if names are found that it lacks, and only beside logs of the user who asks. It
//! grants no more than the log, takes the old file's place by one rename, and goes through no link.
//! If it cannot be written, the command goes on, and says so only with HEAPPROF_VERBOSE=1.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapprof_symbolizer::resolve::{KeptFile, KeptNames};
use heapprof_symbolizer::{Input, LoadedModule, Profile, Symbols};

use crate::cli::output::partial_file::Unfinished;
use crate::cli::output::say;

/// Keeps the names of the profile beside each of the logs that it was read from. `known` is what is
/// kept already.
pub(crate) fn keep(
    files: &[PathBuf],
    profile: &Profile,
    symbols: &Symbols,
    known: &[Arc<KeptFile>],
) {
    let mut names = KeptNames::default();
    for file in known {
        names.merge(&file.names);
    }
    let is_more = symbols.keep_in(profile, &mut names);
    let paths: Vec<PathBuf> = files.iter().filter_map(|file| place(file)).collect();
    let is_missing = paths.iter().any(|path| !path.exists());
    if !is_more && !is_missing {
        return;
    }
    // Names of other builds may be there, say after --overwrite.
    let of_profile: Vec<_> = (profile.modules.iter())
        .filter_map(LoadedModule::key)
        .collect();
    names.retain(|key| of_profile.contains(key));
    let Some((first, others)) = paths.split_first() else {
        return;
    };
    if names.is_empty() {
        return;
    }
    let bytes = names.encode();
    let written = write(&bytes, first).and_then(|()| share(&bytes, first, others));
    tell(first, written);
}

/// Keeps the names of the files also beside the log that was joined from these.
pub(crate) fn carry(files: &[PathBuf], joined: &Path) {
    let mut names = KeptNames::default();
    for file in files {
        let kept = Input::open_alone(file).ok().and_then(|it| it.kept_names());
        if let Some(kept) = kept {
            names.merge(&kept.names);
        }
    }
    if let Some(path) = place(joined).filter(|_| !names.is_empty()) {
        tell(&path, write(&names.encode(), &path));
    }
}

/// Says why names are not kept, if the user wants to hear it.
fn tell(path: &Path, written: io::Result<()>) {
    if let (Err(error), true) = (written, is_verbose()) {
        say::note(&format_args!(
            "note: the names are not kept in {}: {error}",
            path.display()
        ));
    }
}

/// Returns true if the user wants to hear of what he need not know.
fn is_verbose() -> bool {
    std::env::var_os("HEAPPROF_VERBOSE").is_some_and(|value| value == "1")
}

/// Where the names of that file are kept; `None`: nowhere.
fn place(file: &Path) -> Option<PathBuf> {
    let input = Input::open_alone(file).ok()?;
    let path = input.names_path()?;
    if input.is_own() {
        return Some(path);
    }
    if is_verbose() {
        say::note(&format_args!(
            "note: the names are not kept in {}: the log belongs to another user",
            path.display()
        ));
    }
    None
}

fn write(bytes: &[u8], path: &Path) -> io::Result<()> {
    let unfinished = Unfinished::beside(path)?;
    unfinished.file().write_all(bytes)?;
    unfinished.replace(path)
}

/// Gives the file the names of the others, too: the logs of one run have most names in common.
fn share(bytes: &[u8], first: &Path, others: &[PathBuf]) -> io::Result<()> {
    for other in others {
        match fs::remove_file(other) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // In another file system, and where there are no links, each has a file of its own.
        if fs::hard_link(first, other).is_err() {
            write(bytes, other)?;
        }
    }
    Ok(())
}
