//! Prefix: the beginning of the paths of a run's files, as the library takes it.
//!
//! `s` leads to `s.heaplog`, `a/s` to `a/s.heaplog`. In a folder (`a/`), each process has files of
//! its own name.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::resolve::KeptNames;

use crate::cli::commands::run::records::{files, name};
use crate::cli::output::failure::Failure;

/// A prefix. See the module's text.
#[derive(Debug)]
pub(crate) struct Prefix {
    path: PathBuf,
    folder: PathBuf,
    /// The beginning of the files' names; empty: they have the names of their processes.
    stem: String,
}

impl Prefix {
    /// The prefix, split where the library splits it. It is a folder if it ends with a slash, a dot
    /// or two dots.
    pub(crate) fn of(path: &Path) -> Prefix {
        let last = path.as_os_str().as_bytes().rsplit(|&b| b == b'/').next();
        let is_folder = matches!(last, Some(b"." | b".."));
        let path = &match is_folder {
            true => path.join(""),
            false => path.to_path_buf(),
        };
        let bytes = path.as_os_str().as_bytes();
        let slash = bytes.iter().rposition(|&b| b == b'/');
        let (folder, stem) = bytes.split_at(slash.map_or(0, |slash| slash + 1));
        let folder = match folder {
            [] => Path::new("."),
            folder => Path::new(OsStr::from_bytes(folder)),
        };
        Prefix {
            path: path.into(),
            folder: folder.into(),
            stem: String::from_utf8_lossy(stem).into_owned(),
        }
    }

    /// The prefix that a user names, where the path of a folder means the folder, with or without a
    /// slash.
    pub(crate) fn named(path: &Path) -> Prefix {
        match path.is_dir() {
            true => Prefix::of(&path.join("")),
            false => Prefix::of(path),
        }
    }

    /// The prefix of the files of a program that is given none.
    pub(crate) fn none() -> Prefix {
        Prefix {
            path: PathBuf::new(),
            folder: ".".into(),
            stem: String::new(),
        }
    }

    /// Returns the prefix as the library takes it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the files, and the beginning of their names, which a folder does not
    /// have.
    pub(crate) fn place(&self) -> (&Path, &str) {
        (&self.folder, &self.stem)
    }

    /// Makes sure that a log can be made, by making a file and removing it: otherwise the program
    /// would run unrecorded. A path that is no UTF-8 is not tried: it may have the mark that
    /// gperftools sets in the environment of its children.
    pub(crate) fn try_out(&self) -> Result<(), Failure> {
        if self.path.to_str().is_none() {
            return Ok(());
        }
        let name = format!("{}.{}.heaplog-trial", self.stem, std::process::id());
        let path = self.folder.join(name);
        let made = fs::File::create_new(&path).and_then(|_| fs::remove_file(&path));
        made.map_err(|source| Failure::NoRoomForLog {
            folder: self.folder.clone(),
            is_missing: !self.folder.is_dir(),
            source,
        })
    }

    /// Makes sure that no file of an earlier run with that prefix is left: it would be taken for
    /// this run's, or this run's get another name. A prefix that is a folder names no file.
    pub(crate) fn make_way(&self, overwrite: bool) -> Result<(), Failure> {
        if self.stem.is_empty() {
            return Ok(());
        }
        let is_of_prefix = |path: &PathBuf| is_named_for(&name(path), &self.stem);
        let mut old: Vec<PathBuf> = files(&self.folder).filter(is_of_prefix).collect();
        old.sort();
        let Some(first) = old.first() else {
            return Ok(());
        };
        if !overwrite {
            return Err(Failure::Exists {
                path: first.clone(),
                more: old.len() - 1,
            });
        }
        for path in old {
            // The names that are kept of it go, too; another run needs none of them.
            let _ = fs::remove_file(self.folder.join(KeptNames::file_of(&name(&path))));
            fs::remove_file(&path).map_err(|source| Failure::Remove { path, source })?;
        }
        Ok(())
    }
}

/// Returns true for the names that the library makes of a prefix: `PREFIX.heaplog`,
/// `PREFIX_PID.heaplog`, `PREFIX_PID.PROGRAM.heaplog`, `PREFIX.NNNN.heap`,
/// `PREFIX_PID_2.NNNN.heap`, and segments of logs.
fn is_named_for(name: &str, stem: &str) -> bool {
    let Some(rest) = name.strip_prefix(stem) else {
        return false;
    };
    let (process, kind) = rest.split_once('.').unwrap_or((rest, ""));
    let mut numbers = process.split('_');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_process = numbers.next() == Some("") && numbers.all(is_number);
    let is_of_other_program = !process.is_empty();
    let is_file = match kind.rsplit_once('.') {
        None => kind == "heaplog",
        Some((_, "heaplog")) if is_of_other_program => true,
        Some((rest, "heap")) if is_of_other_program => {
            is_number(rest.rsplit('.').next().unwrap_or_default())
        }
        Some((number, ending)) => is_number(number) && matches!(ending, "heap" | "heaplog"),
    };
    is_process && is_file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_split_where_the_library_splits_it() {
        for (path, folder, stem) in [
            ("s", ".", "s"),
            ("a/s", "a/", "s"),
            ("a/", "a/", ""),
            ("/tmp", "/", "tmp"),
            ("/tmp/", "/tmp/", ""),
            ("/s", "/", "s"),
        ] {
            let prefix = Prefix::of(Path::new(path));
            assert_eq!(prefix.place(), (Path::new(folder), stem));
        }
    }

    #[test]
    fn a_folder_is_named_with_or_without_a_slash() {
        for (path, folder) in [
            ("/tmp", "/tmp/"),
            ("/tmp/", "/tmp/"),
            (".", "./"),
            ("..", "../"),
        ] {
            let prefix = Prefix::named(Path::new(path));
            assert_eq!(prefix.place(), (Path::new(folder), ""));
            assert_eq!(prefix.path(), Path::new(folder));
        }
        let file = Prefix::named(Path::new("./no-such-folder"));
        assert_eq!(file.place(), (Path::new("./"), "no-such-folder"));
    }

    #[test]
    fn the_names_of_a_prefix_are_those_that_the_library_makes() {
        for name in [
            "s.heaplog",
            "s.0001.heap",
            "s.0001.heaplog",
            "s_77.heaplog",
            "s_77_2.0001.heap",
            "s_77.sed.heaplog",
            "s_77.sed_2.heaplog",
            "s_77.s.sh.0001.heaplog",
            "s_77.s.sh.0001.heap",
        ] {
            assert!(is_named_for(name, "s"), "{name}");
        }
        for name in [
            "sx.heaplog",
            "s.x.heaplog",
            "s_x.heaplog",
            "s_77.sed.heap",
            "s_77.sed.html",
            "s_.heaplog",
            "s.x.0001.heap",
        ] {
            assert!(!is_named_for(name, "s"), "{name}");
        }
    }
}
