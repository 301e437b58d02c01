//! Tail: a log file that grows, read on from where the last reading ended.
//!
//! Model: the file is read by position, never mapped, so a file that is truncated meanwhile is no
//! danger. A frame is complete or not there yet: the offset stays in front of an incomplete one.
//! If an intact frame begins within an incomplete one, the incomplete one is damaged. The records
//! of an incomplete frame that stays so are read up to the end of the file. If the file grows
//! after all, it is read anew.
//!
//! ```text
//!   file    [frame][frame][frame][fra      grows at the end
//!                               ^ offset   the next reading begins here
//! ```
//!
//! One chunk of the file is in memory while it is read.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use heapprof_format::{ReadError, ReadErrorKind, Reader, Record, SegmentStart, Start};

use crate::compressed::{Damaged, PlainFile, read_at};
use crate::model::profile::{Damage, LogAccount};
use crate::read::log::RecordSink;
use crate::regular_file::RegularFile;

/// Bytes that are read at once.
const CHUNK: usize = 512 << 10;
/// A longer frame is damage: a writer's frames are far shorter, and a claimed length must not
/// decide how much memory is taken (Law 12).
const LONGEST_FRAME: usize = 8 << 20;
/// Damaged places that are kept; further ones are counted in the last one.
const MOST_DAMAGE: usize = 64;
/// Segments that are kept.
const MOST_SEGMENTS: usize = 4096;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Tail {
    file: File,
    device: u64,
    inode: u64,
    /// The user whose file it is.
    owner: u32,
    /// Where the next frame begins, or is to begin.
    offset: u64,
    /// The length of the file, as far as it is known.
    length: u64,
    sequence: Option<u32>,
    damage: Vec<Damage>,
    missing_frames: u64,
    segments: Vec<SegmentStart>,
    /// Why the bytes behind the offset are no frame, if they are not just incomplete.
    pending: Option<ReadError>,
    /// The frame that the end of the file cuts, if its records were handed on.
    cut_frame: Option<CutFrame>,
    /// The length of the file when such a frame was last looked for.
    looked_at: u64,
    /// The file itself, if it is compressed: it does not grow.
    compressed: Option<Compressed>,
}

/// A compressed file, of which the unpacked bytes are read.
#[derive(Debug)]
struct Compressed {
    length: u64,
    modified: (i64, i64),
    damage: Option<Damaged>,
}

/// A frame that the end of the file cuts.
#[derive(Debug, Clone, Copy)]
struct CutFrame {
    /// Where it begins.
    offset: u64,
    /// The length of the file.
    length: u64,
}

impl Tail {
    /// Opens a file. `may_be_link`: whether a link at the path is followed.
    ///
    /// # Errors
    /// If it cannot be opened, or is no regular file.
    pub(crate) fn open(path: &Path, may_be_link: bool) -> io::Result<Tail> {
        let opened = match may_be_link {
            true => RegularFile::open(path),
            false => RegularFile::open_itself(path),
        }?;
        let opened = PlainFile::of(opened)?;
        let meta = opened.meta();
        Ok(Tail {
            device: meta.dev(),
            inode: meta.ino(),
            owner: meta.uid(),
            offset: 0,
            length: opened.len(),
            compressed: opened.is_compressed().then(|| Compressed {
                length: meta.len(),
                modified: (meta.mtime(), meta.mtime_nsec()),
                damage: opened.damage(),
            }),
            file: opened.into_file()?,
            sequence: None,
            damage: Vec::new(),
            missing_frames: 0,
            segments: Vec::new(),
            pending: None,
            cut_frame: None,
            looked_at: 0,
        })
    }

    /// Whether these are the metadata of this file, which was not cut, and which did not grow
    /// behind a frame that was taken for cut.
    pub(crate) fn is_of(&self, meta: &Metadata) -> bool {
        if (self.device, self.inode) != (meta.dev(), meta.ino()) {
            return false;
        }
        if let Some(file) = &self.compressed {
            let now = (meta.len(), (meta.mtime(), meta.mtime_nsec()));
            return now == (file.length, file.modified);
        }
        meta.len() >= self.offset && self.cut_frame.is_none_or(|cut| cut.length == meta.len())
    }

    /// Returns true if the records of a frame that the end of the file cuts were handed on. No
    /// others can follow.
    pub(crate) fn ends_in_frame(&self) -> bool {
        self.cut_frame.is_some()
    }

    /// Returns true if there may be a frame that the end of the file cuts.
    pub(crate) fn may_be_cut(&self) -> bool {
        let is_left = self.offset > 0 && self.length > self.offset;
        is_left && self.cut_frame.is_none() && self.looked_at != self.length
    }

    /// Hands on the records of the frame that the end of the file cuts, up to the cut. Returns true
    /// if there are some. The file must not be written any more.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn read_cut(&mut self, sink: &mut impl RecordSink) -> io::Result<bool> {
        self.looked_at = self.length;
        let left = usize::try_from(self.length - self.offset).unwrap_or(usize::MAX);
        if left > LONGEST_FRAME {
            return Ok(false);
        }
        let mut rest = vec![0; left];
        let read = read_at(&self.file, &mut rest, self.offset)?;
        rest.truncate(read);
        let mut reader = Reader::behind(self.sequence, &rest);
        if !reader.enter_cut_frame() {
            return Ok(false);
        }
        let mut has_some = false;
        let end = loop {
            if let Some(event) = reader.next_event() {
                sink.take_event(event);
            } else {
                match reader.next_record() {
                    Ok(Some(record)) => sink.take(record),
                    Ok(None) => break reader.offset(),
                    Err(error) => {
                        let offset = self.offset + error.offset;
                        let is_torn = error.kind == ReadErrorKind::TornTail;
                        self.pending = (!is_torn).then_some(ReadError { offset, ..error });
                        break offset - self.offset;
                    }
                }
            }
            has_some = true;
        };
        if has_some {
            self.cut_frame = Some(CutFrame {
                offset: self.offset,
                length: self.length,
            });
            self.offset += end;
        }
        Ok(has_some)
    }

    /// Bytes that were read and that the file has no longer: it was cut.
    pub(crate) fn cut_bytes(&self, meta: &Metadata) -> u64 {
        let is_it = (self.device, self.inode) == (meta.dev(), meta.ino());
        match is_it && self.compressed.is_none() {
            true => self.offset.saturating_sub(meta.len()),
            false => 0,
        }
    }

    /// Asks for the length of the file, whatever has its path. Returns how many bytes came.
    pub(crate) fn grow(&mut self) -> u64 {
        let length = self.file.metadata().map_or(self.length, |meta| meta.len());
        let more = length.saturating_sub(self.length);
        self.length = length;
        more
    }

    /// The user whose file it is.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Damaged places and missing frames so far.
    pub(crate) fn faults(&self) -> u64 {
        self.damage.len() as u64 + self.missing_frames
    }

    /// States in an account what was wrong with the file so far. `is_settled`: the file is not
    /// being written, so a frame that is incomplete stays so.
    pub(crate) fn note(&self, is_settled: bool, account: &mut LogAccount) {
        account.damage.clone_from(&self.damage);
        account.missing_frames = self.missing_frames;
        account.segments.clone_from(&self.segments);
        let left = self.length.saturating_sub(self.offset);
        if let Some(cut) = self.cut_frame {
            account.unchecked_bytes = self.offset - cut.offset;
        }
        account.note_damaged_file(self.compressed.as_ref().and_then(|file| file.damage));
        if (left > 0 || self.ends_in_frame()) && is_settled {
            account.torn = Some((self.offset, left));
            (account.remarks).extend(self.pending.as_ref().map(ToString::to_string));
        }
    }

    /// The first record of the file, read anew; `None`: it is not there, or another one.
    ///
    /// # Errors
    /// If the bytes are no log.
    pub(crate) fn start(&mut self) -> io::Result<Option<Start>> {
        let mut first = First::default();
        self.rewind();
        self.read_on(&mut first)?;
        self.rewind();
        Ok(first.start)
    }

    /// Goes back to the beginning of the file.
    pub(crate) fn rewind(&mut self) {
        self.offset = 0;
        self.sequence = None;
        self.damage.clear();
        self.missing_frames = 0;
        self.segments.clear();
        self.pending = None;
        self.cut_frame = None;
        self.looked_at = 0;
    }

    /// Reads from the offset to the end of the file, in chunks.
    ///
    /// # Errors
    /// Those of the system, and if the bytes are no log.
    pub(crate) fn read_on(&mut self, sink: &mut impl RecordSink) -> io::Result<()> {
        let mut chunk = Vec::new();
        let mut wanted = CHUNK;
        while self.offset < self.length && !sink.has_enough() {
            let left = usize::try_from(self.length - self.offset).unwrap_or(usize::MAX);
            let is_last = left <= wanted;
            chunk.resize(left.min(wanted), 0);
            // Shorter than said: the file was cut, which the next call finds.
            let read = read_at(&self.file, &mut chunk, self.offset)?;
            chunk.truncate(read);
            let is_last = is_last || read < left.min(wanted);
            let taken = self.take(&chunk, is_last, sink)?;
            self.offset += taken as u64;
            match taken {
                0 if is_last => break,
                // The frame is longer than the chunk.
                0 if wanted < LONGEST_FRAME => wanted *= 2,
                0 => {
                    self.damaged_at(0, chunk.len() as u64, "no intact frame in megabytes");
                    self.offset += chunk.len() as u64;
                }
                _ => wanted = CHUNK,
            }
        }
        Ok(())
    }

    /// Hands on the complete frames of a chunk. Returns how many bytes were used.
    fn take(
        &mut self,
        chunk: &[u8],
        is_last: bool,
        sink: &mut impl RecordSink,
    ) -> io::Result<usize> {
        let mut reader = match self.offset {
            0 => match Reader::new(chunk) {
                Ok(reader) => reader,
                // The first bytes of a log that is being written.
                Err(_) if is_last && heapprof_format::FILE_HEADER.starts_with(chunk) => {
                    return Ok(0);
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            },
            _ => Reader::behind(self.sequence, chunk),
        };
        self.pending = None;
        // The offset of the frame that is being read, behind everything that was used.
        let used = loop {
            if let Some(event) = reader.next_event() {
                sink.take_event(event);
                continue;
            }
            let error = match reader.next_record() {
                Ok(Some(record)) => {
                    sink.take(record);
                    continue;
                }
                Ok(None) => break reader.offset(),
                Err(error) => error,
            };
            let used = error.offset;
            let is_torn = error.kind == ReadErrorKind::TornTail;
            // The rest of the frame may be in the next chunk.
            if is_torn && !is_last && chunk.len() < LONGEST_FRAME {
                break used;
            }
            // The reader counts from the chunk's beginning.
            let offset = self.offset + used;
            let error = ReadError { offset, ..error };
            match reader.skip_damage() {
                Some(skipped) => self.damaged_at(used, skipped, &error.to_string()),
                // No intact frame follows so far. Records in front of the place are used.
                None => {
                    self.pending = (!is_torn).then_some(error);
                    break used;
                }
            }
        };
        self.sequence = reader.sequence();
        self.missing_frames += reader.missing_frames();
        let room = MOST_SEGMENTS.saturating_sub(self.segments.len());
        (self.segments).extend(reader.segments().iter().copied().take(room));
        Ok(usize::try_from(used).unwrap_or(chunk.len()))
    }

    /// Notes a damaged place of the chunk at the offset.
    fn damaged_at(&mut self, within: u64, skipped: u64, what: &str) {
        let damage = &mut self.damage;
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

/// Takes the first record only.
#[derive(Default)]
struct First {
    start: Option<Start>,
    is_there: bool,
}

impl RecordSink for First {
    fn take(&mut self, record: Record) {
        if let (Record::Start(start), false) = (record, self.is_there) {
            self.start = Some(start);
        }
        self.is_there = true;
    }

    fn account(&mut self, _: LogAccount) {}

    fn has_enough(&self) -> bool {
        self.is_there
    }
}
