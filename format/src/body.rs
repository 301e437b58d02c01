//! Bodies: the part of a record behind its tag and length, for every kind but allocations and
//! frees. Writer and reader stand side by side.
//!
//! A kind never changes its number, and a body never changes its fields; a later version may add
//! fields at the end. A reader skips unknown kinds by their length.

use crate::checkpoint::{Checkpoint, Passed};
use crate::coarse_moment::CoarseMoment;
use crate::code::Code;
use crate::field::{
    put_addresses, put_bytes, put_labels, put_list, put_time, take_addresses, take_byte,
    take_bytes, take_first, take_labels, take_list, take_string, take_time, take_u32, take_words,
};
use crate::mapped_memory::{MappedMemory, MappingChange};
use crate::memory_reading::MemoryReading;
use crate::page_reading::PageReading;
use crate::record::{
    Counter, EndReason, FileStamp, MAX_STACK_FRAMES, Module, Process, Record, Segment, Stack,
    Start, Thread, WalkEnd,
};
use crate::varint::{put, take};

/// Kinds of records with a body: the number in the tag.
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
    Process = 13,
    Notice = 14,
    Resource = 15,
    Memory = 16,
    MappingChange = 17,
    MappedMemory = 18,
    Title = 19,
    Pages = 20,
    Code = 21,
    CoarseMoment = 22,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    const ALL: [Kind; 23] = [
        Kind::Interval,
        Kind::Stack,
        Kind::Module,
        Kind::ModuleGone,
        Kind::Thread,
        Kind::Start,
        Kind::Counters,
        Kind::Marker,
        Kind::End,
        Kind::Checkpoint,
        Kind::Passed,
        Kind::CheckpointEnd,
        Kind::Regime,
        Kind::Process,
        Kind::Notice,
        Kind::Resource,
        Kind::Memory,
        Kind::MappingChange,
        Kind::MappedMemory,
        Kind::Title,
        Kind::Pages,
        Kind::Code,
        Kind::CoarseMoment,
    ];

    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The kind of a record with a body, and the time of a frame that begins with it.
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// Time since the start. It is 0 if a later record may have an earlier time, because a frame
    /// only goes forward.
    pub(crate) frame_ns: u64,
}

/// Appends the body of a record to `body`. Returns `None` for an allocation or a free, which have
/// no body.
pub(crate) fn put_body(record: &Record, body: &mut Vec<u8>) -> Option<Head> {
    let (kind, frame_ns) = match record {
        Record::Alloc(_) | Record::Free(_) => return None,
        Record::Stack(stack) => {
            put(body, u64::from(stack.number));
            body.push(stack.end as u8);
            put_list(body, &stack.interrupted, |body, &index| {
                put(body, u64::from(index));
            });
            put_addresses(body, &stack.frames);
            if !stack.labels.is_empty() {
                put_labels(body, &stack.labels);
            }
            (Kind::Stack, 0)
        }
        Record::Module(module) => {
            put(body, u64::from(module.number));
            put_time(body, module.time_ns);
            put_bytes(body, module.path.as_bytes());
            put_bytes(body, &module.build_id);
            put(body, module.bias);
            put_list(body, &module.segments, |body, segment| {
                put(body, segment.start);
                put(body, segment.len);
                put(body, segment.file_offset);
                put(body, u64::from(segment.flags));
            });
            if let Some(stamp) = &module.stamp {
                put(body, stamp.inode);
                put(body, stamp.size);
                put(body, stamp.modified_ns);
            }
            (Kind::Module, 0)
        }
        Record::ModuleGone { module, time_ns } => {
            put(body, u64::from(*module));
            put_time(body, *time_ns);
            (Kind::ModuleGone, 0)
        }
        Record::Thread(thread) => {
            put(body, u64::from(thread.number));
            put(body, u64::from(thread.tid));
            put_bytes(body, thread.name.as_bytes());
            (Kind::Thread, 0)
        }
        Record::Start(start) => {
            put_start(body, start);
            put_log_numbers(body, start);
            (Kind::Start, 0)
        }
        Record::Process(process) => {
            put_bytes(body, process.file.as_bytes());
            put_start(body, &process.start);
            put_time(body, process.duration_ns);
            body.push(process.end.map_or(NO_END, |reason| reason as u8));
            body.push(u8::from(process.is_whole) | u8::from(process.without_inherited) << 1);
            put(body, process.intervals.0);
            put(body, process.intervals.1);
            put_list(body, &process.stops, |body, &(from_ns, to_ns)| {
                put_time(body, from_ns);
                put_time(body, to_ns);
            });
            put_bytes(body, process.fork_remark.as_bytes());
            put(body, u64::from(process.threads.0));
            put(body, u64::from(process.threads.1));
            put_log_numbers(body, &process.start);
            (Kind::Process, 0)
        }
        Record::Counters { time_ns, values } => {
            put_time(body, *time_ns);
            put_list(body, values, |body, (counter, value)| {
                put(body, u64::from(counter.number()));
                put(body, *value);
            });
            (Kind::Counters, *time_ns)
        }
        Record::Marker { time_ns, name } => {
            put_time(body, *time_ns);
            put_bytes(body, name.as_bytes());
            (Kind::Marker, *time_ns)
        }
        Record::Regime {
            time_ns,
            interval,
            by_budget,
        } => {
            put_time(body, *time_ns);
            put(body, *interval);
            body.push(u8::from(*by_budget));
            (Kind::Regime, *time_ns)
        }
        Record::Checkpoint(checkpoint) => {
            put_time(body, checkpoint.time_ns);
            checkpoint.put_rest(body);
            (Kind::Checkpoint, 0)
        }
        Record::Passed(passed) => {
            passed.put(body);
            (Kind::Passed, 0)
        }
        Record::CheckpointEnd { time_ns } => {
            put_time(body, *time_ns);
            (Kind::CheckpointEnd, *time_ns)
        }
        Record::Notice { time_ns, text } => {
            put_time(body, *time_ns);
            put_bytes(body, text.as_bytes());
            (Kind::Notice, 0)
        }
        Record::Title { time_ns, text } => {
            put_time(body, *time_ns);
            put_bytes(body, text.as_bytes());
            (Kind::Title, 0)
        }
        Record::Resource {
            time_ns,
            attributes,
        } => {
            put_time(body, *time_ns);
            put_labels(body, attributes);
            (Kind::Resource, 0)
        }
        Record::Memory(reading) => {
            put_time(body, reading.time_ns);
            reading.put_fields(body);
            (Kind::Memory, 0)
        }
        Record::MappingChange(change) => {
            change.put(body);
            (Kind::MappingChange, 0)
        }
        Record::MappedMemory(moment) => {
            moment.put(body);
            (Kind::MappedMemory, 0)
        }
        Record::Pages(reading) => {
            reading.put(body);
            (Kind::Pages, 0)
        }
        Record::Code(code) => {
            code.put(body);
            (Kind::Code, 0)
        }
        Record::CoarseMoment(moment) => {
            moment.put(body);
            (Kind::CoarseMoment, 0)
        }
        Record::End { time_ns, reason } => {
            put_time(body, *time_ns);
            body.push(*reason as u8);
            (Kind::End, *time_ns)
        }
    };
    Some(Head { kind, frame_ns })
}

/// Returns the record of that kind with that body, or `None` if it is malformed or the kind is no
/// record. Bytes behind the known fields, from a later version, are skipped.
pub(crate) fn take_body(kind: Kind, mut body: &[u8]) -> Option<Record> {
    let body = &mut body;
    Some(match kind {
        Kind::Interval => return None, // state of the next allocations, and no record
        Kind::Stack => {
            let number = take_u32(body)?;
            let end = WalkEnd::from_u8(take_byte(body)?)?;
            let (interrupted, _) = take_first(body, MAX_STACK_FRAMES, take_u32)?;
            let (frames, is_cut) = take_addresses(body)?;
            let labels = match body.is_empty() {
                true => Vec::new(),
                false => take_labels(body)?,
            };
            Record::Stack(Stack {
                number,
                end: if is_cut { WalkEnd::TooDeep } else { end },
                interrupted,
                frames,
                labels,
            })
        }
        Kind::Module => {
            let mut module = Module {
                number: take_u32(body)?,
                time_ns: take_time(body)?,
                path: take_string(body)?,
                build_id: take_bytes(body)?.to_vec(),
                stamp: None,
                bias: take(body)?,
                segments: take_list(body, |body| {
                    Some(Segment {
                        start: take(body)?,
                        len: take(body)?,
                        file_offset: take(body)?,
                        flags: take_u32(body)?,
                    })
                })?,
            };
            if !body.is_empty() {
                module.stamp = Some(FileStamp {
                    inode: take(body)?,
                    size: take(body)?,
                    modified_ns: take(body)?,
                });
            }
            Record::Module(module)
        }
        Kind::ModuleGone => Record::ModuleGone {
            module: take_u32(body)?,
            time_ns: take_time(body)?,
        },
        Kind::Thread => Record::Thread(Thread {
            number: take_u32(body)?,
            tid: take_u32(body)?,
            name: take_string(body)?,
        }),
        Kind::Start => {
            let mut start = take_start(body)?;
            take_log_numbers(body, &mut start)?;
            Record::Start(start)
        }
        Kind::Process => {
            let file = take_string(body)?;
            let start = take_start(body)?;
            let duration_ns = take_time(body)?;
            let end = match take_byte(body)? {
                NO_END => None,
                reason => Some(EndReason::from_u8(reason)?),
            };
            let flags = take_byte(body)?;
            let mut process = Process {
                file,
                start,
                duration_ns,
                end,
                is_whole: flags & 1 != 0,
                without_inherited: flags & 2 != 0,
                intervals: (take(body)?, take(body)?),
                stops: take_list(body, |body| Some((take_time(body)?, take_time(body)?)))?,
                fork_remark: take_string(body)?,
                threads: (take_u32(body)?, take_u32(body)?),
            };
            take_log_numbers(body, &mut process.start)?;
            Record::Process(process)
        }
        Kind::Counters => Record::Counters {
            time_ns: take_time(body)?,
            values: take_list(body, |body| {
                Some((Counter::from_number(take_u32(body)?), take(body)?))
            })?,
        },
        Kind::Marker => Record::Marker {
            time_ns: take_time(body)?,
            name: take_string(body)?,
        },
        Kind::Regime => Record::Regime {
            time_ns: take_time(body)?,
            interval: take(body)?,
            by_budget: take_byte(body)? & 1 != 0,
        },
        Kind::Checkpoint => {
            let time_ns = take_time(body)?;
            Record::Checkpoint(Checkpoint::take_rest(time_ns, body)?)
        }
        Kind::Passed => Record::Passed(Passed::take(body)?),
        Kind::CheckpointEnd => Record::CheckpointEnd {
            time_ns: take_time(body)?,
        },
        Kind::Notice => Record::Notice {
            time_ns: take_time(body)?,
            text: take_string(body)?,
        },
        Kind::Title => Record::Title {
            time_ns: take_time(body)?,
            text: take_string(body)?,
        },
        Kind::Resource => Record::Resource {
            time_ns: take_time(body)?,
            attributes: take_labels(body)?,
        },
        Kind::Memory => {
            let time_ns = take_time(body)?;
            Record::Memory(Box::new(MemoryReading::take_fields(time_ns, body)?))
        }
        Kind::MappingChange => Record::MappingChange(MappingChange::take(body)?),
        Kind::MappedMemory => Record::MappedMemory(MappedMemory::take(body)?),
        Kind::Pages => Record::Pages(PageReading::take(body)?),
        Kind::Code => Record::Code(Code::take(body)?),
        Kind::CoarseMoment => Record::CoarseMoment(CoarseMoment::take(body)?),
        Kind::End => Record::End {
            time_ns: take_time(body)?,
            reason: EndReason::from_u8(take_byte(body)?)?,
        },
    })
}

/// The value in place of a reason.
const NO_END: u8 = u8::MAX;

fn put_start(out: &mut Vec<u8>, start: &Start) {
    put_bytes(out, start.program.as_bytes());
    put_list(out, &start.args, |out, word| {
        put_bytes(out, word.as_bytes());
    });
    put(out, u64::from(start.pid));
    put(out, u64::from(start.forked_from));
    put(out, start.wall_ns);
    put(out, start.monotonic_ns);
    put(out, start.interval);
    put_bytes(out, start.library.as_bytes());
    put_list(out, &start.settings, |out, (name, value)| {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    });
}

fn take_start(bytes: &mut &[u8]) -> Option<Start> {
    Some(Start {
        program: take_string(bytes)?,
        args: take_words(bytes)?,
        pid: take_u32(bytes)?,
        forked_from: take_u32(bytes)?,
        wall_ns: take(bytes)?,
        monotonic_ns: take(bytes)?,
        interval: take(bytes)?,
        library: take_string(bytes)?,
        settings: take_list(bytes, |bytes| {
            Some((take_string(bytes)?, take_string(bytes)?))
        })?,
        ..Start::default()
    })
}

/// Appends the numbers of the logs. They stand at the end of a body with a start, where an earlier
/// reader passes over them.
fn put_log_numbers(out: &mut Vec<u8>, start: &Start) {
    put(out, start.log_number);
    put(out, start.parent_log_number);
}

/// Takes both numbers. A log of an earlier library has none.
fn take_log_numbers(bytes: &mut &[u8], start: &mut Start) -> Option<()> {
    if !bytes.is_empty() {
        start.log_number = take(bytes)?;
        start.parent_log_number = take(bytes)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{LONGEST_TEXT, MOST_WORDS};
    use crate::record::MAX_LABELS;

    #[test]
    fn a_kind_is_found_by_its_number() {
        for (number, kind) in (0..).zip(Kind::ALL) {
            assert_eq!((kind as u8, Kind::from_u8(number)), (number, Some(kind)));
        }
        assert_eq!(Kind::from_u8(Kind::ALL.len() as u8), None);
    }

    #[test]
    fn what_no_system_has_is_cut_and_says_so() {
        let start = Start {
            program: "é".repeat(LONGEST_TEXT),
            args: vec![String::new(); 1 << 20],
            pid: 77,
            ..Start::default()
        };
        let mut body = Vec::new();
        put_body(&Record::Start(start), &mut body);
        let Some(Record::Start(taken)) = take_body(Kind::Start, &body) else {
            panic!("a start");
        };
        assert_eq!(taken.program, "é".repeat(LONGEST_TEXT / 2) + "…");
        assert_eq!(taken.args.len() as u64, MOST_WORDS + 1);
        assert_eq!(taken.args.last().map(String::as_str), Some("…"));
        // The fields behind the words are read from their own place.
        assert_eq!(taken.pid, 77);
        // Words that are claimed and not there are damage, however many.
        assert_eq!(
            take_body(Kind::Start, &[0, 0xff, 0xff, 0xff, 0x7f, 0]),
            None
        );
    }

    fn stack(labels: Vec<(String, String)>) -> Stack {
        Stack {
            number: 7,
            end: WalkEnd::Root,
            frames: vec![0x1000],
            interrupted: Vec::new(),
            labels,
        }
    }

    fn body_of(stack: &Stack) -> Vec<u8> {
        let mut body = Vec::new();
        put_body(&Record::Stack(stack.clone()), &mut body);
        body
    }

    #[test]
    fn a_stack_without_labels_has_no_byte_for_them() {
        // number, end, no interrupted frame, one frame
        assert_eq!(body_of(&stack(Vec::new())), [7, 0, 0, 1, 0x80, 0x40]);
    }

    #[test]
    fn labels_that_are_cut_are_damage_and_too_many_are_left_out() {
        let label = |n: usize| (format!("key{n}"), "é".repeat(n));
        let whole = stack((0..3).map(label).collect());
        let body = body_of(&whole);
        assert_eq!(take_body(Kind::Stack, &body), Some(Record::Stack(whole)));
        let begin = body_of(&stack(Vec::new())).len();
        for end in begin + 1..body.len() {
            assert_eq!(take_body(Kind::Stack, &body[..end]), None, "{end}");
        }
        // A count that is claimed, and no labels.
        let claims = [&body[..begin], &[0xff, 0xff, 0xff, 0xff, 0xff, 1]].concat();
        assert_eq!(take_body(Kind::Stack, &claims), None);
        let many = stack((0..MAX_LABELS + 1).map(|_| label(1)).collect());
        let Some(Record::Stack(taken)) = take_body(Kind::Stack, &body_of(&many)) else {
            panic!("a stack");
        };
        assert_eq!(taken.labels, many.labels[..MAX_LABELS]);
        // Text that is no UTF-8, and longer than any.
        let foreign = [&body[..begin], &[1, 1, 0xff, 0]].concat();
        let Some(Record::Stack(taken)) = take_body(Kind::Stack, &foreign) else {
            panic!("a stack");
        };
        assert_eq!(taken.labels, [("\u{fffd}".into(), String::new())]);
    }
}
