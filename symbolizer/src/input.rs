//! An input: a file of the profiled process, its kind told by its first bytes, read into a profile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use heapprof_format::{Dump, DumpError, DumpErrorKind, FILE_HEADER, FILE_HEADER_LEN, ReadError};
use memmap2::Mmap;

use crate::dump::profile_of_dump;
use crate::log::profile_of_log;
use crate::profile::Profile;

/// A file that was opened and whose kind is known.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    map: Mmap,
}

/// Why a file gives no profile. The text names file, offset, cause, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be opened or mapped.
    #[error("cannot read {path}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a folder, a pipe, a device.
    #[error("cannot read {path}: not a regular file", path = .path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// It is empty.
    #[error("{path}: offset 0: the file is empty; was the process killed before its first record?", path = .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is none of ours.
    #[error("{path}: offset 0: neither a heapprof log nor a gperftools heap dump", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is a pprof profile: what we write, not what we read.
    #[error("{path}: offset 0: a gzip file (a pprof profile?); heapprof reads .heaplog and .heap files, go tool pprof reads this", path = .path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
    },
    /// A log that cannot be read.
    #[error("{path}: offset {offset}: {source}", path = .path.display(), offset = .source.offset)]
    Log {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ReadError,
    },
    /// A dump that cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: DumpError,
    },
}

impl Input {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, or is of no kind that we know.
    pub fn open(path: &Path) -> Result<Input, InputError> {
        let open = |source| InputError::Open {
            path: path.into(),
            source,
        };
        // Asked before opening: opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(open)?.is_file() {
            return Err(InputError::NotRegular { path: path.into() });
        }
        let file = File::open(path).map_err(open)?;
        // SAFETY: the map is read-only and private, and is only ever seen as bytes, by decoders
        // that check every length and keep no validated state about them; so a writer that appends
        // or changes bytes meanwhile can make us misread, not misbehave. A file truncated under
        // us kills us by SIGBUS: an offline tool may take that risk, logs are append-only.
        let map = unsafe { Mmap::map(&file) }.map_err(open)?;
        let input = Input {
            path: path.into(),
            map,
        };
        match &input.map[..] {
            [] => Err(InputError::Empty { path: path.into() }),
            [0x1f, 0x8b, ..] => Err(InputError::Gzip { path: path.into() }),
            _ => Ok(input),
        }
    }

    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether there is nothing in it; never true, an empty file is not opened.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Whether it is a log, and not a dump.
    pub fn is_log(&self) -> bool {
        // The version is the reader's business: a newer log is a log.
        let name = &FILE_HEADER[..FILE_HEADER_LEN - 1];
        self.map.starts_with(name) || name.starts_with(&self.map[..])
    }

    /// Reads it. `progress` is told, now and then, the offset that was reached.
    ///
    /// # Errors
    /// When it is damaged beyond use.
    pub fn read(&self, progress: impl FnMut(u64)) -> Result<Profile, InputError> {
        let path = || self.path.clone();
        if self.is_log() {
            return profile_of_log(&self.map, progress).map_err(|source| InputError::Log {
                path: path(),
                source,
            });
        }
        match Dump::parse(&self.map) {
            Ok(dump) => Ok(profile_of_dump(dump)),
            Err(DumpError {
                kind: DumpErrorKind::NotADump,
                line: 1,
                ..
            }) => Err(InputError::Foreign { path: path() }),
            Err(source) => Err(InputError::Dump {
                path: path(),
                source,
            }),
        }
    }
}
