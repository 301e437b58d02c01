//! Archive: a tar file whose members are read in place, mapped and never unpacked.
//!
//! A path that leads into an archive, `/x/bundle.tar/ab/cdef.debug`, names a member. So a bundle
//! can stand wherever a folder may. Members are found by the bytes of their names. No name in an
//! archive is ever a path to write to.

use std::collections::HashMap;
use std::io::Cursor;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use memmap2::Mmap;

use crate::compressed::PlainFile;
use crate::regular_file::RegularFile;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Archive {
    map: Mmap,
    members: HashMap<Vec<u8>, Range<usize>>,
}

impl Archive {
    /// The bytes of a part of it.
    pub(crate) fn data(&self, range: &Range<usize>) -> &[u8] {
        self.map.get(range.clone()).unwrap_or_default()
    }
}

/// Returns true if the bytes begin as a tar file does.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.get(257..262) == Some(b"ustar")
}

/// Names and places of its regular members, in their order, up to the first that is damaged.
pub(crate) fn members(bytes: &[u8]) -> Vec<(Vec<u8>, Range<usize>)> {
    let mut members = Vec::new();
    let mut archive = tar::Archive::new(Cursor::new(bytes));
    let Ok(entries) = archive.entries_with_seek() else {
        return members;
    };
    for entry in entries {
        let Ok(entry) = entry else { break };
        let range = entry
            .raw_file_position()
            .checked_add(entry.size())
            .map(|end| (entry.raw_file_position() as usize, end as usize));
        match range {
            Some((from, to)) if entry.header().entry_type().is_file() && to <= bytes.len() => {
                members.push((entry.path_bytes().into_owned(), from..to));
            }
            _ => {}
        }
    }
    members
}

/// The member that a path leads to, with the archive it is in.
pub(crate) fn member(path: &Path) -> Option<(Arc<Archive>, Range<usize>)> {
    let file = path.ancestors().skip(1).find(|path| path.is_file())?;
    let name = path.strip_prefix(file).ok()?.as_os_str().as_bytes();
    let archive = opened(file)?;
    let range = archive.members.get(name)?.clone();
    Some((archive, range))
}

/// Opens an archive, or takes the one that was opened before: hundreds of paths may be asked of it.
fn opened(path: &Path) -> Option<Arc<Archive>> {
    type Known = HashMap<(PathBuf, u64, Option<SystemTime>), Option<Arc<Archive>>>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let meta = path.metadata().ok()?;
    let key = (path.to_owned(), meta.len(), meta.modified().ok());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .get_or_insert_default()
        .entry(key)
        .or_insert_with(|| open(path).map(Arc::new))
        .clone()
}

fn open(path: &Path) -> Option<Archive> {
    let file = RegularFile::open(path).ok()?;
    let map = PlainFile::of(file).ok()?.map().ok()?;
    if !is_archive(&map) {
        return None;
    }
    let mut known = HashMap::new();
    for (name, range) in members(&map) {
        known.entry(name).or_insert(range);
    }
    Some(Archive {
        map,
        members: known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in [
            ("a", &b"first"[..]),
            (&"long/".repeat(50), b"second"),
            ("a", b"x"),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            let name = format!("{name}f");
            builder.append_data(&mut header, name, bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn members_are_read_where_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        std::fs::write(&path, tar()).unwrap();
        let read = |name: &str| {
            let (archive, range) = member(&path.join(name))?;
            Some(archive.data(&range).to_vec())
        };
        assert_eq!(read("af").as_deref(), Some(&b"first"[..]));
        let long = format!("{}f", "long/".repeat(50));
        assert_eq!(read(&long).as_deref(), Some(&b"second"[..]));
        assert_eq!(read("b"), None);
        assert_eq!(read("../x"), None);
        assert!(member(&folder.path().join("no.tar/a")).is_none());
    }

    #[test]
    fn no_cut_and_no_flipped_byte_makes_it_panic() {
        let tar = tar();
        for at in (0..tar.len()).step_by(3) {
            let mut flipped = tar.clone();
            flipped[at] ^= 0xff;
            for bytes in [&tar[..at], &flipped] {
                for (_, range) in members(bytes) {
                    assert!(bytes.get(range).is_some());
                }
            }
        }
    }
}
