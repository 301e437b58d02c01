//! Follower: a log that grows, folded up to its last complete frame.
//!
//! Model: the file is read by position, never mapped, so a file that is truncated meanwhile is no
//! danger. [`Follower::catch_up`] reads the bytes that were appended since the last call. A frame
//! is complete or not there yet: the offset stays in front of an incomplete one.
//!
//! ```text
//!   file    [frame][frame][frame][fra      grows at the end
//!                               ^ offset   the next call begins here
//! ```
//!
//! If another file has the path (a rotation, a restart) or the file is shorter than what was read,
//! the fold begins anew. The segment of a rotated log begins with a checkpoint, which has all
//! totals and all blocks in use. Memory is needed for blocks in use, stacks and rows, and for one
//! piece of the file while it is read.
//!
//! Not here: the blocks that a forked process has from its parent. A follower does not have them;
//! `parent_log` inserts them when a whole log is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use heapprof_core::Totals;
use heapprof_format::{Counter, ReadErrorKind, Reader};

use crate::memory;
use crate::model::metric::Numbers;
use crate::model::profile::{Account, Damage, Profile};
use crate::model::run::Run;
use crate::read::fold::Fold;
use crate::regular_file::RegularFile;

/// Bytes that are read at once.
const PIECE: usize = 512 << 10;
/// A longer frame is damage: a writer's frames are far shorter, and a claimed length must not
/// decide how much memory is taken (Law 12).
const LONGEST_FRAME: usize = 8 << 20;
/// Damaged places that are kept; further ones are counted in the last one.
const MOST_DAMAGE: usize = 64;

/// A log that is followed.
#[derive(Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    /// Whether a link at the path is followed: if a user named it.
    may_be_link: bool,
    file: Option<Open>,
    /// How often another file had the path, or the file was cut.
    generation: u64,
}

/// A file that is being read, and its fold.
#[derive(Debug)]
struct Open {
    file: File,
    device: u64,
    inode: u64,
    /// Where the next frame begins, or is to begin.
    offset: u64,
    /// The length of the file at the last call.
    length: u64,
    sequence: Option<u32>,
    account: Account,
    fold: Fold,
}

/// The change that a call found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing was appended.
    Same,
    /// Records were appended.
    Grown,
    /// The fold began anew.
    Anew,
}

impl Follower {
    pub(crate) fn of(path: &Path, may_be_link: bool) -> Follower {
        Follower {
            path: path.to_owned(),
            may_be_link,
            file: None,
            generation: 0,
        }
    }

    /// Reads what was appended.
    ///
    /// # Errors
    /// If the file is gone, or its bytes are no log. The fold so far stays.
    pub(crate) fn catch_up(&mut self) -> io::Result<Step> {
        let meta = match self.may_be_link {
            true => std::fs::metadata(&self.path),
            false => std::fs::symlink_metadata(&self.path),
        }?;
        let is_same = |open: &&mut Open| {
            (open.device, open.inode) == (meta.dev(), meta.ino()) && meta.len() >= open.offset
        };
        if let Some(open) = self.file.as_mut().filter(is_same) {
            if open.length == meta.len() {
                return Ok(Step::Same);
            }
            memory::appended(meta.len() - open.length.min(meta.len()));
            open.length = meta.len();
            open.read_on()?;
            return Ok(Step::Grown);
        }
        let opened = match self.may_be_link {
            true => RegularFile::open(&self.path),
            false => RegularFile::open_itself(&self.path),
        }?;
        let mut open = Open {
            device: opened.meta().dev(),
            inode: opened.meta().ino(),
            offset: 0,
            length: opened.meta().len(),
            file: opened.into_file(),
            sequence: None,
            account: Account::default(),
            fold: Fold::new(),
        };
        open.read_on()?;
        self.file = Some(open);
        self.generation += 1;
        Ok(Step::Anew)
    }

    /// Forgets what was read: the next call reads the file from its beginning.
    pub(crate) fn forget(&mut self) {
        self.file = None;
    }

    /// Whether there is a fold.
    pub(crate) fn is_read(&self) -> bool {
        self.file.is_some()
    }

    /// Changes if the fold began anew: numbers of rows and stacks are other ones then.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The run so far.
    pub(crate) fn run(&self) -> Option<&Run> {
        Some(self.file.as_ref()?.fold.run())
    }

    /// Records so far.
    pub(crate) fn records(&self) -> u64 {
        self.file.as_ref().map_or(0, |open| open.fold.records())
    }

    /// The time since the file was last written; `None`: not known.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let modified = std::fs::metadata(&self.path).and_then(|meta| meta.modified());
        // A time that is to come is none that passed.
        Some(modified.ok()?.elapsed().unwrap_or_default())
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        self.file.as_ref().map_or(0, |open| open.length)
    }

    /// The totals with their errors.
    pub(crate) fn totals(&self) -> Totals {
        let open = self.file.as_ref();
        open.map_or_else(Totals::default, |open| open.fold.ledger().total())
    }

    /// The four totals: sums of the rounded rows, as every output states them.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut sum = Numbers::default();
        if let Some(open) = &self.file {
            for row in open.fold.ledger().rows() {
                sum += Numbers::of(&row.totals);
            }
        }
        sum
    }

    /// The profiler's own counters so far.
    pub(crate) fn counters(&self) -> Vec<(Counter, u64)> {
        let open = self.file.as_ref();
        open.map_or_else(Vec::new, |open| open.fold.counters())
    }

    /// Damaged places and missing frames so far.
    pub(crate) fn damage(&self) -> u64 {
        self.file.as_ref().map_or(0, |open| {
            open.account.damage.len() as u64 + open.account.missing_frames
        })
    }

    /// The profile so far.
    pub(crate) fn profile(&self) -> Option<Profile> {
        let open = self.file.as_ref()?;
        let mut profile = open.fold.so_far();
        profile.account.damage.clone_from(&open.account.damage);
        profile.account.missing_frames = open.account.missing_frames;
        profile.account.segments.clone_from(&open.account.segments);
        Some(profile)
    }
}

impl Open {
    /// Reads from the offset to the end of the file, in pieces.
    fn read_on(&mut self) -> io::Result<()> {
        let mut piece = Vec::new();
        let mut wanted = PIECE;
        while self.offset < self.length {
            let left = usize::try_from(self.length - self.offset).unwrap_or(usize::MAX);
            let is_last = left <= wanted;
            piece.resize(left.min(wanted), 0);
            // Shorter than said: the file was cut, which the next call finds.
            let read = read_at(&self.file, &mut piece, self.offset)?;
            piece.truncate(read);
            let is_last = is_last || read < left.min(wanted);
            let taken = self.take(&piece, is_last)?;
            self.offset += taken as u64;
            match taken {
                0 if is_last => break,
                // The frame is longer than the piece.
                0 if wanted < LONGEST_FRAME => wanted *= 2,
                0 => {
                    self.damaged(piece.len() as u64, "no intact frame in megabytes");
                    self.offset += piece.len() as u64;
                }
                _ => wanted = PIECE,
            }
        }
        Ok(())
    }

    /// Folds the complete frames of a piece. Returns how many bytes were used.
    fn take(&mut self, piece: &[u8], is_last: bool) -> io::Result<usize> {
        let mut reader = match self.offset {
            0 => match Reader::new(piece) {
                Ok(reader) => reader,
                // The first bytes of a log that is being written.
                Err(_) if is_last && heapprof_format::FILE_HEADER.starts_with(piece) => {
                    return Ok(0);
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            },
            _ => Reader::behind(self.sequence, piece),
        };
        // The offset of the frame that is being read, behind everything that was used.
        let used = loop {
            if let Some(event) = reader.next_event() {
                self.fold.event(event);
                continue;
            }
            let error = match reader.next_record() {
                Ok(Some(record)) => {
                    self.fold.record(record);
                    continue;
                }
                Ok(None) => break reader.offset(),
                Err(error) => error,
            };
            if error.kind == ReadErrorKind::TornTail {
                break error.offset;
            }
            match reader.skip_damage() {
                Some(skipped) => self.damaged_at(error.offset, skipped, &error.to_string()),
                // No intact frame follows so far. Records in front of the place are used.
                None => break error.offset,
            }
        };
        self.sequence = reader.sequence();
        self.account.missing_frames += reader.missing_frames();
        self.account.segments.extend_from_slice(reader.segments());
        Ok(usize::try_from(used).unwrap_or(piece.len()))
    }

    fn damaged(&mut self, skipped: u64, what: &str) {
        self.damaged_at(0, skipped, what);
    }

    /// Notes a damaged place of the piece at the offset.
    fn damaged_at(&mut self, within: u64, skipped: u64, what: &str) {
        let damage = &mut self.account.damage;
        if damage.len() == MOST_DAMAGE {
            damage[MOST_DAMAGE - 1].skipped += skipped;
            return;
        }
        damage.push(Damage {
            offset: self.offset + within,
            skipped,
            what: what.into(),
        });
    }
}

/// Reads up to the length of the buffer, less at the end of the file.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::log::profile_of_log;
    use heapprof_format::{Alloc, Encoder, FILE_HEADER, Free, Record, Stack, Start, WalkEnd};

    fn start() -> Record {
        Record::Start(Start {
            pid: 7,
            interval: 1,
            ..Start::default()
        })
    }

    fn alloc(id: u64) -> Record {
        Record::Alloc(Alloc {
            time_ns: id * 1000,
            thread: 0,
            id,
            stack: 1,
            size: 100 + id,
            slack: 0,
            interval: 1,
        })
    }

    fn stack() -> Record {
        Record::Stack(Stack {
            number: 1,
            frames: vec![0x1000, 0x2000],
            interrupted: Vec::new(),
            end: WalkEnd::Root,
        })
    }

    /// A log in frames: each group of records is one.
    fn frames(groups: &[Vec<Record>]) -> Vec<Vec<u8>> {
        let mut encoder = Encoder::new();
        let mut frames = vec![FILE_HEADER.to_vec()];
        for group in groups {
            group.iter().for_each(|record| encoder.record(record));
            frames.push(encoder.finish().to_vec());
        }
        frames
    }

    fn some_frames() -> Vec<Vec<u8>> {
        let mut groups = vec![vec![start(), stack()]];
        groups.extend((1..20).map(|id| {
            let free = Record::Free(Free {
                time_ns: id * 1000,
                thread: 0,
                id: id / 2,
            });
            match id % 3 {
                0 => vec![alloc(id), free],
                _ => vec![alloc(id)],
            }
        }));
        frames(&groups)
    }

    /// A log that is followed byte by byte gives the profile of the whole log, whatever the pieces.
    #[test]
    fn a_log_in_pieces_is_the_whole_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let bytes = some_frames().concat();
        for step in [1, 7, 30, 1000] {
            std::fs::write(&path, b"").unwrap();
            let mut follower = Follower::of(&path, false);
            for end in (1..bytes.len()).step_by(step).chain([bytes.len()]) {
                std::fs::write(&path, &bytes[..end]).unwrap();
                follower.catch_up().unwrap();
            }
            let whole = profile_of_log(&bytes, |_| {}).unwrap();
            let followed = follower.profile().unwrap();
            assert_eq!(followed.rows, whole.rows, "step {step}");
            assert_eq!(followed.account, whole.account, "step {step}");
            assert_eq!(follower.numbers(), whole.numbers());
            assert_eq!(follower.catch_up().unwrap(), Step::Same);
        }
    }

    #[test]
    fn damage_is_passed_and_counted_as_the_reader_of_logs_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let mut frames = some_frames();
        let last = frames[5].len() - 1;
        frames[5][last] ^= 0xff;
        frames.remove(8);
        let bytes = frames.concat();
        let cut: usize = frames[..8].iter().map(Vec::len).sum();
        let mut follower = Follower::of(&path, false);
        for end in [cut, bytes.len()] {
            std::fs::write(&path, &bytes[..end]).unwrap();
            follower.catch_up().unwrap();
        }
        let whole = profile_of_log(&bytes, |_| {}).unwrap();
        let followed = follower.profile().unwrap();
        assert_eq!((follower.damage(), followed.account.missing_frames), (3, 2));
        assert_eq!(followed.account, whole.account);
        assert_eq!(followed.rows, whole.rows);
    }

    #[test]
    fn another_file_and_a_cut_file_begin_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let frames = some_frames();
        std::fs::write(&path, frames.concat()).unwrap();
        let mut follower = Follower::of(&path, false);
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        let all = follower.numbers();
        std::fs::write(&path, frames[..4].concat()).unwrap();
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        assert!(follower.numbers().allocated_bytes < all.allocated_bytes);
        let other = folder.path().join("b");
        std::fs::write(&other, frames.concat()).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        assert_eq!((follower.numbers(), follower.generation()), (all, 3));
        std::fs::remove_file(&path).unwrap();
        assert!(follower.catch_up().is_err());
        assert_eq!(follower.numbers(), all);
    }

    #[test]
    fn a_claimed_length_takes_no_memory_and_a_foreign_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let mut bytes = frames(&[vec![start(), stack()], vec![alloc(1)]]).concat();
        bytes.extend([
            0xf8, b'h', b'p', 0xff, 0xff, 0xff, 0xff, 0x03, 0, 0, 0, 0, 9, 0, 0, 0,
        ]);
        bytes.extend(vec![7; 100]);
        std::fs::write(&path, &bytes).unwrap();
        let mut follower = Follower::of(&path, false);
        follower.catch_up().unwrap();
        assert_eq!(follower.numbers().in_use_bytes, 101);
        std::fs::write(&path, "no log at all").unwrap();
        let refused = Follower::of(&path, false).catch_up().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
