//! Zstd frames: where the frames of a compressed file lie, read from their headers alone.
//!
//! ```text
//!   frame       magic header block* [checksum]       RFC 8878, 3.1.1
//!   block       3 bytes (last, kind, size) content
//!   skippable   magic length content
//! ```
//!
//! Nothing is decompressed here. A header that lies costs the frame that it is of: the next one is
//! searched for by its magic, and counts if its blocks lead to an end.

use std::ops::Range;

/// The first bytes of a frame.
const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// The first bytes of a skippable frame, but for four bits.
const SKIPPABLE: u32 = 0x184d_2a50;
/// The length of a skippable frame's header.
const SKIPPABLE_HEADER: usize = 8;

/// A range of bytes of a compressed file: a frame, or bytes that are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileExtent {
    /// Where it lies.
    pub(crate) range: Range<usize>,
    pub(crate) kind: ExtentKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    /// A whole frame, as its headers say, with the length of its content if it states that.
    Frame { content: Option<u64> },
    /// The file ends in this frame.
    Cut,
    /// Bytes that are no whole frame, up to the next one. They may be the beginning of one.
    Damaged,
}

/// The extents of a compressed file, in order.
#[derive(Debug)]
pub(crate) struct ZstdFrames<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Headers that may still be read in vain: frames that overlap could make each of them be read
    /// for each of the others.
    vain: usize,
}

/// Why bytes are no whole frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoFrame {
    /// They go on behind the end of the file.
    Cut,
    /// They say what no frame says.
    Damaged,
}

/// Returns true if a file that begins with these bytes is compressed.
pub fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || is_skippable(bytes)
}

fn is_skippable(bytes: &[u8]) -> bool {
    (bytes.first_chunk()).is_some_and(|magic| u32::from_le_bytes(*magic) & !15 == SKIPPABLE)
}

impl<'a> ZstdFrames<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> ZstdFrames<'a> {
        ZstdFrames {
            bytes,
            at: 0,
            vain: bytes.len(),
        }
    }

    /// The next whole frame behind the place, if there is one.
    fn next_frame(&mut self, from: usize) -> Option<usize> {
        let mut from = from;
        while self.vain > 0 {
            let rest = self.bytes.get(from..)?;
            let found = from + rest.windows(MAGIC.len()).position(|four| four == MAGIC)?;
            let mut steps = 0;
            if frame(&self.bytes[found..], &mut steps).is_ok() {
                return Some(found);
            }
            self.vain = self.vain.saturating_sub(steps);
            from = found + 1;
        }
        None
    }
}

impl Iterator for ZstdFrames<'_> {
    type Item = FileExtent;

    fn next(&mut self) -> Option<FileExtent> {
        let mut rest = &self.bytes[self.at..];
        while is_skippable(rest) && rest.len() >= SKIPPABLE_HEADER {
            let length = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
            let Some(behind) = rest.get(SKIPPABLE_HEADER + length..) else {
                break;
            };
            self.at = self.bytes.len() - behind.len();
            rest = behind;
        }
        if rest.is_empty() {
            return None;
        }
        let begin = self.at;
        let (end, kind) = match frame(rest, &mut 0) {
            Ok((length, content)) => (begin + length, ExtentKind::Frame { content }),
            // Behind a damaged length, whole frames follow.
            Err(why) => match self.next_frame(begin + 1) {
                Some(next) => (next, ExtentKind::Damaged),
                None if why == NoFrame::Cut => (self.bytes.len(), ExtentKind::Cut),
                None => (self.bytes.len(), ExtentKind::Damaged),
            },
        };
        self.at = end;
        Some(FileExtent {
            range: begin..end,
            kind,
        })
    }
}

/// The length of the frame that the bytes begin with, and the length of its content, if stated.
/// `steps` grows by one for each header.
fn frame(bytes: &[u8], steps: &mut usize) -> Result<(usize, Option<u64>), NoFrame> {
    *steps += 1;
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(NoFrame::Damaged);
    }
    let &descriptor = bytes.get(MAGIC.len()).ok_or(NoFrame::Cut)?;
    if descriptor & 0b1000 != 0 {
        return Err(NoFrame::Damaged); // reserved
    }
    let is_single = descriptor & 0b10_0000 != 0;
    let has_checksum = descriptor & 0b100 != 0;
    let window = usize::from(!is_single);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 0b11)];
    let length = match (descriptor >> 6, is_single) {
        (0, false) => 0,
        (size, _) => 1 << size,
    };
    let at = MAGIC.len() + 1 + window + dictionary;
    let stated = bytes.get(at..at + length).ok_or(NoFrame::Cut)?;
    let mut word = [0; 8];
    word[..length].copy_from_slice(stated);
    let content = match length {
        0 => None,
        2 => Some(u64::from_le_bytes(word) + 256),
        _ => Some(u64::from_le_bytes(word)),
    };
    let mut at = at + length;
    loop {
        *steps += 1;
        let header = bytes.get(at..at + 3).ok_or(NoFrame::Cut)?;
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let size = match header >> 1 & 3 {
            0 | 2 => (header >> 3) as usize,
            1 => 1, // a byte that is repeated
            _ => return Err(NoFrame::Damaged),
        };
        at += 3 + size;
        if at > bytes.len() {
            return Err(NoFrame::Cut);
        }
        if header & 1 == 1 {
            break;
        }
    }
    if has_checksum {
        at += 4;
    }
    match at <= bytes.len() {
        true => Ok((at, content)),
        false => Err(NoFrame::Cut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_of(content: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(content, 3).unwrap()
    }

    fn extents(bytes: &[u8]) -> Vec<(Range<usize>, ExtentKind)> {
        let extents = ZstdFrames::of(bytes).map(|extent| (extent.range, extent.kind));
        extents.collect()
    }

    fn whole(content: u64) -> ExtentKind {
        let content = Some(content);
        ExtentKind::Frame { content }
    }

    #[test]
    fn frames_are_found_by_their_headers() {
        // A stated length takes 1, 2 or 4 bytes.
        for length in [0, 1, 255, 256, 65_791, 65_792, 3 << 20] {
            let content: Vec<u8> = (0..length)
                .map(|i: u32| (i.wrapping_mul(i) >> 7) as u8)
                .collect();
            let one = frame_of(&content);
            let skippable = [&0x184d_2a5e_u32.to_le_bytes()[..], &[2, 0, 0, 0, 9, 9]].concat();
            let all = [&skippable[..], &one, &skippable, &one].concat();
            let second = skippable.len() * 2 + one.len();
            assert_eq!(
                extents(&all),
                [
                    (10..10 + one.len(), whole(length.into())),
                    (second..second + one.len(), whole(length.into())),
                ]
            );
            assert!(is_compressed(&all) && is_compressed(&one));
        }
        let streamed = zstd::stream::encode_all(&[7; 1000][..], 3).unwrap();
        let content = None;
        let expected = ExtentKind::Frame { content };
        assert_eq!(extents(&streamed), [(0..streamed.len(), expected)]);
        assert!(!is_compressed(b"heaplog\x03"));
    }

    #[test]
    fn damage_reaches_to_the_next_frame_and_a_cut_to_the_end() {
        let one = frame_of(&[5; 9000]);
        let n = one.len();
        let two = [&one[..], &one].concat();
        for cut in n + 1..2 * n {
            let cut = &two[..cut];
            let expected = [(0..n, whole(9000)), (n..cut.len(), ExtentKind::Cut)];
            assert_eq!(extents(cut), expected);
        }
        // The first block is said to be longer than the file.
        let mut long = two.clone();
        long[MAGIC.len() + 1 + 2 + 2] = 0xf0;
        let damaged = (0..n, ExtentKind::Damaged);
        assert_eq!(extents(&long), [damaged.clone(), (n..2 * n, whole(9000))]);
        let mut lost = two;
        lost[0] = 0;
        assert_eq!(extents(&lost), [damaged, (n..2 * n, whole(9000))]);
        assert_eq!(extents(b"rubbish"), [(0..7, ExtentKind::Damaged)]);
    }

    /// Frames of empty blocks, each of which has all others in it and no end.
    #[test]
    fn frames_that_overlap_are_read_in_vain_once() {
        let mut bytes = Vec::new();
        for _ in 0..100_000 {
            bytes.extend(MAGIC);
            // Its window, and a block as long as the way to the next frame's first block.
            bytes.extend([0, 0x58]);
            bytes.extend((6_u32 << 3).to_le_bytes().iter().take(3));
        }
        let began = std::time::Instant::now();
        let extents = extents(&bytes);
        assert_eq!(extents, [(0..bytes.len(), ExtentKind::Cut)]);
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}
