//! Records come back as they were written, and damage is noticed and named.

use heapprof_format::*;
use proptest::prelude::*;

fn alloc() -> impl Strategy<Value = Record> {
    (
        0u64..1 << 40,
        0u32..5,
        0u64..1 << 33,
        0u64..1 << 40,
        0u64..5000,
        any::<u32>(),
        prop_oneof![Just(1u64), Just(4096), Just(524_288)],
    )
        .prop_map(|(time, thread, id, size, slack, stack, interval)| {
            Record::Alloc(Alloc {
                time_ns: time * 1000,
                thread,
                id,
                size,
                slack,
                stack,
                interval,
            })
        })
}

fn free() -> impl Strategy<Value = Record> {
    (0u64..1 << 40, 0u32..5, any::<u64>()).prop_map(|(time, thread, id)| {
        Record::Free(Free {
            time_ns: time * 1000,
            thread,
            id,
        })
    })
}

fn pages_of_block() -> impl Strategy<Value = PagesOfBlock> {
    let touch = prop_oneof![
        Just(Touch::Resident),
        Just(Touch::Swapped),
        Just(Touch::Untouched),
        any::<(u64, u64)>().prop_map(|(resident, swapped)| Touch::Mixed { resident, swapped }),
    ];
    let slab = prop_oneof![
        Just(None),
        (0u32..3, 0u32..3).prop_map(|(free, live)| Some(Slab { free, live })),
    ];
    (any::<u64>(), touch, slab).prop_map(|(id, touch, slab)| PagesOfBlock { id, touch, slab })
}

fn sums() -> impl Strategy<Value = Sums> {
    (any::<u64>(), any::<[i128; 4]>(), 0u32..128).prop_map(|(samples, fixed, shift)| Sums {
        samples,
        fixed: fixed.map(|value| value >> shift),
    })
}

fn start() -> impl Strategy<Value = Start> {
    (
        ".{0,20}",
        prop::collection::vec(".{0,9}", 0..4),
        any::<u32>(),
        any::<(u64, u64)>(),
    )
        .prop_map(|(program, args, pid, numbers)| Start {
            program,
            args,
            pid,
            forked_from: 3,
            wall_ns: 4,
            monotonic_ns: 5,
            interval: 524_288,
            library: "x".into(),
            settings: vec![("A".into(), "b".into())],
            log_number: numbers.0,
            parent_log_number: numbers.1,
        })
}

fn other() -> impl Strategy<Value = Record> {
    let time = (0u64..1 << 40).prop_map(|t| t * 1000);
    prop_oneof![
        (
            any::<u32>(),
            0u8..7,
            prop::collection::vec(any::<u64>(), 0..60),
            prop::collection::vec(any::<u32>(), 0..3),
            prop::collection::vec((".{0,9}", ".{0,20}"), 0..4),
        )
            .prop_map(
                |(number, end, frames, interrupted, labels)| Record::Stack(Stack {
                    number,
                    end: WalkEnd::from_u8(end).unwrap(),
                    frames,
                    interrupted,
                    labels,
                })
            ),
        (
            any::<u32>(),
            time.clone(),
            ".{0,20}",
            any::<u64>(),
            prop::collection::vec(any::<u8>(), 0..32)
        )
            .prop_map(
                |(number, time_ns, path, bias, build_id)| Record::Module(Module {
                    number,
                    time_ns,
                    path,
                    build_id,
                    stamp: (number % 2 == 0).then_some(FileStamp {
                        inode: bias,
                        size: 7,
                        modified_ns: u64::MAX,
                    }),
                    bias,
                    segments: vec![Segment {
                        start: bias,
                        len: 4096,
                        file_offset: 0,
                        flags: 5
                    }],
                })
            ),
        (any::<u32>(), time.clone())
            .prop_map(|(module, time_ns)| Record::ModuleGone { module, time_ns }),
        (any::<u32>(), any::<u32>(), ".{0,16}")
            .prop_map(|(number, tid, name)| Record::Thread(Thread { number, tid, name })),
        (time.clone(), any::<u32>(), any::<u64>()).prop_map(|(time_ns, counter, value)| {
            Record::Counters {
                time_ns,
                values: vec![(Counter::from_number(counter), value)],
            }
        }),
        (time.clone(), ".{0,20}").prop_map(|(time_ns, name)| Record::Marker { time_ns, name }),
        (time.clone(), any::<u64>(), any::<bool>()).prop_map(|(time_ns, interval, by_budget)| {
            Record::Regime {
                time_ns,
                interval,
                by_budget,
            }
        }),
        (time.clone(), ".{0,40}").prop_map(|(time_ns, text)| Record::Notice { time_ns, text }),
        (time.clone(), ".{0,40}").prop_map(|(time_ns, text)| Record::Title { time_ns, text }),
        (
            time.clone(),
            prop::collection::vec((".{0,9}", ".{0,20}"), 0..4)
        )
            .prop_map(|(time_ns, attributes)| Record::Resource {
                time_ns,
                attributes,
            }),
        (time.clone(), any::<u64>(), any::<u64>()).prop_map(|(time_ns, mask, value)| {
            let mut reading = MemoryReading::at(time_ns);
            for &field in MemoryField::ALL {
                let is_known = mask >> (field as u8) & 1 == 1;
                reading.set(field, is_known.then_some(value >> (field as u8)));
            }
            Record::Memory(Box::new(reading))
        }),
        (
            time.clone(),
            any::<u32>(),
            any::<u64>(),
            any::<u64>(),
            any::<Option<u32>>()
        )
            .prop_map(|(time_ns, thread, start, len, stack)| {
                Record::MappingChange(MappingChange {
                    time_ns,
                    thread,
                    start,
                    len,
                    stack,
                })
            }),
        (
            time.clone(),
            prop::collection::vec((any::<Option<u32>>(), ".{0,20}", any::<[u64; 2]>()), 0..5)
        )
            .prop_map(|(time_ns, parts)| {
                type Parts = Vec<(Option<u32>, String, [u64; 2])>;
                let parts: Parts = parts;
                let parts = parts
                    .into_iter()
                    .map(|(stack, name, [mapped, resident])| MappedPart {
                        stack,
                        name,
                        mapped,
                        resident,
                    });
                let parts: Vec<MappedPart> = parts.collect();
                Record::MappedMemory(MappedMemory { time_ns, parts })
            }),
        (
            time.clone(),
            prop::collection::vec(pages_of_block(), 0..20),
            any::<[u64; 3]>(),
            any::<[bool; 4]>(),
            0u32..64,
        )
            .prop_map(|(time_ns, blocks, numbers, flags, shift)| {
                let addresses = blocks.iter().map(|block| block.id >> shift << 4).collect();
                Record::Pages(PageReading {
                    time_ns,
                    part: numbers[0] as u32,
                    is_last: flags[0],
                    knows_slabs: flags[1],
                    is_cut: flags[2],
                    ran_ns: numbers[1],
                    pages: numbers[2],
                    left_out: numbers[0],
                    blocks,
                    addresses: flags[3].then_some(addresses),
                })
            }),
        (
            ".{0,20}",
            ".{0,20}",
            any::<u32>(),
            0u8..4,
            prop::collection::vec(any::<u8>(), 0..40)
        )
            .prop_map(|(name, file, first_line, kind, table)| {
                let kind = LineTableKind::from_u8(kind);
                Record::Code(Code::new(name, file, first_line, kind, table))
            }),
        time.clone().prop_map(|time_ns| Record::End {
            time_ns,
            reason: EndReason::Exit
        }),
        (any::<u32>(), any::<u8>(), any::<u64>(), sums()).prop_map(
            |(stack, class, first_ns, sums)| Record::Passed(Passed {
                stack,
                class,
                first_ns,
                sums
            })
        ),
        time.clone()
            .prop_map(|time_ns| Record::CheckpointEnd { time_ns }),
        (
            time.clone(),
            any::<[u64; 3]>(),
            any::<[u64; 2]>(),
            prop::collection::vec(any::<(u32, u64)>(), 0..9)
        )
            .prop_map(
                |(time_ns, [bytes, bytes_error, objects], [highest, resident], largest)| {
                    Record::CoarseMoment(CoarseMoment {
                        time_ns,
                        bytes,
                        bytes_error,
                        objects,
                        highest,
                        resident,
                        largest,
                    })
                }
            ),
        (time, any::<u32>(), any::<u64>(), any::<i128>(), sums()).prop_map(
            |(time_ns, segment, number, peak_bytes, requested)| Record::Checkpoint(Checkpoint {
                segment,
                time_ns,
                bytes_before: number,
                peak_ns: number / 3,
                peak_bytes,
                intervals: (1, number),
                requested,
            })
        ),
        start().prop_map(Record::Start),
        (
            ".{0,20}",
            start(),
            0u64..1 << 40,
            0u8..5,
            any::<bool>(),
            prop::collection::vec((0u64..1 << 40, 0u64..1 << 40), 0..3)
        )
            .prop_map(|(file, start, time, end, is_whole, stops)| {
                Record::Process(Process {
                    file,
                    start,
                    duration_ns: time * 1000,
                    end: EndReason::from_u8(end),
                    is_whole,
                    intervals: (1, time),
                    stops: stops.iter().map(|(a, b)| (a * 1000, b * 1000)).collect(),
                    fork_remark: "forked".into(),
                    threads: (7, 8),
                    without_inherited: !is_whole,
                })
            }),
    ]
}

/// Records of mostly the two hot kinds, as in a real log.
fn records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(prop_oneof![4 => alloc(), 4 => free(), 1 => other()], 0..80)
}

/// Makes hot times never decrease within a frame, as the log promises.
fn in_order(mut records: Vec<Record>) -> Vec<Record> {
    let mut now = 0;
    for record in &mut records {
        match record {
            Record::Alloc(Alloc { time_ns, .. }) | Record::Free(Free { time_ns, .. }) => {
                now = now.max(*time_ns);
                *time_ns = now;
            }
            Record::Module(Module { time_ns, .. })
            | Record::ModuleGone { time_ns, .. }
            | Record::Counters { time_ns, .. }
            | Record::Marker { time_ns, .. }
            | Record::Regime { time_ns, .. }
            | Record::CheckpointEnd { time_ns }
            | Record::End { time_ns, .. } => {
                now = now.max(*time_ns);
                *time_ns = now;
            }
            _ => {}
        }
    }
    records
}

fn written(frames: &[Vec<Record>]) -> Vec<u8> {
    let mut file = FILE_HEADER.to_vec();
    let mut encoder = Encoder::new();
    for frame in frames {
        for record in frame {
            encoder.record(record);
        }
        file.extend_from_slice(encoder.finish());
    }
    file
}

/// Writes one frame as a program's writer does: records are added as usual ones where possible.
fn written_as_usual(records: &[Record]) -> Vec<u8> {
    let mut file = FILE_HEADER.to_vec();
    let mut encoder = Encoder::new();
    let mut last_ids = [0; 16];
    let whose = |record: &Record| match record {
        Record::Alloc(alloc) => Some((alloc.thread, Some(alloc.interval))),
        Record::Free(free) => Some((free.thread, None)),
        _ => None,
    };
    let mut interval = 0;
    let mut left = records;
    while let [record, rest @ ..] = left {
        let Some((thread, another)) = whose(record) else {
            encoder.record(record);
            left = rest;
            continue;
        };
        interval = another.unwrap_or(interval);
        let last_id = &mut last_ids[thread as usize % 16];
        if let Some(mut usual) = encoder.usual(thread, interval, *last_id) {
            let mut allocs = 0;
            while let [record, rest @ ..] = left {
                if whose(record)
                    .is_none_or(|it| it.0 != thread || it.1.is_some_and(|it| it != interval))
                {
                    break;
                }
                if let (Record::Free(freed), [Record::Alloc(it), rest @ ..]) = (record, rest)
                    && (freed.thread, it.interval) == (it.thread, interval)
                    && freed.time_ns == it.time_ns
                    && it.id == *last_id + 1
                {
                    let (time, back) = (it.time_ns / TIME_UNIT_NS, last_id.wrapping_sub(freed.id));
                    if usual.replace(time, back, it.size, it.slack, it.stack) {
                        (allocs, *last_id) = (allocs + 1, it.id);
                        left = rest;
                        continue;
                    }
                }
                let is_added = match record {
                    Record::Alloc(it) if it.id == *last_id + 1 => {
                        let time = it.time_ns / TIME_UNIT_NS;
                        let is_added = usual.alloc(time, it.size, it.slack, it.stack);
                        allocs += u64::from(is_added);
                        *last_id += u64::from(is_added);
                        is_added
                    }
                    Record::Free(it) => {
                        let back = last_id.wrapping_sub(it.id);
                        usual.free(it.time_ns / TIME_UNIT_NS, back)
                    }
                    _ => false,
                };
                if !is_added {
                    break;
                }
                left = rest;
            }
            usual.finish(allocs);
        }
        if let [record, rest @ ..] = left {
            if let Record::Alloc(alloc) = record {
                interval = alloc.interval;
                last_ids[alloc.thread as usize % 16] = alloc.id;
            }
            encoder.record(record);
            left = rest;
        }
    }
    file.extend_from_slice(encoder.finish());
    file
}

fn read_all(file: &[u8]) -> (Vec<Record>, Option<ReadError>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut records = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

/// A number of up to that many bits, each length equally likely.
fn of_any_length(bits: u32) -> impl Strategy<Value = u64> {
    (64 - bits..=64, any::<u64>())
        .prop_map(|(shift, number)| number.checked_shr(shift).unwrap_or(0))
}

/// The events of a busy thread, like most of a log: each near to the one before, with rare
/// exceptions.
fn near_each_other() -> impl Strategy<Value = Vec<Record>> {
    let number = || prop_oneof![8 => of_any_length(18), 1 => of_any_length(33)];
    let event = (
        prop_oneof![8 => of_any_length(6), 1 => of_any_length(40)],
        prop::sample::select(vec![0, 0, 0, 0, 0, 0, 0, 1]),
        number(),
        prop::option::of((
            number(),
            number(),
            of_any_length(32),
            prop_oneof![
                4 => Just(0),
                1 => number().prop_map(u64::cast_signed),
                1 => number().prop_map(|back| -back.cast_signed()),
            ],
            prop::sample::select(vec![0, 0, 0, 0, 0, 0, 0, 1]),
        )),
    );
    prop::collection::vec(event, 0..200).prop_map(|events| {
        let (mut time_ns, mut turns, mut last_id) = (0, 0, 1u64 << 34);
        let mut interval = 1u64;
        let record = |(step, turn, distance, alloc)| {
            time_ns += step * 1000;
            turns += turn;
            let thread = [0, 5, 70_000][turns % 3];
            match alloc {
                Some((size, slack, stack, ahead, doublings)) => {
                    interval <<= doublings;
                    last_id = (last_id + 1).wrapping_add_signed(ahead);
                    Record::Alloc(Alloc {
                        time_ns,
                        thread,
                        id: last_id,
                        size,
                        slack,
                        stack: stack as u32,
                        interval,
                    })
                }
                None => Record::Free(Free {
                    time_ns,
                    thread,
                    id: last_id.wrapping_sub(distance),
                }),
            }
        };
        events.into_iter().map(record).collect()
    })
}

proptest! {
    #[test]
    fn events_near_each_other_come_back(events in near_each_other()) {
        for file in [written(std::slice::from_ref(&events)), written_as_usual(&events)] {
            let (read, error) = read_all(&file);
            prop_assert_eq!(error, None);
            prop_assert_eq!(&read, &events);
        }
    }

    #[test]
    fn every_record_comes_back(frames in prop::collection::vec(records().prop_map(in_order), 0..4)) {
        let (read, error) = read_all(&written(&frames));
        prop_assert_eq!(error, None);
        prop_assert_eq!(read, frames.concat());
    }

    #[test]
    fn a_torn_tail_costs_only_the_tail(
        frames in prop::collection::vec(records().prop_map(in_order), 2..4),
        cut in 0.0f64..1.0,
    ) {
        let whole = written(&frames[..1]);
        let file = written(&frames);
        let at = whole.len() + (cut * (file.len() - whole.len()) as f64) as usize;
        let (read, _) = read_all(&file[..at]);
        prop_assert!(read.len() >= frames[0].len());
        prop_assert_eq!(&read[..], &frames.concat()[..read.len()]);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), header in any::<bool>()) {
        let mut file = if header { FILE_HEADER.to_vec() } else { vec![] };
        file.extend(bytes);
        read_all(&file);
    }

    #[test]
    fn a_flipped_bit_is_never_silent(frame in records().prop_map(in_order), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        prop_assume!(!frame.is_empty());
        let mut file = written(std::slice::from_ref(&frame));
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        prop_assert!(read_all(&file).1.is_some());
    }
}

#[test]
fn no_bit_of_the_header_is_silent() {
    let frame = [Record::Free(Free {
        time_ns: 5_000,
        thread: 1,
        id: 42,
    })];
    let whole = written(&[frame.to_vec()]);
    let silent: Vec<(usize, u8)> = (0..FILE_HEADER.len())
        .flat_map(|at| (0..8).map(move |bit| (at, bit)))
        .filter(|&(at, bit)| {
            let mut file = whole.clone();
            file[at] ^= 1 << bit;
            read_all(&file).1.is_none()
        })
        .collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn reading_goes_on_behind_a_damaged_frame() {
    let free = |id| {
        vec![Record::Free(Free {
            time_ns: 1000,
            thread: 0,
            id,
        })]
    };
    let first = written(&[free(1)]).len();
    let mut file = written(&[free(1), free(2), free(3)]);
    file[first + 18] ^= 0xff;
    let mut reader = Reader::new(&file).unwrap();
    assert_eq!(reader.next_record().unwrap(), free(1).pop());
    let error = reader.next_record().unwrap_err();
    assert_eq!(
        (error.offset, error.kind),
        (first as u64, ReadErrorKind::Checksum)
    );
    assert!(reader.skip_damage().is_some());
    assert_eq!(reader.next_record().unwrap(), free(3).pop());
    assert_eq!(reader.missing_frames(), 1);
    assert_eq!(reader.next_record().unwrap(), None);
}

/// The writer records a module when it finds the first stack with an address in it. Events from
/// before the module was loaded may follow.
#[test]
fn events_keep_their_times_behind_a_module_that_was_loaded_after_them() {
    let free = |time_ns, id| {
        Record::Free(Free {
            time_ns,
            thread: 0,
            id,
        })
    };
    let module = Record::Module(Module {
        number: 0,
        time_ns: 9_000_000,
        path: "/lib/plugin.so".into(),
        build_id: vec![],
        stamp: None,
        bias: 0,
        segments: vec![],
    });
    let gone = Record::ModuleGone {
        module: 0,
        time_ns: 9_500_000,
    };
    for first in [module, gone] {
        let frames = [vec![first, free(1_000_000, 1), free(2_000_000, 2)]];
        let [records] = frames.clone();
        assert_eq!(read_all(&written(&frames)), (records, None));
    }
}

#[test]
fn foreign_files_are_named() {
    let kind = |bytes: &[u8]| Reader::new(bytes).unwrap_err().kind;
    assert_eq!(kind(b""), ReadErrorKind::Empty);
    assert_eq!(
        kind(b"heap profile: 1: 2 [3: 4] @ heapprofile"),
        ReadErrorKind::NotALog
    );
    assert_eq!(kind(b"heaplog\x02"), ReadErrorKind::Version(2));
    assert_eq!(kind(b"heaplog\x04"), ReadErrorKind::Version(4));
    assert_eq!(kind(b"heap"), ReadErrorKind::NotALog);
}

#[test]
fn a_busy_thread_costs_eight_bytes_a_pair() {
    assert!(bytes_of_pairs(1, 100, 1) <= 8.01);
}

#[test]
fn threads_that_take_turns_cost_ten() {
    // Each thread has its own ids, in blocks that lie apart; sizes and stack numbers take two
    // bytes.
    assert!(bytes_of_pairs(16, 1000, 1000) <= 10.0);
}

/// Returns the bytes for malloc and free in turn, a microsecond apart, by that many threads in
/// turn.
fn bytes_of_pairs(threads: u64, size: u64, stacks: u64) -> f64 {
    let mut records = Vec::new();
    for i in 0..10_000u64 {
        let thread = i % threads;
        let id = 77 + thread * 4096 + i / threads;
        records.push(Record::Alloc(Alloc {
            time_ns: i * 1000,
            thread: thread as u32,
            id,
            size,
            slack: 12,
            stack: (i * 7 % stacks) as u32,
            interval: 1,
        }));
        records.push(Record::Free(Free {
            time_ns: i * 1000,
            thread: thread as u32,
            id,
        }));
    }
    written_as_usual(&records).len() as f64 / 1e4
}

/// Numbers at the limits of each length, in every place of a short record.
#[test]
fn numbers_at_the_borders_of_their_lengths_come_back() {
    const START: u64 = 1 << 40;
    let borders = [
        0x7f, 0x80, 0xfff, 0x1000, 0x3fff, 0x4000, 0x4001, 0x7fff, 0x8000,
    ];
    for number in borders {
        for place in 0..7 {
            let at = |n: u64| if n == place { number } else { 0 };
            // Half the distance ahead and behind: the lowest bit keeps the sign.
            for ahead in [at(3) as i64 / 2, -(at(3) as i64) / 2] {
                let first = Alloc {
                    time_ns: 1000,
                    thread: 0,
                    id: START,
                    stack: 0,
                    size: 0,
                    slack: 0,
                    interval: 0,
                };
                let second = Alloc {
                    time_ns: 1000 + 1000 * at(6),
                    thread: at(4) as u32,
                    id: (START + 1).wrapping_add_signed(ahead),
                    stack: at(0) as u32,
                    size: at(1),
                    slack: at(2),
                    ..first
                };
                let free = Free {
                    time_ns: second.time_ns,
                    thread: at(5) as u32,
                    id: second.id.wrapping_add_signed(ahead),
                };
                let events = [
                    Record::Alloc(first),
                    Record::Alloc(second),
                    Record::Free(free),
                ];
                for file in [written(&[events.to_vec()]), written_as_usual(&events)] {
                    let (read, error) = read_all(&file);
                    assert_eq!(error, None, "{number:#x} at {place}");
                    assert_eq!(read, events, "{number:#x} at {place}");
                }
            }
        }
    }
}

/// Work for each frame of a stack, and for each pair of frames, must have a bound.
#[test]
fn a_stack_deeper_than_any_is_cut_to_its_innermost_frames() {
    let stack = |frames: usize| {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Stack(Stack {
            number: 7,
            end: WalkEnd::Root,
            frames: (0..frames as u64).map(|i| 0x1000 + i).collect(),
            interrupted: (0..frames as u32).collect(),
            labels: vec![("tenant".into(), "a".into())],
        }));
        let file = [&FILE_HEADER[..], encoder.finish()].concat();
        match Reader::new(&file).unwrap().next_record() {
            Ok(Some(Record::Stack(stack))) => stack,
            other => panic!("{other:?}"),
        }
    };
    let whole = stack(MAX_STACK_FRAMES);
    assert_eq!(
        (whole.end, whole.frames.len()),
        (WalkEnd::Root, MAX_STACK_FRAMES)
    );
    let cut = stack(MAX_STACK_FRAMES + 1);
    assert_eq!(cut.end, WalkEnd::TooDeep);
    assert_eq!(cut.labels, [("tenant".into(), "a".into())]);
    assert_eq!(
        (&cut.frames, &cut.interrupted),
        (&whole.frames, &whole.interrupted)
    );
}

/// Thousands of damaged frames, each of which claims thousands of whole ones behind it.
#[test]
fn a_reader_gives_up_on_damage_that_claims_all_the_rest() {
    const GAPS: usize = 4000;
    let mut encoder = Encoder::new();
    let mut file = FILE_HEADER.to_vec();
    let mut frame = |file: &mut Vec<u8>, id| {
        encoder.free(&Free {
            time_ns: 1000,
            thread: 0,
            id,
        });
        file.extend_from_slice(encoder.finish());
    };
    frame(&mut file, 0);
    let mut claim = file[FILE_HEADER_LEN..][..FRAME_HEADER_LEN].to_vec();
    claim[4..8].copy_from_slice(&(GAPS as u32 * 20).to_le_bytes());
    for id in 1..GAPS as u64 * 4 {
        file.extend_from_slice(&claim);
        frame(&mut file, id);
    }
    let mut reader = Reader::new(&file).unwrap();
    let mut records = 0;
    loop {
        match reader.next_record() {
            Ok(None) => break,
            Ok(Some(_)) => records += 1,
            Err(_) if reader.skip_damage().is_some() => {}
            Err(_) => break,
        }
    }
    // Every damaged one costs 80,000 bytes, of 64 MiB that may be read in vain.
    assert!(reader.has_given_up());
    assert!((500..2000).contains(&records), "{records}");
}
