//! Writing: records to the bytes of a frame.
//!
//! ```text
//! hot record   0bTTTTT S KK     KK 0 alloc, 1 free
//!                               S  1: the thread changed, its number follows as a varint
//!                               T  microseconds since the record before, 0..=30;
//!                                  31: a varint follows
//!   alloc      [thread] [dt] zigzag(id - (previous id + 1)) stack size slack
//!   free       [thread] [dt] zigzag(previous id - id)
//! other        0bRRRRRR 11 length body      R: kind of record, see `body.rs`
//! ```
//!
//! "Previous id" is that of the last alloc of a thread with the same number modulo 16: a thread's ids follow each other,
//! whatever other threads do meanwhile. The interval of allocs is state as well, set by a record of its own; all
//! state begins anew in each frame.

use crate::body::{Kind, put_body};
use crate::frame::{FRAME_HEADER_LEN, FrameHeader};
use crate::record::{Alloc, Free, Record};
use crate::varint::{each_byte, put, zigzag};

/// Nanoseconds in the log's unit of time.
pub(crate) const TIME_UNIT_NS: u64 = 1000;

/// Largest time step that fits the hot byte; one more means "a varint follows".
pub(crate) const TIME_IN_TAG: u64 = 31;

pub(crate) const KIND_ALLOC: u8 = 0;
pub(crate) const KIND_FREE: u8 = 1;
pub(crate) const KIND_OTHER: u8 = 3;
pub(crate) const THREAD_FOLLOWS: u8 = 4;

/// What deltas refer to, on both sides. Begins anew in each frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deltas {
    /// In [`TIME_UNIT_NS`].
    pub(crate) time: u64,
    pub(crate) thread: u32,
    pub(crate) ids: [u64; 16],
    pub(crate) interval: u64,
}

impl Deltas {
    /// The previous id, as the module's text has it, for the thread in force.
    #[inline]
    pub(crate) fn id(&mut self) -> &mut u64 {
        &mut self.ids[self.thread as usize % 16]
    }
}

/// Builds frames. One is made for each log and used until its end.
///
/// ```
/// use heapprof_format::{Encoder, FILE_HEADER, Free, Reader, Record};
/// let mut encoder = Encoder::new();
/// encoder.free(&Free { time_ns: 5_000, thread: 1, id: 42 });
/// let mut file = FILE_HEADER.to_vec();
/// file.extend_from_slice(encoder.finish());
/// let mut reader = Reader::new(&file).unwrap();
/// assert_eq!(
///     reader.next_record().unwrap(),
///     Some(Record::Free(Free { time_ns: 5_000, thread: 1, id: 42 }))
/// );
/// ```
#[derive(Debug, Default)]
pub struct Encoder {
    /// Room for the header, then the payload, up to `end`; behind that there is room for more.
    bytes: Vec<u8>,
    /// [`CLOSED`] between two frames, where nothing has a place: so the usual record need not ask whether one has begun.
    end: usize,
    /// Room for the body of a record, which is written before its length is known.
    body: Vec<u8>,
    deltas: Deltas,
    sequence: u32,
    /// Whether a frame has begun that is not finished.
    is_open: bool,
}

impl Encoder {
    /// An encoder whose first frame will be number 0.
    pub fn new() -> Self {
        Encoder::default()
    }

    /// Bytes of the frame so far; 0 when it is empty.
    pub fn pending(&self) -> usize {
        if self.is_open { self.end } else { 0 }
    }

    /// Ends the frame and returns its bytes, header included, to be appended to the file. The next
    /// record begins another. Returns an empty slice when there is nothing to write.
    pub fn finish(&mut self) -> &[u8] {
        if self.pending() == 0 {
            return &[];
        }
        let end = std::mem::replace(&mut self.end, CLOSED);
        let frame = &mut self.bytes[..end];
        let header = FrameHeader::for_payload(self.sequence, &frame[FRAME_HEADER_LEN..]);
        frame[..FRAME_HEADER_LEN].copy_from_slice(&header.to_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        self.is_open = false;
        frame
    }

    /// Adds any record.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Alloc(alloc) => self.alloc(alloc),
            Record::Free(free) => self.free(free),
            with_body => {
                let mut body = std::mem::take(&mut self.body);
                body.clear();
                if let Some(head) = put_body(with_body, &mut body) {
                    self.with_body(head.kind, head.frame_ns, &body);
                }
                self.body = body;
            }
        }
    }

    /// Adds an allocation. A time before that of the record before it is written as that one's.
    #[inline(always)]
    pub fn alloc(&mut self, alloc: &Alloc) {
        let step = (alloc.time_ns / TIME_UNIT_NS).wrapping_sub(self.deltas.time);
        let stack = u64::from(alloc.stack);
        // The thread's next sample, a moment later, as nearly always: then a word holds all of it.
        let is_next = self.goes_on_with(alloc.thread, step)
            && alloc.interval == self.deltas.interval
            && alloc.id == self.deltas.id().wrapping_add(1);
        if is_next
            && stack | alloc.size | alloc.slack < Packed::LIMIT
            && let Some(place) = place_at(&mut self.bytes, self.end)
        {
            let packed = Packed::tag(KIND_ALLOC, step).and(0);
            let packed = packed.and(stack).and(alloc.size).and(alloc.slack);
            *place = packed.bytes.to_le_bytes();
            self.end += packed.bits / 8;
            self.deltas.time += step;
            *self.deltas.id() = alloc.id;
        } else {
            self.any_alloc(&{ *alloc }); // a copy, so that the usual one needs no place in memory
        }
    }

    /// The same of one that may be as it likes.
    #[inline(never)]
    fn any_alloc(&mut self, alloc: &Alloc) {
        self.open(alloc.time_ns);
        if alloc.interval != self.deltas.interval {
            self.deltas.interval = alloc.interval;
            let mut body = std::mem::take(&mut self.body);
            body.clear();
            put(&mut body, alloc.interval);
            self.with_body(Kind::Interval, alloc.time_ns, &body);
            self.body = body;
        }
        let step = self.step_to(alloc.time_ns);
        let is_other_thread = self.switch_to(alloc.thread);
        let expected = self.deltas.id().wrapping_add(1);
        *self.deltas.id() = alloc.id;
        let distance = zigzag(alloc.id.wrapping_sub(expected) as i64);
        let other_thread = is_other_thread.then_some(alloc.thread);
        let stack = u64::from(alloc.stack);
        let mut out = self.hot();
        if let Some(begun) = Packed::begin(KIND_ALLOC, step, other_thread)
            && distance | stack | alloc.size | alloc.slack < Packed::LIMIT
        {
            out.packed(begun.and(distance));
            out.packed(Packed::NONE.and(stack).and(alloc.size).and(alloc.slack));
        } else {
            out.begin(KIND_ALLOC, step, other_thread);
            for number in [distance, stack, alloc.size, alloc.slack] {
                out.put(number);
            }
        }
        self.end += out.len;
    }

    /// Adds a free. A time before that of the record before it is written as that one's.
    #[inline(always)]
    pub fn free(&mut self, free: &Free) {
        let step = (free.time_ns / TIME_UNIT_NS).wrapping_sub(self.deltas.time);
        let distance = zigzag(self.deltas.id().wrapping_sub(free.id) as i64);
        if self.goes_on_with(free.thread, step)
            && distance < Packed::LIMIT
            && let Some(place) = place_at(&mut self.bytes, self.end)
        {
            let packed = Packed::tag(KIND_FREE, step).and(distance);
            *place = packed.bytes.to_le_bytes();
            self.end += packed.bits / 8;
            self.deltas.time += step;
        } else {
            self.any_free(&{ *free });
        }
    }

    /// The same of one that may be as it likes.
    #[inline(never)]
    fn any_free(&mut self, free: &Free) {
        self.open(free.time_ns);
        let step = self.step_to(free.time_ns);
        let is_other_thread = self.switch_to(free.thread);
        let previous = *self.deltas.id();
        let distance = zigzag(previous.wrapping_sub(free.id) as i64);
        let other_thread = is_other_thread.then_some(free.thread);
        let mut out = self.hot();
        if let Some(begun) = Packed::begin(KIND_FREE, step, other_thread)
            && distance < Packed::LIMIT
        {
            out.packed(begun.and(distance));
        } else {
            out.begin(KIND_FREE, step, other_thread);
            out.put(distance);
        }
        self.end += out.len;
    }

    /// Whether a hot record of that thread, so many units after the one before, begins with its tag and no more.
    #[inline(always)]
    fn goes_on_with(&self, thread: u32, step: u64) -> bool {
        step < TIME_IN_TAG && thread == self.deltas.thread
    }

    /// Goes on to that time. Returns how far it was.
    #[inline(always)]
    fn step_to(&mut self, time_ns: u64) -> u64 {
        let step = (time_ns / TIME_UNIT_NS).saturating_sub(self.deltas.time);
        self.deltas.time += step;
        step
    }

    /// Goes over to that thread. Returns whether it was another.
    #[inline(always)]
    fn switch_to(&mut self, thread: u32) -> bool {
        std::mem::replace(&mut self.deltas.thread, thread) != thread
    }

    /// Where the next hot record goes.
    #[inline(always)]
    fn hot(&mut self) -> Hot<'_> {
        if self.bytes.len() < self.end + LONGEST_HOT {
            self.make_room(LONGEST_HOT);
        }
        match self.bytes[self.end..].first_chunk_mut() {
            Some(bytes) => Hot { bytes, len: 0 },
            None => unreachable!("room was made"),
        }
    }

    /// Makes room for `more` bytes behind the end, and then some.
    #[cold]
    fn make_room(&mut self, more: usize) {
        let least = self.end + more;
        self.bytes
            .resize(least.max(2 * self.bytes.len()).max(256), 0);
    }

    /// Adds bytes.
    fn extend(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        if self.bytes.len() < end {
            self.make_room(bytes.len());
        }
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    /// A record with a length: what a reader that does not know it can skip.
    fn with_body(&mut self, kind: Kind, frame_ns: u64, body: &[u8]) {
        self.open(frame_ns);
        let mut out = self.hot();
        out.byte(KIND_OTHER | (kind as u8) << 2);
        out.put(body.len() as u64);
        self.end += out.len;
        self.extend(body);
    }

    /// Begins a frame if none is open, at that time.
    #[inline]
    fn open(&mut self, time_ns: u64) {
        if !self.is_open {
            self.begin(time_ns);
        }
    }

    #[cold]
    fn begin(&mut self, time_ns: u64) {
        self.is_open = true;
        self.end = FRAME_HEADER_LEN;
        self.deltas = Deltas {
            time: time_ns / TIME_UNIT_NS,
            ..Deltas::default()
        };
        let time = self.deltas.time;
        let mut out = self.hot();
        out.put(time);
        self.end += out.len;
    }
}

/// No place in a frame.
const CLOSED: usize = usize::MAX;

/// A word's bytes from `end` on, if there is room for them.
#[inline(always)]
fn place_at(bytes: &mut [u8], end: usize) -> Option<&mut [u8; 8]> {
    let last = bytes.len().checked_sub(8)?;
    if end > last {
        return None;
    }
    bytes[end..end + 8].first_chunk_mut()
}

/// Bytes of the longest hot record, and more: one, and six varints of at most ten.
const LONGEST_HOT: usize = 64;

/// A short record in its place, being written. Into an array and not onto a vector, which would ask before each byte whether there is
/// room.
struct Hot<'a> {
    bytes: &'a mut [u8; LONGEST_HOT],
    len: usize,
}

impl Hot<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.len % LONGEST_HOT] = byte;
        self.len += 1;
    }

    /// As [`put`].
    #[inline(always)]
    fn put(&mut self, value: u64) {
        each_byte(value, |byte| self.byte(byte));
    }

    /// Whatever has been packed, of which there may be two in a record.
    #[inline(always)]
    fn packed(&mut self, packed: Packed) {
        let at = self.len % (LONGEST_HOT / 2);
        self.bytes[at..at + 8].copy_from_slice(&packed.bytes.to_le_bytes());
        self.len += packed.bits / 8;
    }

    /// The byte that every hot record begins with, and what it announces. `thread`: if it changed.
    #[inline(always)]
    fn begin(&mut self, kind: u8, step: u64, thread: Option<u32>) {
        let tag = kind | (step.min(TIME_IN_TAG) as u8) << 3;
        self.byte(match thread {
            Some(_) => tag | THREAD_FOLLOWS,
            None => tag,
        });
        if let Some(thread) = thread {
            self.put(u64::from(thread));
        }
        if step >= TIME_IN_TAG {
            self.put(step);
        }
    }
}

/// Varints of a byte or two each, up to three of them, or two behind a tag, side by side in a word. Nothing is asked on the way: sizes and
/// distances come in any order, and to guess wrongly how long one is takes a processor longer than all else that it does here.
struct Packed {
    bytes: u64,
    bits: usize,
}

impl Packed {
    /// Numbers below it have a byte or two.
    const LIMIT: u64 = 1 << 14;
    const NONE: Packed = Packed { bytes: 0, bits: 0 };

    /// The byte that a hot record begins with, `step` being short.
    #[inline(always)]
    fn tag(kind: u8, step: u64) -> Packed {
        Packed {
            bytes: u64::from(kind) | step << 3,
            bits: 8,
        }
    }

    /// What [`Hot::begin`] writes, if it is short.
    #[inline(always)]
    fn begin(kind: u8, step: u64, thread: Option<u32>) -> Option<Packed> {
        let tag = Packed::tag(kind, step);
        let begun = match thread {
            None => tag,
            Some(thread) if u64::from(thread) < Packed::LIMIT => Packed {
                bytes: tag.bytes | u64::from(THREAD_FOLLOWS),
                ..tag
            }
            .and(thread.into()),
            Some(_) => return None,
        };
        (step < TIME_IN_TAG).then_some(begun)
    }

    /// And that number, below [`LIMIT`](Self::LIMIT).
    #[inline(always)]
    fn and(self, number: u64) -> Packed {
        let upper = number & !0x7f; // added once more, it is moved up by the bit that says that it follows
        let has_upper = upper != 0;
        let bytes = number + upper + (u64::from(has_upper) << 7);
        Packed {
            bytes: self.bytes | bytes << self.bits,
            bits: self.bits + 8 + 8 * usize::from(has_upper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_a_place_where_there_are_eight_bytes() {
        let mut bytes = [0; 20];
        for length in 0..=20 {
            for end in (0..24).chain([usize::MAX - 8, CLOSED]) {
                let place = place_at(&mut bytes[..length], end);
                let fits = end.checked_add(8).is_some_and(|end| end <= length);
                assert_eq!(place.is_some(), fits, "{end} of {length}");
            }
        }
    }
}
