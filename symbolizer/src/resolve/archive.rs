//! Archive: a tar file whose members are read in place, mapped and never unpacked.
//!
//! A path that leads into an archive, `/x/bundle.tar/ab/cdef.debug`, names a member. So a bundle
//! can stand wherever a folder may. Members are found by the bytes of their names. No name in an
//! archive is ever a path to write to.

use std::collections::HashMap;
use std::fmt;
use std::io::Cursor;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use memmap2::Mmap;
use tar::Header;

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

/// Length of a header, and what the room of a member is a multiple of.
const BLOCK: usize = 512;

/// The members of an archive.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Names and places of the regular ones, in their order, up to the first that is damaged.
    pub(crate) all: Vec<(Vec<u8>, Range<usize>)>,
    /// Why there are no more; `None`: the archive's own end says so.
    pub(crate) loss: Option<Loss>,
}

/// Why members of an archive are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It ends at that offset, without an end mark.
    CutOff(usize),
    /// There is no header at that offset.
    Damaged(usize),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::CutOff(offset) => write!(f, "cut off at offset {offset}"),
            Loss::Damaged(offset) => write!(f, "damaged at offset {offset}"),
        }
    }
}

/// Returns the members of an archive.
pub(crate) fn members(bytes: &[u8]) -> Members {
    let mut members = Members::default();
    let mut archive = tar::Archive::new(Cursor::new(bytes));
    let cut = Some(Loss::CutOff(bytes.len()));
    // Where the next header is.
    let mut next = 0;
    for entry in archive.entries_with_seek().into_iter().flatten() {
        let Ok(entry) = entry else {
            members.loss = Some(loss_behind(bytes, next));
            return members;
        };
        let from = entry.raw_file_position() as usize;
        let end = |size: u64| from.checked_add(usize::try_from(size).ok()?);
        let kind = entry.header().entry_type();
        let to = match kind.is_gnu_sparse() {
            true => entry.header().entry_size().ok().and_then(end),
            false => end(entry.size()),
        };
        let Some(to) = to.filter(|&to| to <= bytes.len()) else {
            members.loss = cut;
            return members;
        };
        if kind.is_file() {
            let name = entry.path_bytes().into_owned();
            members.all.push((name, from..to));
        }
        next = to.next_multiple_of(BLOCK);
    }
    let mark = bytes.get(next..).and_then(|rest| rest.get(..BLOCK));
    if mark.is_none_or(|block| block.iter().any(|&byte| byte != 0)) {
        members.loss = cut;
    }
    members
}

/// Tells what is wrong with the member whose first header is at an offset. A long name stands in
/// front of the member's own header, as a member with a header of its own.
fn loss_behind(bytes: &[u8], mut offset: usize) -> Loss {
    while let Some(block) = bytes.get(offset..).and_then(|rest| rest.get(..BLOCK)) {
        let header = Header::from_byte_slice(block);
        let kind = header.entry_type();
        let is_in_front = kind.is_gnu_longname()
            || kind.is_gnu_longlink()
            || kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions();
        let length = header.entry_size().ok();
        let length = length.filter(|_| is_in_front && has_its_sum(block, header));
        let end = length.and_then(|length| length.checked_next_multiple_of(BLOCK as u64));
        match end.and_then(|end| (offset + BLOCK).checked_add(usize::try_from(end).ok()?)) {
            Some(end) => offset = end,
            None => return Loss::Damaged(offset),
        }
    }
    Loss::CutOff(bytes.len())
}

/// Returns true if a header has the sum of its bytes that it states, where that sum counts as
/// spaces.
fn has_its_sum(block: &[u8], header: &Header) -> bool {
    let stated = 148..156;
    let (before, behind) = (&block[..stated.start], &block[stated.end..]);
    let others = before.iter().chain(behind).map(|&byte| u32::from(byte));
    let sum = others.sum::<u32>() + u32::from(b' ') * stated.len() as u32;
    header.cksum().is_ok_and(|is| is == sum)
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
    for (name, range) in members(&map).all {
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
                for (_, range) in members(bytes).all {
                    assert!(bytes.get(range).is_some());
                }
            }
        }
    }

    /// ```text
    ///   0      512     1024 ...                        2 blocks of zeros
    ///   header "first" header of the long name ... "x" end mark
    /// ```
    #[test]
    fn a_cut_or_a_damaged_header_is_a_loss() {
        let tar = tar();
        assert_eq!(members(&tar).loss, None);
        let content = tar.len() - 2 * BLOCK;
        assert_eq!(members(&tar[..content + BLOCK]).loss, None);
        for cut in (1..content + BLOCK).step_by(100) {
            let found = members(&tar[..cut]);
            assert_eq!(found.loss, Some(Loss::CutOff(cut)));
        }
        let mut damaged = tar.clone();
        damaged[2 * BLOCK + 3] ^= 1;
        let found = members(&damaged);
        assert_eq!(found.loss, Some(Loss::Damaged(2 * BLOCK)));
        assert_eq!(found.all.len(), 1);
    }
}
