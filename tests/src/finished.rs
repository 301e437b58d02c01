//! Finished: a program that has ended, and the files that it left behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::claims::Claims;
use crate::log::{Log, notes};
use crate::named::Named;

/// A program that has ended, and the files that it left behind.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its run time.
    pub elapsed: Duration,
    /// Its process id.
    pub pid: u32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    pub(crate) shown: String,
    pub(crate) folder: Arc<TempDir>,
}

impl Finished {
    /// Returns the run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the same run, whose exit status must be 0.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    #[track_caller]
    pub fn well(self) -> Finished {
        assert!(
            self.status.success(),
            "{}: {}\nstdout: {}\nstderr: {}",
            self.shown,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Returns the exit status, or 128 plus the signal, as a shell does.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Returns the library's lines on standard error.
    pub fn said(&self) -> Vec<&str> {
        let ours = |line: &&str| line.starts_with("heapprof: ");
        self.stderr.lines().filter(ours).collect()
    }

    /// Asserts that one line of the library has all these words.
    ///
    /// # Panics
    /// If there is none, or more than one.
    #[track_caller]
    pub fn assert_said(&self, words: &[&str]) {
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        let count = self.said().into_iter().filter(has_all).count();
        assert_eq!(count, 1, "{words:?} in: {}", self.stderr);
    }

    /// Returns what the library noted in the logs of the folder.
    pub fn notes(&self) -> Vec<String> {
        let notes = |name: String| notes(&self.folder().join(name));
        self.files_ending(".heaplog")
            .into_iter()
            .flat_map(notes)
            .collect()
    }

    /// Asserts that one notice in the logs has all these words, and that standard error does not
    /// have them.
    ///
    /// # Panics
    /// If there is no such notice, or more than one.
    #[track_caller]
    pub fn assert_noted(&self, words: &[&str]) {
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        let notes = self.notes();
        let count = notes.iter().filter(|note| has_all(note)).count();
        assert_eq!(count, 1, "{words:?} in: {notes:?}");
        assert!(!self.said().into_iter().any(has_all), "{}", self.stderr);
    }

    /// Returns what the library told, in the logs or on standard error.
    pub fn library_messages(&self) -> Vec<String> {
        let said = self.said().into_iter().map(str::to_owned);
        said.chain(self.notes()).collect()
    }

    /// Returns the claims that a fixture printed.
    pub fn claims(&self) -> Claims {
        Claims::parse(&self.stdout)
    }

    /// Returns the names of the files in the folder, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).expect("the run's folder");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.expect("an entry of the run's folder");
            entry.file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// Returns the names of the files with that ending.
    pub fn files_ending(&self, end: &str) -> Vec<String> {
        let mut files = self.files();
        files.retain(|name| name.ends_with(end));
        files
    }

    /// Returns the contents of a file in the folder.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder().join(name)).unwrap_or_else(|error| {
            panic!("{name}: {error}; there are {:?}", self.files());
        })
    }

    /// Returns the path of the only log.
    ///
    /// # Panics
    /// If there is not exactly one.
    #[track_caller]
    pub fn log_path(&self) -> PathBuf {
        match &self.files_ending(".heaplog")[..] {
            [one] => self.folder().join(one),
            logs => panic!("{}: one log expected, not {logs:?}", self.shown),
        }
    }

    /// Returns the only log.
    #[track_caller]
    pub fn log(&self) -> Log {
        Log::read(&self.log_path())
    }

    /// Returns all logs by name, each readable to its end.
    ///
    /// # Panics
    /// If one is cut off.
    #[track_caller]
    pub fn logs(&self) -> BTreeMap<String, Log> {
        let read = |name: String| {
            let log = Log::read(&self.folder().join(&name)).whole();
            (name, log)
        };
        self.files_ending(".heaplog")
            .into_iter()
            .map(read)
            .collect()
    }

    /// Returns the dumps by name.
    pub fn dumps(&self) -> Vec<PathBuf> {
        let files = self.files_ending(".heap").into_iter();
        files.map(|name| self.folder().join(name)).collect()
    }

    /// Returns a log or a dump of the folder, with names.
    pub fn named(&self, name: &str) -> Named {
        Named::read(&self.folder().join(name))
    }
}
