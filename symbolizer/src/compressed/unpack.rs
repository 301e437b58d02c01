//! Unpack: the bytes in a compressed file.

use std::io::{self, Write};

use heapprof_format::{FILE_HEADER, FILE_HEADER_LEN};
use rayon::prelude::*;
use zstd::bulk::Decompressor;
use zstd::stream::raw::{DParameter, Decoder, Operation};

use crate::compressed::zstd_frames::{ExtentKind, FileExtent, ZstdFrames};
use crate::memory;

/// How many times its size a file may unpack to. The log of a loop that allocates and frees blocks
/// of one size by one stack unpacks to some 110 times its own.
pub(crate) const MULTIPLE: u64 = 1024;
/// Further bytes that a file may unpack to.
pub(crate) const CONSTANT: u64 = 16 << 20;

/// Frames with a longer content are unpacked as a stream, one after the other.
const AT_ONCE: u64 = 8 << 20;
/// Bytes that are unpacked side by side, in frames of up to [`AT_ONCE`].
const BATCH: u64 = 32 << 20;
/// Bytes of a stream that are in memory.
const CHUNK: usize = 1 << 20;
/// The same where the stream is damaged.
const SMALL_CHUNK: usize = 4 << 10;
/// The most that a stream may look back: what `zstd` itself takes without being told.
const WINDOW_LOG: u32 = 27;

/// Stands in a log for bytes that could not be unpacked. It is longer than the header of a frame,
/// so it is not taken for a frame that the end of the file cuts.
pub(crate) const DAMAGE: &[u8] = b"\nheapprof: a part of the compressed log is damaged here\n";

/// The result of unpacking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// How many bytes.
    pub length: u64,
    /// The first damage of the compressed file; `None`: it is whole.
    pub damage: Option<Damaged>,
}

/// A damaged place of a compressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// Bytes of that place are not those that were written.
    #[error("the compressed file is damaged at offset {0}")]
    At(u64),
    /// The file ends in what begins there.
    #[error("the compressed file is cut off behind offset {0}")]
    CutBehind(u64),
}

impl Damaged {
    /// Returns the place.
    pub fn offset(self) -> u64 {
        match self {
            Damaged::At(offset) | Damaged::CutBehind(offset) => offset,
        }
    }
}

/// Why a compressed file is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It is damaged, and is no log, or not even the beginning of a log could be read.
    #[error("{0}, and nothing of it can be used")]
    Damaged(Damaged),
    /// It claims too much.
    #[error(
        "it is {compressed} bytes long and unpacks to more than {most}: damaged, or made to fill disks"
    )]
    TooLarge {
        /// Its length.
        compressed: u64,
        /// The most that is unpacked of it.
        most: u64,
    },
    /// The bytes cannot be written.
    #[error(transparent)]
    Write(io::Error),
}

/// Returns how many bytes a file of that length may unpack to.
pub(crate) fn most_of(compressed: u64) -> u64 {
    compressed.saturating_mul(MULTIPLE).saturating_add(CONSTANT)
}

/// Returns the sum of the lengths that the frames of a compressed file state. A file that was
/// compressed as a stream states none.
pub(crate) fn stated_length(bytes: &[u8]) -> u64 {
    let stated = ZstdFrames::of(bytes).map(|extent| match extent.kind {
        ExtentKind::Frame { content } => content.unwrap_or(0),
        ExtentKind::Cut | ExtentKind::Damaged => 0,
    });
    stated.fold(0, u64::saturating_add)
}

/// Writes the bytes in a compressed file. `progress` is told how many bytes of the file are done.
///
/// # Errors
/// If it claims too much, if it is damaged and no log, and those of `out`. A damaged log is
/// written as far as it can be read.
pub fn unpack(
    bytes: &[u8],
    out: &mut impl Write,
    mut progress: impl FnMut(u64),
) -> Result<Unpacked, UnpackError> {
    let compressed = bytes.len() as u64;
    let most = most_of(compressed);
    if stated_length(bytes) > most {
        return Err(UnpackError::TooLarge { compressed, most });
    }
    let mut sink = Sink {
        out,
        compressed,
        most,
        length: 0,
        head: Vec::new(),
        damage: None,
    };
    memory::start_threads();
    let mut extents = ZstdFrames::of(bytes).peekable();
    while let Some(extent) = extents.next() {
        let Some(mut room) = BATCH.checked_sub(extent.in_memory().unwrap_or(u64::MAX)) else {
            sink.stream(bytes, &extent)?;
            progress(extent.range.end as u64);
            continue;
        };
        let mut batch = vec![extent];
        while let Some(next) = extents.next_if(|next| next.in_memory().is_some_and(|n| n <= room)) {
            room -= next.in_memory().unwrap_or(0);
            batch.push(next);
        }
        let contents: Vec<Option<Vec<u8>>> = (batch.par_iter())
            .map(|extent| content(bytes, extent))
            .collect();
        for (extent, content) in batch.iter().zip(contents) {
            match content {
                Some(content) => sink.put(&content)?,
                None => sink.stream(bytes, extent)?,
            }
            progress(extent.range.end as u64);
        }
    }
    Ok(Unpacked {
        length: sink.length,
        damage: sink.damage,
    })
}

impl FileExtent {
    /// The length of its content, if it is unpacked beside others.
    fn in_memory(&self) -> Option<u64> {
        match self.kind {
            ExtentKind::Frame { content } => content.filter(|&content| content <= AT_ONCE),
            ExtentKind::Cut | ExtentKind::Damaged => None,
        }
    }
}

/// The content of a frame; `None`: it is damaged.
fn content(bytes: &[u8], extent: &FileExtent) -> Option<Vec<u8>> {
    let length = extent.in_memory()? as usize;
    let mut decompressor = Decompressor::new().ok()?;
    let content = decompressor.decompress(&bytes[extent.range.clone()], length);
    content.ok().filter(|content| content.len() == length)
}

/// Where the bytes go.
struct Sink<'a, W> {
    out: &'a mut W,
    compressed: u64,
    most: u64,
    length: u64,
    /// The first bytes, which tell a log.
    head: Vec<u8>,
    damage: Option<Damaged>,
}

impl<W: Write> Sink<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        self.length += bytes.len() as u64;
        if self.length > self.most {
            return Err(UnpackError::TooLarge {
                compressed: self.compressed,
                most: self.most,
            });
        }
        let wanted = FILE_HEADER_LEN - self.head.len();
        self.head.extend(bytes.iter().take(wanted));
        self.out.write_all(bytes).map_err(UnpackError::Write)
    }

    /// Unpacks an extent up to its end, or to its first damaged place.
    fn stream(&mut self, bytes: &[u8], extent: &FileExtent) -> Result<(), UnpackError> {
        let mut frame = &bytes[extent.range.clone()];
        let mut done = 0;
        if let ExtentKind::Frame { .. } = extent.kind {
            let is_whole;
            (done, is_whole) = self.decode(frame, CHUNK, 0)?;
            if is_whole {
                return Ok(());
            }
            frame = without_checksum(frame);
        }
        self.decode(frame, SMALL_CHUNK, done)?;
        self.lost(extent)
    }

    /// Unpacks a frame behind so many bytes of its content, up to its end or to a place that is
    /// damaged. The decoder's call loses its bytes in front of such a place, so `chunk` is
    /// the most that it unpacks. Returns how many bytes are unpacked, and whether the frame is
    /// whole.
    fn decode(
        &mut self,
        frame: &[u8],
        chunk: usize,
        skip: u64,
    ) -> Result<(u64, bool), UnpackError> {
        let mut buffer = vec![0; chunk];
        let mut rest = frame;
        let mut done = 0;
        let Some(mut decoder) = decoder() else {
            return Ok((done, false));
        };
        while let Ok(status) = decoder.run_on_buffers(rest, &mut buffer) {
            rest = &rest[status.bytes_read..];
            let written = &buffer[..status.bytes_written];
            let known = skip.saturating_sub(done).min(written.len() as u64) as usize;
            self.put(&written[known..])?;
            done += written.len() as u64;
            if status.remaining == 0 {
                return Ok((done, true));
            }
            if status.bytes_read == 0 && written.is_empty() {
                break;
            }
        }
        Ok((done, false))
    }

    /// Notes that bytes of an extent are lost.
    fn lost(&mut self, extent: &FileExtent) -> Result<(), UnpackError> {
        let at = extent.range.start as u64;
        let damage = match extent.kind {
            ExtentKind::Cut => Damaged::CutBehind(at),
            ExtentKind::Frame { .. } | ExtentKind::Damaged => Damaged::At(at),
        };
        if !is_log(&self.head) {
            return Err(UnpackError::Damaged(damage));
        }
        self.damage.get_or_insert(damage);
        self.put(DAMAGE)
    }
}

/// A decoder of a stream; `None`: there is no memory for it.
fn decoder() -> Option<Decoder<'static>> {
    let mut decoder = Decoder::new().ok()?;
    decoder
        .set_parameter(DParameter::WindowLogMax(WINDOW_LOG))
        .ok()?;
    Some(decoder)
}

/// A frame that is whole, without the checksum that it may end in.
fn without_checksum(frame: &[u8]) -> &[u8] {
    const HAS_CHECKSUM: u8 = 0b100;
    match frame
        .get(4)
        .is_some_and(|descriptor| descriptor & HAS_CHECKSUM != 0)
    {
        true => &frame[..frame.len() - 4],
        false => frame,
    }
}

/// Returns true if bytes begin as a log of any version does.
fn is_log(head: &[u8]) -> bool {
    head.len() == FILE_HEADER_LEN && head.starts_with(&FILE_HEADER[..FILE_HEADER_LEN - 1])
}

/// The first bytes in a compressed file, at most so many.
pub(crate) fn head(bytes: &[u8], most: usize) -> Vec<u8> {
    let mut head = Vec::new();
    let first = ZstdFrames::of(bytes)
        .next()
        .map(|extent| &bytes[extent.range]);
    let (Some(mut rest), Some(mut decoder)) = (first, decoder()) else {
        return head;
    };
    let mut buffer = vec![0; most.min(SMALL_CHUNK)];
    // A damaged frame gives what is in front of the damage.
    while head.len() < most
        && let Ok(status) = decoder.run_on_buffers(rest, &mut buffer)
    {
        rest = &rest[status.bytes_read..];
        head.extend_from_slice(&buffer[..status.bytes_written]);
        if status.remaining == 0 || (status.bytes_read, status.bytes_written) == (0, 0) {
            break;
        }
    }
    head.truncate(most);
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed::pack;
    use crate::compressed::pack::PART;
    use heapprof_format::{Alloc, Encoder, EndReason, Reader, Record, Stack, Start, WalkEnd};

    /// A log of some parts, with an end.
    fn log() -> Vec<u8> {
        let mut encoder = Encoder::new();
        let mut log = FILE_HEADER.to_vec();
        encoder.record(&Record::Start(Start {
            pid: 7,
            interval: 1,
            ..Start::default()
        }));
        encoder.record(&Record::Stack(Stack {
            number: 0,
            end: WalkEnd::Root,
            frames: vec![1],
            interrupted: Vec::new(),
            labels: Vec::new(),
        }));
        let mut id = 0_u64;
        while log.len() < 3 * PART {
            for _ in 0..5000 {
                id += 1;
                encoder.alloc(&Alloc {
                    time_ns: id * 1000,
                    thread: 1,
                    id,
                    size: id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54,
                    slack: 0,
                    stack: 0,
                    interval: 1,
                });
            }
            log.extend_from_slice(encoder.finish());
        }
        encoder.record(&Record::End {
            time_ns: id * 1000,
            reason: EndReason::Exit,
        });
        log.extend_from_slice(encoder.finish());
        log
    }

    fn packed(log: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        pack(log, &mut packed, |_| {}).unwrap();
        packed
    }

    fn unpacked(bytes: &[u8]) -> Result<(Vec<u8>, Option<Damaged>), UnpackError> {
        let mut out = Vec::new();
        let unpacked = unpack(bytes, &mut out, |_| {})?;
        assert_eq!(unpacked.length, out.len() as u64);
        Ok((out, unpacked.damage))
    }

    /// The allocations that a reader of the log finds, and whether it finds no fault.
    fn allocations(log: &[u8]) -> (u64, bool) {
        let mut reader = Reader::new(log).unwrap();
        let (mut allocations, mut is_whole) = (0, true);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => allocations += u64::from(matches!(record, Record::Alloc(_))),
                Ok(None) => return (allocations, is_whole && reader.missing_frames() == 0),
                Err(_) => {
                    is_whole = false;
                    if reader.skip_damage().is_none() && !reader.enter_cut_frame() {
                        return (allocations, false);
                    }
                }
            }
        }
    }

    #[test]
    fn frames_of_all_kinds_give_the_bytes_back() {
        let log = log();
        let one = zstd::bulk::compress(&log, 1).unwrap();
        let streamed = zstd::stream::encode_all(&log[..], 1).unwrap();
        let (front, back) = log.split_at(PART + 77);
        let mixed = [packed(front), zstd::bulk::compress(back, 1).unwrap()].concat();
        for bytes in [packed(&log), one, streamed, mixed] {
            assert!(unpacked(&bytes).unwrap() == (log.clone(), None));
        }
        let (head_of_log, all) = (head(&packed(&log), 100), head(&packed(b"abc"), 100));
        assert_eq!((&head_of_log[..], &all[..]), (&log[..100], &b"abc"[..]));
    }

    /// A flipped bit costs what stands behind it in its frame, and the others are all there.
    #[test]
    fn damage_costs_a_part_at_most_and_is_said() {
        let log = log();
        let packed = packed(&log);
        let (all, is_whole) = allocations(&log);
        assert!(is_whole);
        let frames: Vec<FileExtent> = ZstdFrames::of(&packed).collect();
        assert!(frames.len() >= 3);
        let frame = frames[1].range.clone();
        // Its magic, the length of its content, a block's header, its content, its checksum.
        for at in [0, 5, 10, frame.len() / 2, frame.len() - 2] {
            for bit in [0, 7] {
                let mut damaged = packed.clone();
                damaged[frame.start + at] ^= 1 << bit;
                let (bytes, damage) = unpacked(&damaged).unwrap();
                if bytes == log {
                    continue; // a length that is wrong, and a checksum that is right
                }
                assert_eq!(damage, Some(Damaged::At(frame.start as u64)), "{at} {bit}");
                let (some, is_whole) = allocations(&bytes);
                assert!(!is_whole, "{at} {bit}");
                // The others, and what stands in front.
                let least = if at > 100 { all / 2 } else { all / 3 };
                assert!((least..=all).contains(&some), "{at} {bit}: {some} of {all}");
                assert!(bytes.ends_with(&log[log.len() - 1000..]), "{at} {bit}");
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_is_read_up_to_there() {
        let log = log();
        let packed = packed(&log);
        let last = ZstdFrames::of(&packed).last().unwrap().range;
        for cut in [last.start + 1, (last.start + last.end) / 2, last.end - 1] {
            let (bytes, damage) = unpacked(&packed[..cut]).unwrap();
            assert_eq!(damage, Some(Damaged::CutBehind(last.start as u64)));
            let whole = bytes.strip_suffix(DAMAGE).unwrap();
            assert!(log.starts_with(whole) && whole.len() > PART);
            // A byte of the checksum is cut off.
            assert_eq!(whole.len() == log.len(), cut == last.end - 1);
            assert!(!allocations(&bytes).1);
        }
        // One frame, as `zstd` makes it.
        let one = zstd::stream::encode_all(&log[..], 1).unwrap();
        let (bytes, damage) = unpacked(&one[..one.len() / 2]).unwrap();
        assert_eq!(damage, Some(Damaged::CutBehind(0)));
        assert!(bytes.len() > log.len() / 4);
        // Between two frames: the log has no end.
        let (bytes, damage) = unpacked(&packed[..last.start]).unwrap();
        assert!(log.starts_with(&bytes) && damage.is_none());
    }

    #[test]
    fn what_is_no_log_is_whole_or_refused() {
        let text = zstd::bulk::compress(&b"heap profile: ".repeat(1000), 3).unwrap();
        let refused = |bytes: &[u8]| matches!(unpacked(bytes), Err(UnpackError::Damaged(_)));
        assert!(!refused(&text));
        assert!(refused(&text[..text.len() - 1]));
        assert!(refused(&[&text[..], b"rubbish"].concat()));
        // A log of which nothing is left.
        let mut log = packed(&log()[..1000]);
        log[4] ^= 0x80;
        assert!(refused(&log));
    }

    #[test]
    fn what_claims_too_much_is_refused() {
        let zeros = vec![0; 64 << 20];
        let stated = zstd::bulk::compress(&zeros, 3).unwrap();
        let streamed = zstd::stream::encode_all(&zeros[..], 3).unwrap();
        for bomb in [stated, streamed] {
            assert!(bomb.len() < 100_000);
            let mut most = 0;
            let unpacked = unpack(&bomb, &mut Counted(&mut most), |_| {});
            assert!(matches!(unpacked, Err(UnpackError::TooLarge { .. })));
            assert!(most <= most_of(bomb.len() as u64), "{most}");
        }
        // A header that lies, and nothing behind it.
        let mut lie = zstd::bulk::compress(&[1; 70_000], 3).unwrap();
        lie[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(unpacked(&lie), Err(UnpackError::TooLarge { .. })));
        lie[5..9].copy_from_slice(&(1_u32 << 22).to_le_bytes());
        assert!(matches!(unpacked(&lie), Err(UnpackError::Damaged(_))));
    }

    struct Counted<'a>(&'a mut u64);

    impl Write for Counted<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            *self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
