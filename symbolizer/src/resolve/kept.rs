//! Kept names: the names of a log's addresses, as they were when the files of its modules were
//! there.
//!
//! ```text
//!   server.heaplog          written by the profiled process
//!   server.heaplog.names    build-id of a module ─> address ─> frames
//! ```
//!
//! A rebuild or a deployment replaces the file that gave a name. The build-id of the log's module
//! then finds the names here. The names of another build are never found, because a build-id is the
//! key. A module without a build-id has its path and its file's stamp as its key.
//!
//! The files on this machine come first: a kept name counts if they say less of an address.
//!
//! The file is believed as its log is: it belongs to the same user, to root, or to the user who
//! asks, and it is no link. Damage of any kind makes it a file without names.
//!
//! Not here: the place and the writing of the file (`cli::output::kept_names`).

mod encoding;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error_text::with_causes;
use super::frame::Frame;
use super::report::NamedParts;
use crate::access::Access;
use crate::regular_file::{OpenError, RegularFile};
use heapprof_format::FileStamp;

pub use encoding::NamesError;

/// The identity of a module's file, on any machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleKey {
    /// Its build-id.
    BuildId(Box<[u8]>),
    /// Its path, and its number, length and time of the last change.
    Stamped(Box<str>, [u64; 3]),
}

impl ModuleKey {
    /// The key of a module; `None` if nothing tells its file from others.
    pub fn of(path: &str, build_id: &[u8], stamp: Option<FileStamp>) -> Option<ModuleKey> {
        match (build_id, stamp) {
            ([], Some(it)) => {
                let stamp = [it.inode, it.size, it.modified_ns];
                let is_whole = !stamp.contains(&0) && path.len() <= encoding::LONGEST_PATH;
                is_whole.then(|| ModuleKey::Stamped(path.into(), stamp))
            }
            ([], None) => None,
            (id, _) => {
                let is_one = id.len() <= encoding::LONGEST_BUILD_ID;
                is_one.then(|| ModuleKey::BuildId(id.into()))
            }
        }
    }
}

/// Names of addresses, by module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptNames {
    modules: BTreeMap<ModuleKey, BTreeMap<u64, Box<[Frame]>>>,
}

impl KeptNames {
    /// The name of the file that keeps the names of a log, which has that name.
    pub fn file_of(log: &str) -> String {
        format!("{log}.names")
    }

    /// Adds the frames of an address, if they say more than those that are kept. Returns true if
    /// they do.
    pub fn insert(&mut self, key: &ModuleKey, svma: u64, frames: &[Frame]) -> bool {
        let known = self.frames_of(key, svma);
        if NamedParts::of(frames) <= NamedParts::of(known.unwrap_or_default()) {
            return false;
        }
        // Looked up before it is cloned: a module has thousands of addresses.
        if !self.modules.contains_key(key) {
            self.modules.insert(key.clone(), BTreeMap::new());
        }
        if let Some(module) = self.modules.get_mut(key) {
            module.insert(svma, frames.into());
        }
        true
    }

    /// Adds all names of another file.
    pub fn merge(&mut self, other: &KeptNames) {
        for (key, addresses) in &other.modules {
            for (&svma, frames) in addresses {
                self.insert(key, svma, frames);
            }
        }
    }

    /// Leaves the modules for which `is_wanted` returns true.
    pub fn retain(&mut self, is_wanted: impl Fn(&ModuleKey) -> bool) {
        self.modules.retain(|key, _| is_wanted(key));
    }

    /// The frames of an address, innermost inlined function first.
    pub fn frames_of(&self, key: &ModuleKey, svma: u64) -> Option<&[Frame]> {
        Some(self.modules.get(key)?.get(&svma)?)
    }

    /// Returns true if names of that module are kept.
    pub(super) fn have(&self, key: &ModuleKey) -> bool {
        self.modules.contains_key(key)
    }

    /// Returns how many addresses have names.
    pub fn len(&self) -> usize {
        self.modules.values().map(BTreeMap::len).sum()
    }

    /// Returns true if no address has a name.
    pub fn is_empty(&self) -> bool {
        self.modules.values().all(BTreeMap::is_empty)
    }

    /// The bytes of a file that holds them. Addresses that find no room in it are left out.
    pub fn encode(&self) -> Vec<u8> {
        encoding::encode(self)
    }

    /// The names in a file's bytes.
    ///
    /// # Errors
    /// If the bytes are not a whole file of this version.
    pub fn decode(bytes: &[u8]) -> Result<KeptNames, NamesError> {
        encoding::decode(bytes)
    }
}

/// A file of kept names that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Its path.
    pub path: PathBuf,
    /// Its names; none if it is refused.
    pub names: KeptNames,
    /// Why it is refused.
    pub refused: Option<String>,
}

impl KeptFile {
    /// Opens the file of a log that belongs to that user. `None`: there is none.
    pub fn open(path: &Path, log_owner: u32) -> Option<KeptFile> {
        let (names, refused) = match read(path, log_owner) {
            Ok(names) => (names, None),
            Err(ReadError::Missing) => return None,
            Err(ReadError::Refused(why)) => (KeptNames::default(), Some(why)),
        };
        let path = path.to_owned();
        Some(KeptFile {
            path,
            names,
            refused,
        })
    }

    /// The names in the bytes of a bundle's member, which has that path.
    pub fn of_bytes(path: PathBuf, bytes: &[u8]) -> KeptFile {
        let (names, refused) = match KeptNames::decode(bytes) {
            Ok(names) => (names, None),
            Err(why) => (KeptNames::default(), Some(why.to_string())),
        };
        KeptFile {
            path,
            names,
            refused,
        }
    }
}

enum ReadError {
    Missing,
    Refused(String),
}

fn read(path: &Path, log_owner: u32) -> Result<KeptNames, ReadError> {
    let refused = |why: String| ReadError::Refused(why);
    let file = match RegularFile::open_itself(path) {
        Ok(file) => file,
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ReadError::Missing);
        }
        Err(error) => return Err(refused(with_causes(&error))),
    };
    let owner = file.meta().uid();
    if !Access::is_believed(owner, log_owner) {
        return Err(refused(format!(
            "it belongs to user {owner}, and the log to another"
        )));
    }
    let bytes = file
        .read(encoding::LARGEST_FILE)
        .map_err(|error| refused(error.to_string()))?;
    Access::note(file.meta());
    KeptNames::decode(&bytes).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests;
