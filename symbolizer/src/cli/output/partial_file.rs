//! Partial file: a file that is being written, and gets its name when it is complete.
//!
//! Until then it has no name, if the kernel and the file system support that (`O_TMPFILE`): an
//! interrupt leaves no part of it. Elsewhere it is called `….PID.partial`, and an interrupt leaves
//! that. Another user can predict such a name, so it is taken only if nothing has it, not even a
//! link.
//!
//! The file grants no more than the profiles that it is made of ([`Access`]).

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::Access;

#[derive(Debug)]
pub(crate) struct Unfinished {
    file: File,
    /// The name that it has meanwhile, if it needs one.
    partial: Option<PathBuf>,
}

impl Unfinished {
    /// A new file in the folder of `path`.
    pub(crate) fn beside(path: &Path) -> io::Result<Unfinished> {
        match without_a_name(folder(path)) {
            Some(file) => {
                narrow(&file)?;
                let partial = None;
                Ok(Unfinished { file, partial })
            }
            None => Unfinished::named(path),
        }
    }

    /// A new file with a name, for file systems without unnamed files.
    fn named(path: &Path) -> io::Result<Unfinished> {
        let new = |partial: &Path| {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create_new(true)
                .mode(mode())
                .open(partial)
        };
        let (partial, file) = first_free(path, new)?;
        let partial = Some(partial);
        let unfinished = Unfinished { file, partial };
        narrow(&unfinished.file)?;
        Ok(unfinished)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it that name, and takes the place of what was called so.
    pub(crate) fn replace(mut self, path: &Path) -> io::Result<()> {
        if self.partial.is_none() {
            // A link replaces nothing, a rename does.
            let (partial, ()) = first_free(path, |partial| link(&self.file, partial))?;
            self.partial = Some(partial);
        }
        let partial = self.partial.as_deref().unwrap_or(path);
        fs::rename(partial, path)?;
        self.partial = None;
        Ok(())
    }

    /// Gives it that name, which nothing must have: `AlreadyExists`.
    pub(crate) fn name(&self, path: &Path) -> io::Result<()> {
        match &self.partial {
            None => link(&self.file, path),
            Some(partial) => match fs::hard_link(partial, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // A file system without links. The first process to take the name has it;
                    // ours is whole.
                    File::create_new(path)?;
                    fs::rename(partial, path)
                }
                linked => linked,
            },
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
        }
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Tries names for what is unfinished until `make` finds one that nothing has.
fn first_free<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    /// More than interrupted runs leave behind.
    const MOST: u32 = 100;
    let mut number = 0;
    loop {
        let partial = partial(path, number);
        match make(&partial) {
            Ok(made) => return Ok((partial, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST => {
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn partial(path: &Path, number: u32) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    let pid = std::process::id();
    partial.push(match number {
        0 => format!(".{pid}.partial"),
        number => format!(".{pid}-{number}.partial"),
    });
    partial.into()
}

/// The permissions to ask for; the kernel takes the user's mask off them.
fn mode() -> u32 {
    // SAFETY: a question without arguments.
    Access::of_inputs().mode_for(unsafe { libc::getegid() })
}

/// Takes permissions off a file whose group is another than expected: that of its folder, mostly.
fn narrow(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    let mode = meta.mode() & 0o777;
    let narrowed = mode & Access::of_inputs().mode_for(meta.gid());
    if narrowed != mode {
        file.set_permissions(fs::Permissions::from_mode(narrowed))?;
    }
    Ok(())
}

/// A file without a name, if it can be given one later.
fn without_a_name(folder: &Path) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(mode())
        .open(folder)
        .ok()?;
    // Without /proc there would be no way to name it.
    fs::metadata(of_descriptor(&file)).ok()?;
    Some(file)
}

fn of_descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives a file without a name one. std's `hard_link` would link the link below /proc itself.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(of_descriptor(file))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: two strings that end with a zero and live until the call is over.
    let linked = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    match linked {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// As it is made, and as it is made where there are none without a name.
    fn both(path: &Path) -> [Unfinished; 2] {
        [
            Unfinished::named(path).unwrap(),
            Unfinished::beside(path).unwrap(),
        ]
    }

    #[test]
    fn what_is_given_up_leaves_nothing_and_what_was_there_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "before").unwrap();
        for unfinished in both(&path) {
            unfinished.file().write_all(b"half").unwrap();
            drop(unfinished);
            assert_eq!(names(folder.path()), ["x"]);
            assert_eq!(fs::read(&path).unwrap(), b"before");
        }
    }

    #[test]
    fn a_planted_link_is_never_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let target = folder.path().join("target");
        fs::write(&target, "another's").unwrap();
        std::os::unix::fs::symlink(&target, partial(&path, 0)).unwrap();
        for unfinished in both(&path) {
            unfinished.file().write_all(b"whole").unwrap();
            unfinished.replace(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"whole");
        }
        assert_eq!(fs::read(&target).unwrap(), b"another's");
        assert!(partial(&path, 0).is_symlink(), "it is not ours to remove");
    }

    #[test]
    fn a_new_name_is_nobodys_and_an_old_one_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let other = folder.path().join("y");
        fs::write(&path, "before").unwrap();
        for (i, unfinished) in both(&path).into_iter().enumerate() {
            unfinished.file().write_all(b"whole").unwrap();
            let taken = unfinished.name(&path).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
            let other = other.with_extension(i.to_string());
            unfinished.name(&other).unwrap();
            assert_eq!(fs::read(&other).unwrap(), b"whole");
        }
        for unfinished in both(&path) {
            unfinished.file().write_all(b"after").unwrap();
            unfinished.replace(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"after");
            fs::write(&path, "before").unwrap();
        }
        assert_eq!(names(folder.path()), ["x", "y.0", "y.1"]);
    }
}
