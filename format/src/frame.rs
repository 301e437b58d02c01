//! Frame: one flush of records, with a length and a checksum around them.
//!
//! The checksum covers the sequence number. So a frame that a broken disk copied or repeated does
//! not pass for another one.

/// The version that this crate writes, and the only one that it reads.
pub const VERSION: u8 = 3;

/// The first bytes of every log.
pub const FILE_HEADER: [u8; FILE_HEADER_LEN] = *b"heaplog\x03";

/// Length of [`FILE_HEADER`] in bytes.
pub const FILE_HEADER_LEN: usize = 8;

/// Returns the version of a log that begins with these bytes, or `None` if they begin no log.
pub(crate) fn version_of(bytes: &[u8]) -> Option<u8> {
    let (header, _) = bytes.split_first_chunk::<FILE_HEADER_LEN>()?;
    let [name @ .., version] = header;
    let [ours @ .., _] = &FILE_HEADER;
    (name == ours).then_some(*version)
}

/// Returns true if these bytes begin a log that can be read.
pub(crate) fn begins_log(bytes: &[u8]) -> bool {
    version_of(bytes) == Some(VERSION)
}

/// Length of the header before each frame's payload, in bytes.
pub const FRAME_HEADER_LEN: usize = 16;

/// Longest payload, in bytes: a larger length is damage, not data. The writer flushes well below a
/// megabyte. Only a stack or a path of absurd length comes near.
pub const MAX_FRAME_LEN: usize = 64 << 20;

/// Bytes that begin a frame. No UTF-8 text and no run of small varints looks like them, because the
/// reader searches for them after damage.
const MAGIC: [u8; 4] = [0xf8, b'h', b'p', 0xff];

/// The header before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Payload length in bytes.
    pub(crate) length: u32,
    /// crc32 of the sequence number (little endian) and the payload.
    pub(crate) crc: u32,
    /// Number of the frame, from 0 in each file; a step of more than one is a lost frame.
    pub(crate) sequence: u32,
}

impl FrameHeader {
    pub(crate) fn for_payload(sequence: u32, payload: &[u8]) -> Self {
        FrameHeader {
            length: payload.len() as u32,
            crc: checksum(sequence, payload),
            sequence,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let mut bytes = [0; FRAME_HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// Returns the header at the front of `bytes`, or `None` if there is none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_HEADER_LEN] = bytes.get(..FRAME_HEADER_LEN)?.try_into().ok()?;
        if bytes[0..4] != MAGIC {
            return None;
        }
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let header = FrameHeader {
            length: word(4),
            crc: word(8),
            sequence: word(12),
        };
        (header.length as usize <= MAX_FRAME_LEN).then_some(header)
    }

    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        checksum(self.sequence, payload) == self.crc
    }
}

/// Returns the offset behind the frame that begins at `at`, as its header says; `None`: no frame
/// begins there, or it goes on behind the end of the bytes. The payload is not looked at.
pub fn frame_end(bytes: &[u8], at: usize) -> Option<usize> {
    let header = FrameHeader::parse(bytes.get(at..)?)?;
    let end = at + FRAME_HEADER_LEN + header.length as usize;
    (end <= bytes.len()).then_some(end)
}

/// Returns the offset of the frame that the bytes end with; `None`: they do not end with a frame.
pub(crate) fn last_frame(bytes: &[u8]) -> Option<usize> {
    let mut words = bytes.windows(MAGIC.len());
    let begin = words.rposition(|word| word == MAGIC)?;
    (frame_end(bytes, begin)? == bytes.len()).then_some(begin)
}

fn checksum(sequence: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Where intact frames are looked for in a damaged log, and how much of it may still be read in
/// vain.
///
/// A header that is no frame's claims any length. Where thousands of such headers overlap, each
/// byte would be read for the checksum of each of them. Damage that no one made costs each byte
/// once or twice.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    /// Bytes of frames that are not intact.
    left: u64,
}

/// How often each byte may be read in vain.
const VAIN_READS: u64 = 4;

impl Search {
    /// The search through a log of that length.
    pub(crate) fn through(length: usize) -> Search {
        Search {
            left: (length as u64 * VAIN_READS).max(MAX_FRAME_LEN as u64),
        }
    }

    /// Returns true if as much was read in vain as may be.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Returns true if the payload is that of the header.
    pub(crate) fn is_intact(&mut self, header: &FrameHeader, payload: &[u8]) -> bool {
        let is_intact = header.matches(payload);
        if !is_intact {
            self.left = self.left.saturating_sub(payload.len() as u64);
        }
        is_intact
    }

    /// Offset of the next frame that is whole and intact at or after `from`, if any is found.
    pub(crate) fn find_next(&mut self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while !self.is_over() {
            let found = bytes
                .get(at..)?
                .windows(MAGIC.len())
                .position(|w| w == MAGIC)?
                + at;
            if let Some(header) = FrameHeader::parse(&bytes[found..]) {
                let start = found + FRAME_HEADER_LEN;
                if let Some(payload) = bytes.get(start..start + header.length as usize)
                    && self.is_intact(&header, payload)
                {
                    return Some(found);
                }
            }
            at = found + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        let header = FrameHeader::for_payload(7, b"payload");
        assert_eq!(FrameHeader::parse(&header.to_bytes()), Some(header));
        assert!(header.matches(b"payload"));
        assert!(!header.matches(b"paxload"));
    }

    #[test]
    fn the_sequence_number_is_under_the_checksum() {
        let mut header = FrameHeader::for_payload(7, b"payload");
        header.sequence = 8;
        assert!(!header.matches(b"payload"));
    }

    /// Headers that each claim all bytes behind them are tried until each byte was read some times,
    /// and not once for each header.
    #[test]
    fn damage_that_overlaps_is_not_read_again_and_again() {
        const HEADERS: usize = 20_000;
        let claim = FrameHeader {
            length: (HEADERS * FRAME_HEADER_LEN / 2) as u32,
            crc: 0,
            sequence: 5,
        };
        let mut bytes = claim.to_bytes().repeat(HEADERS);
        let whole = FrameHeader::for_payload(6, b"payload");
        bytes.extend_from_slice(&whole.to_bytes());
        bytes.extend_from_slice(b"payload");
        let mut search = Search::through(bytes.len());
        assert_eq!(search.find_next(&bytes, 0), None);
        assert!(search.is_over());
        // Where it is not in vain, it is found however far it is.
        let mut search = Search::through(bytes.len());
        let half = HEADERS * FRAME_HEADER_LEN / 2 + FRAME_HEADER_LEN;
        let found = search.find_next(&bytes, half);
        assert_eq!(found, Some(HEADERS * FRAME_HEADER_LEN));
        assert!(!search.is_over());
    }

    #[test]
    fn an_absurd_length_is_no_header() {
        let mut bytes = FrameHeader::for_payload(0, b"").to_bytes();
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(FrameHeader::parse(&bytes), None);
    }
}
