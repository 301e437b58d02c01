//! Writing: records to the bytes of a frame.
//!
//! ```text
//! hot record   0bTTTTT S KK     KK 0 alloc, 1 free
//!                               S  1: the thread changed, its number follows as a varint
//!                               T  microseconds since the record before, 0..=30;
//!                                  31: a varint follows
//!   alloc      [thread] [dt] zigzag(id - (previous id + 1)) stack size slack
//!   free       [thread] [dt] zigzag(previous id - id)
//! other        0bRRRRRR 11 length body      R: kind of record, see `Kind`
//! ```
//!
//! "Previous id" is that of the last alloc of a thread with the same number modulo 16: a thread's ids follow each other,
//! whatever other threads do meanwhile. The interval of allocs is state as well, set by a record of its own; all
//! state begins anew in each frame.

use crate::frame::{FRAME_HEADER_LEN, FrameHeader};
use crate::record::{Alloc, Free, Record, Start};
use crate::varint::{put, zigzag};

/// Nanoseconds in the log's unit of time.
pub(crate) const TIME_UNIT_NS: u64 = 1000;

/// Largest time step that fits the hot byte; one more means "a varint follows".
pub(crate) const TIME_IN_TAG: u64 = 31;

pub(crate) const KIND_ALLOC: u8 = 0;
pub(crate) const KIND_FREE: u8 = 1;
pub(crate) const KIND_OTHER: u8 = 3;
pub(crate) const THREAD_FOLLOWS: u8 = 4;

/// Kinds of the records with a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Interval = 0,
    Stack = 1,
    Module = 2,
    ModuleGone = 3,
    Thread = 4,
    Start = 5,
    Counters = 6,
    Marker = 7,
    End = 8,
    Checkpoint = 9,
    Passed = 10,
    CheckpointEnd = 11,
    Regime = 12,
}

impl Kind {
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => Kind::Interval,
            1 => Kind::Stack,
            2 => Kind::Module,
            3 => Kind::ModuleGone,
            4 => Kind::Thread,
            5 => Kind::Start,
            6 => Kind::Counters,
            7 => Kind::Marker,
            8 => Kind::End,
            9 => Kind::Checkpoint,
            10 => Kind::Passed,
            11 => Kind::CheckpointEnd,
            12 => Kind::Regime,
            _ => return None,
        })
    }
}

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
    /// Room for the header, then the payload.
    bytes: Vec<u8>,
    /// The body of the record being written, before its length is known.
    body: Vec<u8>,
    deltas: Deltas,
    sequence: u32,
    finished: bool,
}

impl Encoder {
    /// An encoder whose first frame will be number 0.
    pub fn new() -> Self {
        Encoder::default()
    }

    /// Bytes of the frame so far; 0 when it is empty.
    pub fn pending(&self) -> usize {
        if self.finished { 0 } else { self.bytes.len() }
    }

    /// Ends the frame and returns its bytes, header included, to be appended to the file. The next
    /// record begins another. Returns an empty slice when there is nothing to write.
    pub fn finish(&mut self) -> &[u8] {
        if self.pending() == 0 {
            return &[];
        }
        let header = FrameHeader::for_payload(self.sequence, &self.bytes[FRAME_HEADER_LEN..]);
        self.bytes[..FRAME_HEADER_LEN].copy_from_slice(&header.to_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        self.finished = true;
        &self.bytes
    }

    /// Adds any record.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Alloc(alloc) => self.alloc(alloc),
            Record::Free(free) => self.free(free),
            Record::Stack(s) => {
                self.other(Kind::Stack, 0, |body| {
                    put(body, u64::from(s.number));
                    body.push(s.end as u8);
                    put_list(body, &s.interrupted, |body, &index| {
                        put(body, u64::from(index));
                    });
                    put_addresses(body, &s.frames);
                });
            }
            Record::Module(m) => self.other(Kind::Module, m.time_ns, |body| {
                put(body, u64::from(m.number));
                put(body, m.time_ns / TIME_UNIT_NS);
                put_bytes(body, m.path.as_bytes());
                put_bytes(body, &m.build_id);
                put(body, m.bias);
                put_list(body, &m.segments, |body, segment| {
                    put(body, segment.start);
                    put(body, segment.len);
                    put(body, segment.file_offset);
                    put(body, u64::from(segment.flags));
                });
            }),
            Record::ModuleGone { module, time_ns } => {
                self.other(Kind::ModuleGone, *time_ns, |body| {
                    put(body, u64::from(*module));
                    put(body, time_ns / TIME_UNIT_NS);
                });
            }
            Record::Thread(t) => self.other(Kind::Thread, 0, |body| {
                put(body, u64::from(t.number));
                put(body, u64::from(t.tid));
                put_bytes(body, t.name.as_bytes());
            }),
            Record::Start(s) => self.start(s),
            Record::Counters { time_ns, values } => {
                self.other(Kind::Counters, *time_ns, |body| {
                    put(body, time_ns / TIME_UNIT_NS);
                    put_list(body, values, |body, (counter, value)| {
                        put(body, u64::from(counter.number()));
                        put(body, *value);
                    });
                });
            }
            Record::Marker { time_ns, name } => self.other(Kind::Marker, *time_ns, |body| {
                put(body, time_ns / TIME_UNIT_NS);
                put_bytes(body, name.as_bytes());
            }),
            Record::Regime {
                time_ns,
                interval,
                by_budget,
            } => self.other(Kind::Regime, *time_ns, |body| {
                put(body, time_ns / TIME_UNIT_NS);
                put(body, *interval);
                body.push(u8::from(*by_budget));
            }),
            Record::Checkpoint(checkpoint) => self.other(Kind::Checkpoint, 0, |body| {
                put(body, checkpoint.time_ns / TIME_UNIT_NS);
                checkpoint.put_rest(body);
            }),
            // Not at any time: what follows in the frame lies before the checkpoint.
            Record::Passed(passed) => self.other(Kind::Passed, 0, |body| passed.put(body)),
            Record::CheckpointEnd { time_ns } => {
                self.other(Kind::CheckpointEnd, *time_ns, |body| {
                    put(body, time_ns / TIME_UNIT_NS);
                })
            }
            Record::End { time_ns, reason } => self.other(Kind::End, *time_ns, |body| {
                put(body, time_ns / TIME_UNIT_NS);
                body.push(*reason as u8);
            }),
        }
    }

    /// Adds an allocation. A time before that of the record before it is written as that one's.
    #[inline]
    pub fn alloc(&mut self, alloc: &Alloc) {
        self.open(alloc.time_ns);
        if alloc.interval != self.deltas.interval {
            self.deltas.interval = alloc.interval;
            self.other(Kind::Interval, alloc.time_ns, |body| {
                put(body, alloc.interval);
            });
        }
        self.hot(KIND_ALLOC, alloc.time_ns, alloc.thread);
        let expected = self.deltas.id().wrapping_add(1);
        put(
            &mut self.bytes,
            zigzag(alloc.id.wrapping_sub(expected) as i64),
        );
        *self.deltas.id() = alloc.id;
        put(&mut self.bytes, u64::from(alloc.stack));
        put(&mut self.bytes, alloc.size);
        put(&mut self.bytes, alloc.slack);
    }

    /// Adds a free. A time before that of the record before it is written as that one's.
    #[inline]
    pub fn free(&mut self, free: &Free) {
        self.open(free.time_ns);
        self.hot(KIND_FREE, free.time_ns, free.thread);
        let previous = *self.deltas.id();
        put(
            &mut self.bytes,
            zigzag(previous.wrapping_sub(free.id) as i64),
        );
    }

    /// The byte that every hot record begins with, and what it announces.
    #[inline]
    fn hot(&mut self, kind: u8, time_ns: u64, thread: u32) {
        let step = (time_ns / TIME_UNIT_NS).saturating_sub(self.deltas.time);
        self.deltas.time += step;
        let mut tag = kind | (step.min(TIME_IN_TAG) as u8) << 3;
        let switched = thread != self.deltas.thread;
        if switched {
            tag |= THREAD_FOLLOWS;
        }
        self.bytes.push(tag);
        if switched {
            self.deltas.thread = thread;
            put(&mut self.bytes, u64::from(thread));
        }
        if step >= TIME_IN_TAG {
            put(&mut self.bytes, step);
        }
    }

    fn start(&mut self, start: &Start) {
        self.other(Kind::Start, 0, |body| {
            put_bytes(body, start.program.as_bytes());
            put_list(body, &start.args, |body, word| {
                put_bytes(body, word.as_bytes());
            });
            put(body, u64::from(start.pid));
            put(body, u64::from(start.forked_from));
            put(body, start.wall_ns);
            put(body, start.monotonic_ns);
            put(body, start.interval);
            put_bytes(body, start.library.as_bytes());
            put_list(body, &start.settings, |body, (name, value)| {
                put_bytes(body, name.as_bytes());
                put_bytes(body, value.as_bytes());
            });
        });
    }

    /// A record with a length: what a reader that does not know it can skip.
    fn other(&mut self, kind: Kind, time_ns: u64, fill: impl FnOnce(&mut Vec<u8>)) {
        self.open(time_ns);
        self.body.clear();
        fill(&mut self.body);
        self.bytes.push(KIND_OTHER | (kind as u8) << 2);
        put(&mut self.bytes, self.body.len() as u64);
        self.bytes.extend_from_slice(&self.body);
    }

    /// Begins a frame if none is open, at that time.
    #[inline]
    fn open(&mut self, time_ns: u64) {
        if self.finished || self.bytes.is_empty() {
            self.begin(time_ns);
        }
    }

    #[cold]
    fn begin(&mut self, time_ns: u64) {
        self.finished = false;
        self.bytes.clear();
        self.bytes.resize(FRAME_HEADER_LEN, 0);
        self.deltas = Deltas {
            time: time_ns / TIME_UNIT_NS,
            ..Deltas::default()
        };
        put(&mut self.bytes, self.deltas.time);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_list<T>(out: &mut Vec<u8>, items: &[T], put_item: impl Fn(&mut Vec<u8>, &T)) {
    put(out, items.len() as u64);
    for item in items {
        put_item(out, item);
    }
}

/// Addresses as deltas: neighbours on a stack mostly lie in one module, three bytes apart.
fn put_addresses(out: &mut Vec<u8>, addresses: &[u64]) {
    put(out, addresses.len() as u64);
    let mut previous = 0u64;
    for &address in addresses {
        put(out, zigzag(address.wrapping_sub(previous) as i64));
        previous = address;
    }
}
