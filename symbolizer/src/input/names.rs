//! The file of kept names that belongs to an input.
//!
//! A log has it beside itself, under its own name with `.names`; all segments of a log that rotates
//! have one. A bundle has it as a member. Other inputs have none.

use std::path::PathBuf;

use crate::input::Input;
use crate::read::segments;
use crate::resolve::{KeptFile, KeptNames, archive};

impl Input {
    /// The path of the file beside a log. `None`: it is no log, or it is reached through a process
    /// (`/proc/PID/root`), whose files are its own.
    pub fn names_path(&self) -> Option<PathBuf> {
        if self.is_bundle() || !self.is_log() || self.path.starts_with("/proc") {
            return None;
        }
        let name = segments::without_zst(self.path.file_name()?.to_str()?);
        // A process's number in a name looks like that of a segment.
        let newest =
            segments::newest_of(name).filter(|newest| self.path.with_file_name(newest).exists());
        let names = KeptNames::file_of(newest.as_deref().unwrap_or(name));
        Some(self.path.with_file_name(names))
    }

    /// Opens the names that are kept for it. `None`: there are none.
    pub fn kept_names(&self) -> Option<KeptFile> {
        if let Some((name, _)) = &self.member {
            let path = self.path.join(KeptNames::file_of(name));
            let (archive, range) = archive::member(&path)?;
            return Some(KeptFile::of_bytes(path, archive.data(&range)));
        }
        KeptFile::open(&self.names_path()?, self.owner)
    }

    /// Returns true if the log belongs to the user who asks: nobody else writes beside it.
    pub fn is_own(&self) -> bool {
        // SAFETY: a question without arguments.
        self.owner == unsafe { libc::geteuid() }
    }
}
