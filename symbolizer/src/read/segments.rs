//! Segments: the files of a log that rotates, found from any one of them and read as one log.
//!
//! ```text
//!   <base>.heaplog         the newest
//!   <base>.0007.heaplog    older ones; their order stands in them
//! ```
//!
//! Segments of the same run that follow each other without a gap, up to the newest, are mapped
//! behind each other. Each is padded to a page with zeros, which the format allows between
//! segments. So nothing is copied, and readers of a log need no special case. If the checkpoint of
//! a segment is incomplete, the process was killed while writing it: the segment before has all of
//! its content.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use heapprof_format::{Reader, Record, Start};

use crate::access::Access;
use crate::compressed::PlainFile;
use crate::regular_file::RegularFile;

const EXTENSION: &str = ".heaplog";

/// Name of the setting by which a log rotates.
const MAX_LOG: &str = "HEAPPROF_MAX_LOG";

/// Files behind each other in memory.
#[derive(Debug)]
pub(crate) struct Joined {
    start: NonNull<u8>,
    reserved: usize,
    len: usize,
}

// SAFETY: read-only memory of its own that lives until it is dropped.
unsafe impl Send for Joined {}
// SAFETY: as above; nobody writes to it.
unsafe impl Sync for Joined {}

impl Joined {
    /// The bytes of all, padding included.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `start..start + len` was mapped readable by `map`, up to the last file's last
        // byte, and stays until the drop; what holds for a file that changes meanwhile is said in
        // `RegularFile::map`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn map(files: &[(PlainFile, usize)]) -> io::Result<Joined> {
        // SAFETY: a system call without memory.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let reserved: usize = files
            .iter()
            .map(|(_, len)| len.next_multiple_of(page))
            .sum();
        // SAFETY: a new mapping wherever there is room; nothing is reachable through it yet.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let start = match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => start,
            _ => return Err(io::Error::last_os_error()),
        };
        let mut joined = Joined {
            start,
            reserved,
            len: 0,
        };
        let mut at = 0;
        for (file, len) in files {
            // SAFETY: replaces pages of the reservation above, which is ours and large enough: `at`
            // is the sum of the rounded lengths before. The kernel fills the last page's rest with
            // zeros.
            let mapped = unsafe {
                libc::mmap(
                    start.as_ptr().add(at).cast(),
                    *len,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_FIXED,
                    file.file().as_raw_fd(),
                    0,
                )
            };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            joined.len = at + len;
            at += len.next_multiple_of(page);
        }
        Ok(joined)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody can have a reference into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.reserved) };
    }
}

/// All that is kept of the log that the file at `path`, of that owner and with these bytes, is a
/// segment of. `None`: it is all there is, or no later one continues it.
///
/// Files beside it are its segments if they state its log's number, which nobody can guess, and if
/// their owner is believed.
pub(crate) fn joined(path: &Path, owner: u32, bytes: &[u8]) -> Option<Joined> {
    let opened = Segment::of(bytes)?;
    if opened.number == 1 && !opened.rotates || opened.log_number == 0 {
        return None;
    }
    let mut segments: Vec<(u32, PlainFile, usize)> = Vec::new();
    let mut numbers = HashSet::new();
    for path in candidates(path, Some(opened.number)) {
        // A link is not followed: the library makes none.
        let Ok(file) = RegularFile::open_itself(&path) else {
            continue;
        };
        if !Access::is_believed(file.meta().uid(), owner) {
            continue;
        }
        let Ok(file) = PlainFile::of(file) else {
            continue;
        };
        let Ok(map) = file.map() else { continue };
        if let Some(segment) = Segment::of(&map)
            && segment.log_number == opened.log_number
        {
            let len = map.len();
            if numbers.insert(segment.number) {
                segments.push((segment.number, file, len));
            }
        }
    }
    segments.sort_by_key(|(number, ..)| *number);
    if let [.., (before, ..), (last, file, _)] = &segments[..]
        && before + 1 == *last
    {
        let is_whole = file.map().is_ok_and(|map| is_whole(&map));
        if !is_whole {
            segments.pop();
        }
    }
    let mut first = segments.len().checked_sub(1)?;
    while first > 0 && segments[first - 1].0 + 1 == segments[first].0 {
        first -= 1;
    }
    // One from before a gap is continued by none, and is a log by itself.
    if opened.number < segments[first].0 {
        return None;
    }
    let kept: Vec<(PlainFile, usize)> = segments
        .drain(first..)
        .map(|(_, file, len)| (file, len))
        .collect();
    if kept.len() == 1 && kept[0].1 == bytes.len() {
        return None;
    }
    for (file, _) in &kept {
        Access::note(file.meta());
    }
    Joined::map(&kept).ok()
}

/// Returns the files of the log that the file at the path is a segment of, that file included, each
/// once.
pub fn segments_of(path: &Path) -> Vec<PathBuf> {
    let opened = |path: &Path| {
        let file = RegularFile::open_itself(path).ok()?;
        let (owner, place) = (file.meta().uid(), (file.meta().dev(), file.meta().ino()));
        let map = PlainFile::of(file).ok()?.map().ok()?;
        Some((Segment::of(&map)?, owner, place))
    };
    let this = opened(path).filter(|(segment, ..)| segment.log_number != 0);
    let Some((segment, owner, place)) = this else {
        return vec![path.to_owned()];
    };
    let is_other = |other: &PathBuf| {
        // `./s.heaplog` is `s.heaplog`.
        opened(other).is_some_and(|(of_other, of, at)| {
            of_other.log_number == segment.log_number
                && at != place
                && Access::is_believed(of, owner)
        })
    };
    let mut files = candidates(path, Some(segment.number));
    files.retain(|other| other == path || is_other(other));
    files
}

/// Returns true if a file is an older segment by its name, and then the name of the newest.
pub fn newest_of(name: &str) -> Option<String> {
    let (base, number) = name.strip_suffix(EXTENSION)?.rsplit_once('.')?;
    let is_number = number.len() >= 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("{base}{EXTENSION}"))
}

/// Files that may be segments of the same log as the file at the path. `number`: that of the
/// segment in it, if it may be an older one.
///
/// A name tells little: `a.1234.heaplog` is segment 1234 of `a.heaplog`, or the newest segment of
/// process 1234. The number in the file decides, so the logs of other processes are not opened.
pub(crate) fn candidates(path: &Path, number: Option<u32>) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = without_old(&name);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut paths = listed(folder, name);
    if let (Some(newest), Some(number)) = (newest_of(name), number)
        && name.ends_with(&format!(".{number:04}{EXTENSION}"))
    {
        paths.append(&mut listed(folder, &newest));
    }
    paths.push(path.to_owned()); // also under a name of another pattern
    paths.sort();
    paths.dedup();
    paths
}

/// The name of a file before a rotation that was cut off, on a file system where it takes two
/// steps.
fn without_old(name: &str) -> &str {
    let name = without_zst(name);
    name.strip_suffix(".old").unwrap_or(name)
}

/// The name of a file before `zstd` compressed it. `heapprof compress` does not change names.
pub(crate) fn without_zst(name: &str) -> &str {
    name.strip_suffix(".zst").unwrap_or(name)
}

/// The files in a folder by the log that they may be segments of. A folder of ten thousand logs is
/// listed once, and again when its content changes.
struct Listing {
    folder: PathBuf,
    changed: Option<SystemTime>,
    files_of: HashMap<String, Vec<PathBuf>>,
}

impl Listing {
    fn of(folder: &Path, changed: Option<SystemTime>) -> Listing {
        let mut files_of: HashMap<String, Vec<PathBuf>> = HashMap::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let name = without_old(&name);
            for log in [Some(name.to_owned()), newest_of(name)]
                .into_iter()
                .flatten()
            {
                files_of.entry(log).or_default().push(entry.path());
            }
        }
        Listing {
            folder: folder.to_owned(),
            changed,
            files_of,
        }
    }
}

/// The files in the folder that may be segments of that log.
fn listed(folder: &Path, log: &str) -> Vec<PathBuf> {
    static LAST: Mutex<Option<Listing>> = Mutex::new(None);
    let changed = folder.metadata().and_then(|meta| meta.modified()).ok();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |last: &Listing| last.folder == folder && last.changed == changed;
    let known = last
        .take()
        .filter(|last| changed.is_some() && is_same(last));
    let listing = last.insert(known.unwrap_or_else(|| Listing::of(folder, changed)));
    listing.files_of.get(log).cloned().unwrap_or_default()
}

struct Segment {
    /// The number that all segments of the log state.
    log_number: u64,
    number: u32,
    rotates: bool,
}

impl Segment {
    fn of(bytes: &[u8]) -> Option<Segment> {
        let mut reader = Reader::new(bytes).ok()?;
        let start: Start = match reader.next_record() {
            Ok(Some(Record::Start(start))) => start,
            _ => return None,
        };
        let number = match reader.next_record() {
            Ok(Some(Record::Checkpoint(checkpoint))) => checkpoint.segment,
            Ok(Some(_)) => 1,
            // Its beginning's beginning: which segment was to come, nobody can tell, and nothing is
            // in it.
            Ok(None) | Err(_) => return None,
        };
        Some(Segment {
            log_number: start.log_number,
            number,
            rotates: start.settings.iter().any(|(name, _)| name == MAX_LOG),
        })
    }
}

/// Returns true if the checkpoint that a segment begins with is complete.
fn is_whole(bytes: &[u8]) -> bool {
    let Ok(mut reader) = Reader::new(bytes) else {
        return false;
    };
    while let Ok(Some(record)) = reader.next_record() {
        if matches!(record, Record::CheckpointEnd { .. }) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_format::{Checkpoint, Encoder, FILE_HEADER};

    #[test]
    fn older_segments_are_told_by_their_names() {
        assert_eq!(newest_of("s.0012.heaplog").as_deref(), Some("s.heaplog"));
        assert_eq!(
            newest_of("a.b.12345.heaplog").as_deref(),
            Some("a.b.heaplog")
        );
        for other in ["s.heaplog", "s.12.heaplog", "s.0012.heap", "s.00a2.heaplog"] {
            assert_eq!(newest_of(other), None, "{other}");
        }
    }

    const LOG_NUMBER: u64 = 4711;

    /// A segment with that number, or the first bytes of one whose writer was killed.
    fn write(path: &Path, checkpoint: Option<u32>) {
        write_of(LOG_NUMBER, path, checkpoint);
    }

    fn write_of(log_number: u64, path: &Path, checkpoint: Option<u32>) {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            pid: 7,
            log_number,
            settings: vec![(MAX_LOG.into(), "1".into())],
            ..Start::default()
        }));
        if let Some(segment) = checkpoint {
            let checkpoint = Checkpoint {
                segment,
                ..Checkpoint::default()
            };
            encoder.record(&Record::Checkpoint(checkpoint));
            encoder.record(&Record::CheckpointEnd { time_ns: 0 });
        }
        let bytes = [&FILE_HEADER[..], encoder.finish()].concat();
        fs::write(path, bytes).unwrap();
    }

    /// How many bytes are kept of the log that a file of that owner is a segment of.
    fn kept(path: &Path, owner: u32) -> Option<usize> {
        let bytes = fs::read(path).unwrap();
        joined(path, owner, &bytes).map(|joined| joined.bytes().len())
    }

    /// A process's number in the name of its log is no number of a segment.
    #[test]
    fn segments_of_a_process_are_told_from_logs_of_other_processes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let owner = fs::metadata(folder.path()).unwrap().uid();
        for other in ["p.4710.heaplog", "p.12345.heaplog", "p.4711.0001.heap"] {
            write_of(1, &at(other), Some(2));
        }
        let newest = at("p.4711.heaplog");
        let all = [at("p.4711.0001.heaplog"), at("p.4711.0002.heaplog"), newest];
        for (number, path) in (1..).zip(&all) {
            write(path, Some(number));
        }
        assert_eq!(candidates(&all[2], Some(3)), all);
        assert_eq!(candidates(&all[2], None), all);
        assert_eq!(candidates(&all[0], Some(1)), all);
        let bytes = |path: &PathBuf| fs::metadata(path).unwrap().len() as usize;
        for path in &all {
            assert!(kept(path, owner).is_some_and(|kept| kept > 2 * bytes(path)));
        }
    }

    /// A file that another user, or another run, has put beside a log.
    #[test]
    fn a_segment_is_known_by_its_logs_number_and_by_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let owner = fs::metadata(folder.path()).unwrap().uid();
        write(&at("t.heaplog"), Some(3));
        assert_eq!(kept(&at("t.heaplog"), owner), None);
        // The process and the clocks are the same, and both can be guessed.
        for number in [0, LOG_NUMBER + 1] {
            write_of(number, &at("t.0002.heaplog"), Some(2));
            assert_eq!(kept(&at("t.heaplog"), owner), None);
        }
        write_of(0, &at("u.0002.heaplog"), Some(2));
        write_of(0, &at("u.heaplog"), Some(3));
        assert_eq!(kept(&at("u.heaplog"), owner), None, "none is stated");
        write(&at("t.0002.heaplog"), Some(2));
        assert!(kept(&at("t.heaplog"), owner).is_some());
        // Only root can give a file away. To its own owner it belongs; to another log it does not.
        if std::os::unix::fs::chown(at("t.0002.heaplog"), Some(12_345), None).is_ok() {
            assert_eq!(kept(&at("t.heaplog"), owner), None);
            assert!(kept(&at("t.heaplog"), 12_345).is_some());
        }
    }

    #[test]
    fn the_first_bytes_of_a_next_segment_are_none_of_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(&at("t.0002.heaplog"), Some(2));
        write(&at("t.heaplog"), Some(3));
        let owner = fs::metadata(folder.path()).unwrap().uid();
        let kept = |name: &str| kept(&at(name), owner);
        let both = kept("t.heaplog").unwrap();
        // It says no number yet, and segment 1, which has none either, was deleted long ago.
        write(&at("t.0004.heaplog"), None);
        assert_eq!(kept("t.heaplog"), Some(both));
        assert_eq!(kept("t.0004.heaplog"), None);
    }

    /// The library leaves a number out behind a gap.
    #[test]
    fn a_segment_before_a_gap_is_a_log_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(&at("t.0001.heaplog"), Some(1));
        write(&at("t.0003.heaplog"), Some(3));
        write(&at("t.heaplog"), Some(4));
        let owner = fs::metadata(folder.path()).unwrap().uid();
        let kept = |name: &str| kept(&at(name), owner);
        assert_eq!(kept("t.0001.heaplog"), None);
        let both = kept("t.heaplog");
        assert!(both.is_some() && kept("t.0003.heaplog") == both);
    }
}
