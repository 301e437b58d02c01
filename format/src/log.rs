//! Encoder: writes records as the bytes of a frame.
//!
//! ```text
//! hot record   0bTTTTT S KK     KK 0 alloc, 1 free, 2 plain alloc
//!                               S  1: the thread changed, its number follows as a varint
//!                               T  microseconds since the record before, 0..=30;
//!                                  31: a varint follows
//!   alloc      [thread] [dt] zigzag(id - (previous id + 1)) stack size slack
//!   free       [thread] [dt] zigzag(previous id - id)
//!   plain alloc              stack:14 size:14 slack:12, least significant bit first;
//!                            the id is the next, S is 0, T not 31
//! other        0bRRRRRR 11 length body      R: kind of record, see `body.rs`
//! ```
//!
//! "Previous id" is that of the last alloc of a thread with the same number modulo 16: a thread's
//! ids are consecutive, whatever other threads do. The interval of allocs is state as well, which a
//! record of its own sets. All state starts again in each frame.

use crate::body::{Kind, put_body};
use crate::field::TIME_UNIT_NS;
use crate::frame::{FRAME_HEADER_LEN, FrameHeader};
use crate::record::{Alloc, Free, Record};
use crate::varint::{each_byte, put, zigzag};

/// Value of the hot byte's time step that means "a varint follows". Shorter steps fit the byte.
pub(crate) const TIME_IN_TAG: u64 = 31;

pub(crate) const KIND_ALLOC: u8 = 0;
pub(crate) const KIND_FREE: u8 = 1;
pub(crate) const KIND_PLAIN: u8 = 2;
pub(crate) const KIND_OTHER: u8 = 3;
pub(crate) const THREAD_FOLLOWS: u8 = 4;

/// The fields of a plain allocation: a word of six bytes.
pub(crate) mod plain {
    pub(crate) const LEN: usize = 6;
    pub(crate) const STACK_SHIFT: u32 = 8;
    pub(crate) const STACK_BITS: u32 = 14;
    pub(crate) const SIZE_SHIFT: u32 = STACK_SHIFT + STACK_BITS;
    pub(crate) const SIZE_BITS: u32 = 14;
    pub(crate) const SLACK_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;
    pub(crate) const SLACK_BITS: u32 = 12;

    const _: () = assert!(SLACK_SHIFT + SLACK_BITS == 8 * LEN as u32);

    /// Returns true if an allocation can be a plain one.
    #[inline(always)]
    pub(super) fn fits(size: u64, slack: u64, stack: u32) -> bool {
        size >> SIZE_BITS | slack >> SLACK_BITS == 0 && stack >> STACK_BITS == 0
    }

    /// Returns the bytes of a plain allocation with a short `step`.
    #[inline(always)]
    pub(super) fn bytes(step: u64, size: u64, slack: u64, stack: u32) -> u64 {
        u64::from(super::KIND_PLAIN)
            | step << 3
            | u64::from(stack) << STACK_SHIFT
            | size << SIZE_SHIFT
            | slack << SLACK_SHIFT
    }
}

/// The reference of deltas, on both sides. It starts again in each frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deltas {
    /// Time in [`TIME_UNIT_NS`].
    pub(crate) time: u64,
    pub(crate) thread: u32,
    pub(crate) ids: [u64; 16],
    pub(crate) interval: u64,
}

impl Deltas {
    /// Returns the previous id, as the module's text defines it, for the current thread.
    #[inline]
    pub(crate) fn id(&mut self) -> &mut u64 {
        &mut self.ids[self.thread as usize % 16]
    }
}

/// Builder of frames. A log has one, from its beginning to its end.
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
    /// Room for the header, then the payload, up to `end`; free room follows.
    bytes: Vec<u8>,
    end: usize,
    /// Room for the body of a record, which is written before its length is known.
    body: Vec<u8>,
    deltas: Deltas,
    sequence: u32,
    /// True if a frame is begun and not finished.
    is_open: bool,
}

impl Encoder {
    /// Returns an encoder whose first frame is number 0.
    pub fn new() -> Self {
        Encoder::default()
    }

    /// Returns the bytes of the frame so far; 0 if it is empty.
    pub fn pending(&self) -> usize {
        if self.is_open { self.end } else { 0 }
    }

    /// Returns the sequence number of the next frame, or of the open one.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Ends the frame. Returns its bytes, header included, to be appended to the file, or an empty
    /// slice if there are no records. The next record begins another frame.
    pub fn finish(&mut self) -> &[u8] {
        if self.pending() == 0 {
            return &[];
        }
        let frame = &mut self.bytes[..self.end];
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

    /// Adds an allocation. A time before that of the previous record is replaced by that record's
    /// time.
    pub fn alloc(&mut self, alloc: &Alloc) {
        let time = alloc.time_ns / TIME_UNIT_NS;
        let last_id = alloc.id.wrapping_sub(1);
        if let Some(mut usual) = self.usual(alloc.thread, alloc.interval, last_id) {
            let is_added = usual.alloc(time, alloc.size, alloc.slack, alloc.stack);
            usual.finish(is_added.into());
            if is_added {
                return;
            }
        }
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

    /// Adds a free. A time before that of the previous record is replaced by that record's time.
    pub fn free(&mut self, free: &Free) {
        let time = free.time_ns / TIME_UNIT_NS;
        let (interval, last_id) = (self.deltas.interval, *self.deltas.id());
        if let Some(mut usual) = self.usual(free.thread, interval, last_id) {
            let is_added = usual.free(time, last_id.wrapping_sub(free.id));
            usual.finish(0);
            if is_added {
                return;
            }
        }
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

    /// Returns an encoder of usual records of that thread, with that interval of allocations and
    /// that last id. Returns `None` if the next record has to be added otherwise.
    #[inline(always)]
    pub fn usual(&mut self, thread: u32, interval: u64, last_id: u64) -> Option<Usual<'_>> {
        let deltas = &mut self.deltas;
        let goes_on = self.is_open
            && thread == deltas.thread
            && interval == deltas.interval
            && last_id == *deltas.id();
        goes_on.then_some(Usual {
            bytes: &mut self.bytes,
            end: self.end,
            time: deltas.time,
            reached: &mut self.end,
            deltas,
        })
    }

    /// Advances to that time. Returns the distance.
    #[inline(always)]
    fn step_to(&mut self, time_ns: u64) -> u64 {
        let step = (time_ns / TIME_UNIT_NS).saturating_sub(self.deltas.time);
        self.deltas.time += step;
        step
    }

    /// Switches to that thread. Returns true if it is another one.
    #[inline(always)]
    fn switch_to(&mut self, thread: u32) -> bool {
        std::mem::replace(&mut self.deltas.thread, thread) != thread
    }

    /// Returns the place of the next hot record.
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

    /// Makes room for at least `more` bytes behind the end.
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

    /// Adds a record with a length, which a reader that does not know it can skip.
    fn with_body(&mut self, kind: Kind, frame_ns: u64, body: &[u8]) {
        self.open(frame_ns);
        let mut out = self.hot();
        out.byte(KIND_OTHER | (kind as u8) << 2);
        out.put(body.len() as u64);
        self.end += out.len;
        self.extend(body);
    }

    /// Begins a frame at that time, if none is open.
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

/// Encoder of usual records: all of one thread and one interval, each a moment after the one
/// before, with consecutive ids. Each is one word, and its references need no lookup. The records
/// count once it is [finished](Self::finish).
#[derive(Debug)]
#[must_use]
pub struct Usual<'a> {
    bytes: &'a mut [u8],
    /// Copies of the encoder's fields. Nothing else uses these, so they are in registers.
    end: usize,
    time: u64,
    reached: &'a mut usize,
    deltas: &'a mut Deltas,
}

impl Usual<'_> {
    /// Adds an allocation with the next id at that time, in [`TIME_UNIT_NS`]. Returns false, and
    /// adds nothing, if it is not usual.
    #[inline(always)]
    pub fn alloc(&mut self, time: u64, size: u64, slack: u64, stack: u32) -> bool {
        let step = time.wrapping_sub(self.time);
        if step >= TIME_IN_TAG {
            return false;
        }
        if plain::fits(size, slack, stack) {
            let bytes = plain::bytes(step, size, slack, stack);
            return self.add(time, bytes, plain::LEN);
        }
        let place = self.bytes.get_mut(self.end..);
        let Some(place) = place.and_then(<[u8]>::first_chunk_mut) else {
            return false;
        };
        self.end += put_next_alloc(place, step, size, slack, stack);
        self.time = time;
        true
    }

    /// Adds a free and then an allocation at one time. Returns false, and adds neither, if they are
    /// not usual.
    #[inline(always)]
    pub fn replace(&mut self, time: u64, back: u64, size: u64, slack: u64, stack: u32) -> bool {
        let step = time.wrapping_sub(self.time);
        let fits = plain::fits(size, slack, stack);
        if step >= TIME_IN_TAG || !fits || back >= 0x40 {
            return false;
        }
        // A free of two bytes and a plain allocation: one word.
        let free = Packed::tag(KIND_FREE, step).bytes | back << 9;
        let bytes = free | plain::bytes(0, size, slack, stack) << 16;
        self.add(time, bytes, 2 + plain::LEN)
    }

    /// Adds the free of the block that was allocated `back` allocations before the last. Returns
    /// false as [`alloc`](Self::alloc) does.
    #[inline(always)]
    pub fn free(&mut self, time: u64, back: u64) -> bool {
        let step = time.wrapping_sub(self.time);
        if step >= TIME_IN_TAG || back >= Packed::LIMIT / 2 {
            return false;
        }
        // as `zigzag` of a number that is not negative
        let packed = Packed::tag(KIND_FREE, step).and(back << 1);
        self.add(time, packed.bytes, packed.bits / 8)
    }

    /// Ends the sequence, with the number of its allocations.
    #[inline(always)]
    pub fn finish(self, allocs: u64) {
        *self.reached = self.end;
        self.deltas.time = self.time;
        *self.deltas.id() += allocs;
    }

    /// Adds a record, the first bytes of a word, at that time, if there is room for the whole word.
    #[inline(always)]
    fn add(&mut self, time: u64, bytes: u64, len: usize) -> bool {
        let place = self.bytes.get_mut(self.end..);
        let Some(place) = place.and_then(<[u8]>::first_chunk_mut) else {
            return false;
        };
        *place = bytes.to_le_bytes();
        self.end += len;
        self.time = time;
        true
    }
}

/// Writes an allocation with the next id and a short `step` that is not plain. Returns its number
/// of bytes. It is a function of its own so that `Usual` keeps its words in registers.
#[inline(never)]
fn put_next_alloc(
    place: &mut [u8; LONGEST_HOT],
    step: u64,
    size: u64,
    slack: u64,
    stack: u32,
) -> usize {
    let mut out = Hot {
        bytes: place,
        len: 0,
    };
    out.begin(KIND_ALLOC, step, None);
    for number in [zigzag(0), stack.into(), size, slack] {
        out.put(number);
    }
    out.len
}

/// More than the longest hot record: one byte, and six varints of at most ten.
const LONGEST_HOT: usize = 64;

/// A hot record that is being written in place. It writes into an array: a vector would check its
/// capacity before each byte.
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

    /// Appends a varint, as [`put`].
    #[inline(always)]
    fn put(&mut self, value: u64) {
        each_byte(value, |byte| self.byte(byte));
    }

    /// Appends packed varints, of which a record may have two groups.
    #[inline(always)]
    fn packed(&mut self, packed: Packed) {
        let at = self.len % (LONGEST_HOT / 2);
        self.bytes[at..at + 8].copy_from_slice(&packed.bytes.to_le_bytes());
        self.len += packed.bits / 8;
    }

    /// Writes the first byte of a hot record, and the varints that it announces. `thread` is the
    /// thread if it changed.
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

/// Short varints side by side in a word: up to three, or two behind a tag. It has no branches.
/// Sizes and distances come in any order, and a mispredicted length costs more than all other work
/// here.
struct Packed {
    bytes: u64,
    bits: usize,
}

impl Packed {
    /// Numbers below it take a byte or two.
    const LIMIT: u64 = 1 << 14;
    const NONE: Packed = Packed { bytes: 0, bits: 0 };

    /// Returns the first byte of a hot record with a short `step`.
    #[inline(always)]
    fn tag(kind: u8, step: u64) -> Packed {
        Packed {
            bytes: u64::from(kind) | step << 3,
            bits: 8,
        }
    }

    /// Returns the bytes of [`Hot::begin`] if they are short.
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

    /// Appends a number below [`LIMIT`](Self::LIMIT).
    #[inline(always)]
    fn and(self, number: u64) -> Packed {
        let upper = number & !0x7f; // added twice, which shifts it past the continuation bit
        let has_upper = upper != 0;
        let bytes = number + upper + (u64::from(has_upper) << 7);
        Packed {
            bytes: self.bytes | bytes << self.bits,
            bits: self.bits + 8 + 8 * usize::from(has_upper),
        }
    }
}
