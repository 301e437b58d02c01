//! Reader: reads records from the bytes of a log.
//!
//! It accepts any bytes without a panic. Bytes that cannot be trusted are an error with its offset.
//! After an error in a frame, [`Reader::skip_damage`] continues at the next intact one. If none
//! follows, [`Reader::enter_cut_frame`] continues with the records in front of the file's cut.
//!
//! Not here: the places where one segment of a rotated log follows another (`segments`).

use crate::body::{Kind, take_body};
use crate::field::TIME_UNIT_NS;
use crate::frame::{
    FILE_HEADER, FILE_HEADER_LEN, FRAME_HEADER_LEN, FrameHeader, Search, VERSION, begins_log,
    last_frame, version_of,
};
use crate::log::{
    Deltas, KIND_ALLOC, KIND_FREE, KIND_OTHER, KIND_PLAIN, THREAD_FOLLOWS, TIME_IN_TAG, plain,
};
use crate::read_error::{ReadError, ReadErrorKind};
use crate::record::{Alloc, Event, Free, Record};
use crate::segments::{Role, SegmentStart, Segments};
use crate::varint::{take, unzigzag};

/// The fewest zeros at the end of a file that are no records.
const MIN_ZEROS: usize = 64;

/// Reads the records of a log in order.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of the next frame.
    next_frame: usize,
    /// The rest of the current frame's payload.
    payload: &'a [u8],
    deltas: Deltas,
    /// Number of the last frame.
    sequence: Option<u32>,
    /// Frames that are missing between two frames that were read.
    missing_frames: u64,
    segments: Segments,
    search: Search,
    /// True in the frame that the file's cut is in.
    is_cut: bool,
}

impl<'a> Reader<'a> {
    /// Returns a reader at the first frame.
    ///
    /// # Errors
    /// If the bytes are not a log of a version that is read.
    pub fn new(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let wrong = |kind| Err(ReadError { offset: 0, kind });
        if bytes.is_empty() {
            return wrong(ReadErrorKind::Empty);
        }
        match version_of(bytes) {
            Some(VERSION) => {}
            Some(version) => return wrong(ReadErrorKind::Version(version)),
            None => return wrong(ReadErrorKind::NotALog),
        }
        Ok(Reader {
            bytes,
            next_frame: FILE_HEADER_LEN,
            payload: &[],
            deltas: Deltas::default(),
            sequence: None,
            missing_frames: 0,
            segments: Segments::first(),
            search: Search::through(bytes.len()),
            is_cut: false,
        })
    }

    /// Returns a reader of frames that follow other frames, in bytes that begin with a frame: the
    /// part that was appended to a log. `sequence` is the number of the frame before, from
    /// [`sequence`](Self::sequence). Offsets count from the beginning of these bytes.
    pub fn behind(sequence: Option<u32>, bytes: &'a [u8]) -> Self {
        Reader {
            bytes,
            next_frame: 0,
            payload: &[],
            deltas: Deltas::default(),
            sequence,
            missing_frames: 0,
            segments: Segments::first(),
            search: Search::through(bytes.len()),
            is_cut: false,
        }
    }

    /// Returns a reader of the frame that the bytes of a log end with; `None`: they do not end with
    /// a frame. Offsets count from the beginning of the frame.
    pub fn of_last_frame(bytes: &'a [u8]) -> Option<Self> {
        let begin = last_frame(bytes)?;
        Some(Reader::behind(None, &bytes[begin..]))
    }

    /// Returns the number of the last frame that was read.
    pub fn sequence(&self) -> Option<u32> {
        self.sequence
    }

    /// Returns the next record, or `None` at the end of the file.
    ///
    /// # Errors
    /// If the bytes cannot be trusted from here on. The reader stays in place: the same error comes
    /// again until [`skip_damage`](Self::skip_damage) is called.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            if self.payload.is_empty() {
                if self.next_frame == self.bytes.len() {
                    return match self.is_cut {
                        true => Err(self.unreadable_record()),
                        false => Ok(None),
                    };
                }
                if !self.enter_segment() {
                    self.enter_frame()?;
                }
                continue;
            }
            let before = self.payload;
            match self.take_record() {
                Some(Some(Record::Alloc(alloc))) if !self.segments.is_skipping() => {
                    return Ok(Some(Record::Alloc(alloc)));
                }
                Some(Some(record)) => match self.segments.role_of(&record) {
                    Role::New => return Ok(Some(record)),
                    Role::Repeated => {}
                    Role::Foreign { begin } => return Err(self.end_at(begin)),
                },
                Some(None) => {} // a record that only sets state, or an unknown one
                None => {
                    self.payload = before;
                    return Err(self.unreadable_record());
                }
            }
        }
    }

    /// Returns the next record if it is an intact allocation or free. Otherwise returns `None`, and
    /// the reader stays in place for [`next_record`](Self::next_record). It is for the frequent
    /// records: a [`Record`] is large.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        let (&tag, rest) = self.payload.split_first()?;
        if self.segments.is_skipping() {
            return None;
        }
        let before = std::mem::replace(&mut self.payload, rest);
        let event = match tag & 3 {
            KIND_ALLOC => self.take_alloc(tag).map(Event::Alloc),
            KIND_PLAIN => self.take_plain(tag).map(Event::Alloc),
            KIND_FREE => self.take_free(tag).map(Event::Free),
            _ => None,
        };
        if event.is_none() {
            self.payload = before; // it is malformed, which the next call finds again
        }
        event
    }

    /// Returns the offset in the file of the next byte.
    pub fn offset(&self) -> u64 {
        (self.next_frame - self.payload.len()) as u64
    }

    /// Returns the number of frames that are known to be missing, from the numbers of frames.
    pub fn missing_frames(&self) -> u64 {
        self.missing_frames
    }

    /// Returns the segments whose checkpoints were read so far, in order, without the first of a
    /// run, which has no checkpoint.
    pub fn segments(&self) -> &[SegmentStart] {
        self.segments.seen()
    }

    /// Continues at the next intact frame after an error. Returns the number of skipped bytes, or
    /// `None` if no intact frame follows.
    pub fn skip_damage(&mut self) -> Option<u64> {
        let from = self.offset() as usize;
        // Behind a malformed record in an intact frame, the next frame is known. Otherwise the
        // search begins behind the place where a frame should begin.
        let search = if self.payload.is_empty() {
            from + 1
        } else {
            self.next_frame
        };
        let found = self.search.find_next(self.bytes, search)?;
        self.payload = &[];
        self.next_frame = match found.checked_sub(FILE_HEADER_LEN) {
            // The first frame of a further segment: it is entered by its header.
            Some(header) if header >= search && begins_log(&self.bytes[header..]) => header,
            _ => found,
        };
        Some((self.next_frame - from) as u64)
    }

    /// Continues with the records in front of the cut, after an error behind which no intact frame
    /// follows. Returns false if there are none.
    ///
    /// A file is cut if it ends inside a frame. It is also cut if the rest of the file is zeros
    /// from a place inside the frame on, as after a crash of the machine. The frame's checksum
    /// covers the bytes behind the cut as well, so these records are unchecked. They are likely
    /// right, because files lose their ends: no byte in front of the cut was written after a byte
    /// behind it. The frame must be the one that follows the last frame. The first record that is
    /// not whole is an error of [`ReadErrorKind::TornTail`], as is the end of the records.
    pub fn enter_cut_frame(&mut self) -> bool {
        if self.is_cut || !self.payload.is_empty() {
            return false;
        }
        let start = self.next_frame;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let Some(header) = FrameHeader::parse(rest) else {
            return false;
        };
        let is_next = match self.sequence {
            Some(last) => header.sequence == last.wrapping_add(1),
            None => header.sequence == 0,
        };
        let zeros = rest.iter().rev().take_while(|&&byte| byte == 0).count();
        let (end, whole) = (
            rest.len() - zeros,
            FRAME_HEADER_LEN + header.length as usize,
        );
        // A damaged frame at the file's end may end in a zero, too.
        let is_cut = rest.len() < whole || zeros >= MIN_ZEROS;
        if !is_next || !is_cut || !(FRAME_HEADER_LEN + 1..whole).contains(&end) {
            return false;
        }
        let mut payload = &rest[FRAME_HEADER_LEN..end];
        let Some(time) = take(&mut payload) else {
            return false;
        };
        self.deltas = Deltas {
            time,
            ..Deltas::default()
        };
        self.is_cut = true;
        self.bytes = &self.bytes[..start + end];
        self.next_frame = start + end;
        self.payload = payload;
        true
    }

    /// Returns the error of a record that cannot be read, or of the place where the records in
    /// front of the cut end.
    fn unreadable_record(&self) -> ReadError {
        ReadError {
            offset: self.offset(),
            kind: match self.is_cut {
                true => ReadErrorKind::TornTail,
                false => ReadErrorKind::Record,
            },
        }
    }

    /// Returns true if so much of the log is damaged, in frames that overlap, that the rest is not
    /// searched for intact ones.
    pub fn has_given_up(&self) -> bool {
        self.search.is_over()
    }

    /// Goes on behind the header of a further segment, if that is what comes next.
    fn enter_segment(&mut self) -> bool {
        let rest = &self.bytes[self.next_frame..];
        if rest[0] != 0 && rest[0] != FILE_HEADER[0] {
            return false; // a frame, as nearly always
        }
        let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
        if zeros == rest.len() {
            self.bytes = &self.bytes[..self.next_frame]; // padding at the end
            return true;
        }
        if !begins_log(&rest[zeros..]) {
            return false;
        }
        self.segments.enter(self.next_frame + zeros);
        self.next_frame += zeros + FILE_HEADER_LEN;
        self.sequence = None;
        true
    }

    /// Ends the log where another log begins, which needs a reader of its own.
    fn end_at(&mut self, begin: usize) -> ReadError {
        self.bytes = &self.bytes[..begin];
        self.payload = &[];
        self.next_frame = begin;
        ReadError {
            offset: begin as u64,
            kind: ReadErrorKind::NotContinued,
        }
    }

    fn enter_frame(&mut self) -> Result<(), ReadError> {
        let start = self.next_frame;
        let fail = |kind| {
            Err(ReadError {
                offset: start as u64,
                kind,
            })
        };
        let rest = &self.bytes[start..];
        let Some(header) = FrameHeader::parse(rest) else {
            return fail(if rest.len() < FRAME_HEADER_LEN {
                ReadErrorKind::TornTail
            } else {
                ReadErrorKind::NoFrame
            });
        };
        let end = FRAME_HEADER_LEN + header.length as usize;
        let Some(payload) = rest.get(FRAME_HEADER_LEN..end) else {
            return fail(ReadErrorKind::TornTail);
        };
        if !self.search.is_intact(&header, payload) {
            return fail(ReadErrorKind::Checksum);
        }
        if let Some(previous) = self.sequence {
            let step = header.sequence.wrapping_sub(previous);
            if step > u32::MAX / 2 {
                // The first frames again: a further segment, whose header is damaged.
                self.segments.enter(start);
            } else {
                self.missing_frames += u64::from(step.saturating_sub(1));
            }
        }
        self.sequence = Some(header.sequence);
        self.next_frame = start + end;
        self.payload = payload;
        let Some(time) = take(&mut self.payload) else {
            return fail(ReadErrorKind::Record);
        };
        self.deltas = Deltas {
            time,
            ..Deltas::default()
        };
        Ok(())
    }

    /// Takes a record. Returns `None` if it is malformed, and `Some(None)` if there is nothing to
    /// report.
    #[inline]
    fn take_record(&mut self) -> Option<Option<Record>> {
        let (&tag, rest) = self.payload.split_first()?;
        self.payload = rest;
        match tag & 3 {
            KIND_ALLOC => Some(Some(Record::Alloc(self.take_alloc(tag)?))),
            KIND_PLAIN => Some(Some(Record::Alloc(self.take_plain(tag)?))),
            KIND_FREE => Some(Some(Record::Free(self.take_free(tag)?))),
            KIND_OTHER => {
                let len = usize::try_from(take(&mut self.payload)?).ok()?;
                let mut body = self.payload.get(..len)?;
                self.payload = &self.payload[len..];
                match Kind::from_u8(tag >> 2) {
                    Some(Kind::Interval) => {
                        self.deltas.interval = take(&mut body)?;
                        Some(None)
                    }
                    Some(kind) => take_body(kind, body).map(Some),
                    None => Some(None),
                }
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn take_alloc(&mut self, tag: u8) -> Option<Alloc> {
        self.take_hot(tag)?;
        let step = unzigzag(take(&mut self.payload)?);
        let id = self.deltas.id().wrapping_add(1).wrapping_add(step as u64);
        *self.deltas.id() = id;
        Some(Alloc {
            time_ns: self.deltas.time.checked_mul(TIME_UNIT_NS)?,
            thread: self.deltas.thread,
            id,
            stack: u32::try_from(take(&mut self.payload)?).ok()?,
            size: take(&mut self.payload)?,
            slack: take(&mut self.payload)?,
            interval: self.deltas.interval,
        })
    }

    #[inline(always)]
    fn take_plain(&mut self, tag: u8) -> Option<Alloc> {
        let step = u64::from(tag >> 3);
        if tag & THREAD_FOLLOWS != 0 || step == TIME_IN_TAG {
            return None; // no writer writes that
        }
        let (fields, rest) = self.payload.split_at_checked(plain::LEN - 1)?;
        let mut bytes = [0; 8];
        bytes[1..plain::LEN].copy_from_slice(fields);
        let word = u64::from_le_bytes(bytes);
        let field = |shift: u32, bits: u32| word >> shift & ((1 << bits) - 1);
        self.deltas.time = self.deltas.time.checked_add(step)?;
        let id = self.deltas.id().wrapping_add(1);
        let alloc = Alloc {
            time_ns: self.deltas.time.checked_mul(TIME_UNIT_NS)?,
            thread: self.deltas.thread,
            id,
            stack: field(plain::STACK_SHIFT, plain::STACK_BITS) as u32,
            size: field(plain::SIZE_SHIFT, plain::SIZE_BITS),
            slack: field(plain::SLACK_SHIFT, plain::SLACK_BITS),
            interval: self.deltas.interval,
        };
        *self.deltas.id() = id;
        self.payload = rest;
        Some(alloc)
    }

    #[inline(always)]
    fn take_free(&mut self, tag: u8) -> Option<Free> {
        self.take_hot(tag)?;
        let step = unzigzag(take(&mut self.payload)?);
        Some(Free {
            time_ns: self.deltas.time.checked_mul(TIME_UNIT_NS)?,
            thread: self.deltas.thread,
            id: self.deltas.id().wrapping_sub(step as u64),
        })
    }

    #[inline]
    fn take_hot(&mut self, tag: u8) -> Option<()> {
        if tag & THREAD_FOLLOWS != 0 {
            self.deltas.thread = u32::try_from(take(&mut self.payload)?).ok()?;
        }
        let mut step = u64::from(tag >> 3);
        if step == TIME_IN_TAG {
            step = take(&mut self.payload)?;
        }
        self.deltas.time = self.deltas.time.checked_add(step)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Encoder;

    fn free(id: u64) -> Record {
        Record::Free(Free {
            time_ns: 1000,
            thread: 0,
            id,
        })
    }

    /// Returns a log of two frames: a free of block 1 and bytes that are no record; then a free of
    /// block 2.
    fn with_nonsense(nonsense: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new();
        let mut bytes = FILE_HEADER.to_vec();
        encoder.record(&free(1));
        let mut payload = encoder.finish()[FRAME_HEADER_LEN..].to_vec();
        payload.extend_from_slice(nonsense);
        bytes.extend_from_slice(&FrameHeader::for_payload(0, &payload).to_bytes());
        bytes.extend_from_slice(&payload);
        encoder.record(&free(2));
        bytes.extend_from_slice(encoder.finish());
        bytes
    }

    #[test]
    fn a_malformed_record_costs_the_rest_of_its_frame() {
        const NO_KIND: u8 = 3;
        const CUT: u8 = KIND_FREE | THREAD_FOLLOWS;
        for nonsense in [&[NO_KIND, 0, 0, 0][..], &[CUT, 0xff], &[KIND_OTHER, 9, 1]] {
            let bytes = with_nonsense(nonsense);
            let mut reader = Reader::new(&bytes).unwrap();
            assert_eq!(reader.next_record(), Ok(Some(free(1))));
            // Each call returns the error, in either way.
            let malformed = ReadError {
                offset: reader.offset(),
                kind: ReadErrorKind::Record,
            };
            for _ in 0..2 {
                assert_eq!(reader.next_event(), None);
                assert_eq!(reader.next_record(), Err(malformed));
            }
            assert_eq!(reader.skip_damage(), Some(nonsense.len() as u64));
            assert_eq!(reader.next_record(), Ok(Some(free(2))));
            assert_eq!(
                (reader.next_record(), reader.missing_frames()),
                (Ok(None), 0)
            );
        }
    }

    /// Returns a log of a frame with the free of block 1 and a frame with those of blocks 2 to 9,
    /// and the length of the first.
    fn two_frames() -> (Vec<u8>, usize) {
        let mut encoder = Encoder::new();
        let mut bytes = FILE_HEADER.to_vec();
        encoder.record(&free(1));
        bytes.extend_from_slice(encoder.finish());
        let first = bytes.len();
        (2..=9).for_each(|id| encoder.record(&free(id)));
        bytes.extend_from_slice(encoder.finish());
        (bytes, first)
    }

    /// Returns the ids of the frees in the log, and the offset of the tear.
    fn read_past_the_cut(bytes: &[u8]) -> (Vec<u64>, Option<u64>) {
        let mut reader = Reader::new(bytes).unwrap();
        let mut ids = Vec::new();
        loop {
            match reader.next_record() {
                Ok(Some(Record::Free(free))) => ids.push(free.id),
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) => return (ids, None),
                Err(_) if reader.skip_damage().is_some() || reader.enter_cut_frame() => {}
                Err(error) => {
                    assert_eq!(error.kind, ReadErrorKind::TornTail);
                    assert_eq!(reader.next_record(), Err(error));
                    return (ids, Some(error.offset));
                }
            }
        }
    }

    #[test]
    fn a_cut_costs_the_records_behind_it() {
        let (bytes, first) = two_frames();
        let all: Vec<u64> = (1..=9).collect();
        assert_eq!(read_past_the_cut(&bytes), (all.clone(), None));
        let mut seen = 0;
        for end in first + 1..bytes.len() {
            // Zeros in place of the bytes that were not written: up to the frame's end, and past
            // it.
            let mut zeros = bytes[..end].to_vec();
            zeros.resize(bytes.len(), 0);
            let mut more = zeros.clone();
            more.resize(bytes.len() + 4096, 0);
            let (ids, tear) = read_past_the_cut(&bytes[..end]);
            assert_eq!(ids, all[..ids.len()], "cut at {end}");
            assert!(ids.len() >= seen.max(1), "cut at {end}");
            seen = ids.len();
            assert!(tear.is_some_and(|tear| (first as u64..=end as u64).contains(&tear)));
            for zeroed in [&zeros, &more] {
                let mut reader = Reader::new(zeroed).unwrap();
                assert_eq!(reader.next_record(), Ok(Some(free(1))));
                assert!(reader.next_record().is_err());
                let mut found = vec![1];
                if reader.skip_damage().is_none() && reader.enter_cut_frame() {
                    while let Ok(Some(Record::Free(free))) = reader.next_record() {
                        found.push(free.id);
                    }
                }
                assert!(found.len() <= ids.len(), "zeros from {end}");
                assert_eq!(found, all[..found.len()], "zeros from {end}");
            }
        }
        assert_eq!(seen, 8, "all but the last record");
    }

    #[test]
    fn the_last_frame_is_found_from_the_end() {
        let (bytes, first) = two_frames();
        let ids = |bytes: &[u8]| {
            let mut reader = Reader::of_last_frame(bytes)?;
            let mut ids = Vec::new();
            while let Ok(Some(Record::Free(free))) = reader.next_record() {
                ids.push(free.id);
            }
            Some(ids)
        };
        assert_eq!(ids(&bytes), Some((2..=9).collect()));
        assert_eq!(ids(&bytes[..first]), Some(vec![1]));
        assert_eq!(ids(&bytes[..bytes.len() - 1]), None);
        assert_eq!(ids(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(ids(&FILE_HEADER), None);
    }

    #[test]
    fn a_damaged_frame_and_one_out_of_order_are_not_entered() {
        let (mut bytes, first) = two_frames();
        // The whole frame is there, with one bit that is wrong.
        bytes[first + FRAME_HEADER_LEN + 3] ^= 1;
        let mut reader = Reader::new(&bytes).unwrap();
        assert_eq!(reader.next_record(), Ok(Some(free(1))));
        let error = reader.next_record().unwrap_err();
        assert_eq!(error.kind, ReadErrorKind::Checksum);
        assert_eq!(reader.skip_damage(), None);
        assert!(!reader.enter_cut_frame());
        // The second frame is cut, and another number than the next.
        let (mut bytes, first) = two_frames();
        bytes[first + 12] += 1;
        bytes.pop();
        assert_eq!(read_past_the_cut(&bytes), (vec![1], Some(first as u64)));
    }

    #[test]
    fn events_are_read_one_by_one_as_records_are() {
        let bytes = with_nonsense(&[]);
        let mut reader = Reader::new(&bytes).unwrap();
        // The other function enters a frame.
        assert_eq!(reader.next_event(), None);
        assert_eq!(reader.next_record(), Ok(Some(free(1))));
        let mut encoder = Encoder::new();
        let mut both = FILE_HEADER.to_vec();
        let marker = Record::Marker {
            time_ns: 1000,
            name: "noon".into(),
        };
        for record in [&free(1), &free(2), &marker, &free(3)] {
            encoder.record(record);
        }
        both.extend_from_slice(encoder.finish());
        let mut reader = Reader::new(&both).unwrap();
        assert_eq!(reader.next_record(), Ok(Some(free(1))));
        let event = |id| {
            Some(Event::Free(Free {
                time_ns: 1000,
                thread: 0,
                id,
            }))
        };
        assert_eq!(reader.next_event(), event(2));
        assert_eq!(reader.next_event(), None);
        assert_eq!(reader.next_record(), Ok(Some(marker)));
        assert_eq!(reader.next_event(), event(3));
        assert_eq!(
            (reader.next_event(), reader.next_record()),
            (None, Ok(None))
        );
    }
}
