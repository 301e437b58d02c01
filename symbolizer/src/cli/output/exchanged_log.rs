//! Exchanged log: a log whose file gives its place to another form of the same log, compressed or
//! plain.
//!
//! The new file is written beside the old one, compared with it, and takes its name when it is
//! complete and on the disk. Until then the old one is as it was: a full disk, an interrupt or a
//! crash costs nothing. The new file has the owner, the mode and the times of the old one.

use std::fs::{self, FileTimes, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    RegularFile, UnpackError, is_compressed, is_log_file, may_grow, pack, segments_of, unpack,
};
use memmap2::Mmap;

use crate::cli::output::failure::Failure;
use crate::cli::output::partial_file::Unfinished;
use crate::cli::output::progress::Progress;

/// The form that a log is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Compressed,
    Plain,
}

/// The outcome for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// It has the other form, and these lengths before and after.
    Done { before: u64, after: u64 },
    /// It had that form.
    Same,
    /// The compressed form is no smaller: the log stays.
    NotSmaller,
}

/// Returns the files of the log at that path, the path itself included.
///
/// # Errors
/// If the path leads to no file.
pub(crate) fn files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |source| read_failed(path, source);
    let meta = path.symlink_metadata().map_err(failed)?;
    Ok(match meta.is_symlink() {
        // The link stays, and leads to the new file.
        true => segments_of(&path.canonicalize().map_err(failed)?),
        false => segments_of(path),
    })
}

/// Refuses a log that is being written: each of its files is, then. An older one that has another
/// form is not the one that its process deletes when the log rotates.
pub(crate) fn refuse_growing(files: &[PathBuf]) -> Result<(), Failure> {
    for path in files {
        let file = open(path)?;
        if may_grow(&file, path) {
            return Err(Failure::Unfulfilled(format!(
                "{} is being written: its process runs; a log is compressed when its process has ended",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Gives one file of a log that form.
pub(crate) fn exchange(path: &Path, form: Form) -> Result<Exchange, Failure> {
    let file = open(path)?;
    let old = file.map().map_err(|source| read_failed(path, source))?;
    if !is_log_file(&file) {
        return Err(Failure::Unfulfilled(format!(
            "{}: no record log, compressed or not",
            path.display()
        )));
    }
    if is_compressed(&old) == (form == Form::Compressed) {
        return Ok(Exchange::Same);
    }
    // SAFETY: a question without arguments.
    let user = unsafe { libc::geteuid() };
    if user != 0 && file.meta().uid() != user {
        return Err(Failure::Unfulfilled(format!(
            "{} belongs to another user, whose it would be no longer",
            path.display()
        )));
    }
    let failed = |source| Failure::Write {
        path: path.into(),
        source,
    };
    let unfinished = Unfinished::beside(path).map_err(failed)?;
    match form {
        Form::Compressed => {
            let written = compress(&old, &unfinished).map_err(failed)?;
            if written >= old.len() as u64 {
                return Ok(Exchange::NotSmaller);
            }
            verify(&old, &unfinished, path)?;
        }
        Form::Plain => decompress(&old, &unfinished, path)?,
    }
    take_over(&unfinished, file.meta()).map_err(failed)?;
    let after = unfinished.file().metadata().map_err(failed)?.len();
    // As it was when it was read, and nobody has begun to write to it.
    let is_same = fs::symlink_metadata(path).is_ok_and(|now| is_same(&now, file.meta()));
    if !is_same || file.is_open_to_write() == Some(true) {
        return Err(Failure::Unfulfilled(format!(
            "{} has changed while it was read: it stays as it is",
            path.display()
        )));
    }
    unfinished.replace(path).map_err(failed)?;
    let before = old.len() as u64;
    Ok(Exchange::Done { before, after })
}

fn open(path: &Path) -> Result<RegularFile, Failure> {
    RegularFile::open(path).map_err(|error| read_failed(path, error.into()))
}

fn read_failed(path: &Path, source: io::Error) -> Failure {
    let path = path.into();
    heapprof_symbolizer::InputError::Open { path, source }.into()
}

fn compress(old: &[u8], new: &Unfinished) -> io::Result<u64> {
    let progress = Progress::bytes("compressing", old.len() as u64);
    let written = pack(old, &mut new.file(), |done| progress.at(done));
    progress.finish();
    written
}

/// Makes sure that the compressed form gives the log back.
fn verify(old: &[u8], new: &Unfinished, path: &Path) -> Result<(), Failure> {
    // SAFETY: a file that has no name, or one that nobody else writes to; it is not changed while
    // it is mapped.
    let map = unsafe { Mmap::map(new.file()) }.map_err(|source| read_failed(path, source))?;
    let mut compared = Compared { left: old };
    let progress = Progress::bytes("comparing", map.len() as u64);
    let unpacked = unpack(&map, &mut compared, |done| progress.at(done));
    progress.finish();
    match unpacked {
        Ok(unpacked) if unpacked.damage.is_none() && compared.left.is_empty() => Ok(()),
        Err(error @ UnpackError::TooLarge { .. }) => Err(Failure::Unfulfilled(format!(
            "{}: compressed, {error}; it stays as it is",
            path.display()
        ))),
        _ => Err(Failure::Unfulfilled(format!(
            "{}: its compressed form does not give it back; it stays as it is",
            path.display()
        ))),
    }
}

/// Compares what is written with what is to be written.
struct Compared<'a> {
    left: &'a [u8],
}

impl Write for Compared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.strip_prefix(bytes);
        self.left = left.ok_or_else(|| io::Error::other("other bytes"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn decompress(old: &[u8], new: &Unfinished, path: &Path) -> Result<(), Failure> {
    let progress = Progress::bytes("unpacking", old.len() as u64);
    let unpacked = unpack(old, &mut new.file(), |done| progress.at(done));
    progress.finish();
    let why = match unpacked {
        Ok(unpacked) => match unpacked.damage {
            None => return Ok(()),
            // The line that stands for what is lost belongs into no log.
            Some(damage) => damage.to_string(),
        },
        Err(UnpackError::Write(source)) => {
            return Err(Failure::Write {
                path: path.into(),
                source,
            });
        }
        Err(error) => error.to_string(),
    };
    Err(Failure::Unfulfilled(format!(
        "{}: {why}; it stays compressed, and other commands read what can be read of it",
        path.display()
    )))
}

/// Gives a new file the owner, the mode and the times of the old one, and has it on the disk.
fn take_over(new: &Unfinished, old: &Metadata) -> io::Result<()> {
    let file = new.file();
    let now = file.metadata()?;
    let mut mode = old.mode() & 0o7777;
    if (now.uid(), now.gid()) != (old.uid(), old.gid())
        && fchown(file, Some(old.uid()), Some(old.gid())).is_err()
    {
        // A group that its owner is no longer in: nobody gets what that group had.
        mode &= 0o700;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    let times = FileTimes::new().set_modified(old.modified()?);
    file.set_times(times.set_accessed(old.accessed()?))?;
    file.sync_all()
}

fn is_same(now: &Metadata, then: &Metadata) -> bool {
    let of = |meta: &Metadata| {
        let modified = (meta.mtime(), meta.mtime_nsec());
        (meta.dev(), meta.ino(), meta.len(), modified)
    };
    of(now) == of(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_does_not_give_the_log_back_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let verified = |old: &[u8], new: &[u8]| {
            let unfinished = Unfinished::beside(&path).unwrap();
            pack(new, &mut unfinished.file(), |_| {}).unwrap();
            verify(old, &unfinished, &path).map_err(|error| error.to_string())
        };
        assert_eq!(verified(b"log", b"log"), Ok(()));
        for other in [&b"lo"[..], b"logs", b"lag"] {
            let refused = verified(b"log", other).unwrap_err();
            assert!(refused.contains("does not give it back"), "{refused}");
        }
    }
}
