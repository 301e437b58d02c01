//! Concatenated segments of a rotated log are one log; a segment that does not continue it is
//! refused.

use heapprof_format::*;

fn start(pid: u32) -> Record {
    Record::Start(Start {
        pid,
        wall_ns: 7,
        monotonic_ns: 8,
        ..Start::default()
    })
}

fn alloc(id: u64, time_ns: u64) -> Record {
    Record::Alloc(Alloc {
        time_ns,
        thread: 1,
        id,
        size: 10,
        slack: 6,
        stack: 0,
        interval: 1,
    })
}

fn free(id: u64, time_ns: u64) -> Record {
    Record::Free(Free {
        time_ns,
        thread: 1,
        id,
    })
}

/// Returns a file with one frame for each list.
fn file(frames: &[&[Record]]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut bytes = FILE_HEADER.to_vec();
    for frame in frames {
        for record in *frame {
            encoder.record(record);
        }
        bytes.extend_from_slice(encoder.finish());
    }
    bytes
}

fn checkpoint(segment: u32, time_ns: u64) -> Record {
    Record::Checkpoint(Checkpoint {
        segment,
        time_ns,
        ..Checkpoint::default()
    })
}

/// Segment 1: block 1 is allocated. Segment 2: it is in use, block 2 is allocated. Segment 3: both
/// are in use, 1 is freed.
fn segments() -> [Vec<u8>; 3] {
    let end = |time_ns| Record::CheckpointEnd { time_ns };
    [
        file(&[&[start(1)], &[alloc(1, 1000)]]),
        file(&[
            &[start(1)],
            &[checkpoint(2, 2000), Record::Passed(Passed::default())],
            &[alloc(1, 1000), end(2000)],
            &[alloc(2, 3000)],
        ]),
        file(&[
            &[start(1)],
            &[checkpoint(3, 4000)],
            &[alloc(1, 1000), alloc(2, 3000), end(4000)],
            &[free(1, 5000)],
        ]),
    ]
}

/// Returns all errors, each with the number of bytes skipped after it.
fn damage(bytes: &[u8]) -> Vec<(ReadError, Option<u64>)> {
    let mut reader = Reader::new(bytes).unwrap();
    let mut damage = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(_)) => {}
            Ok(None) => return damage,
            Err(error) => damage.push((error, reader.skip_damage())),
        }
        if let Some((_, None)) = damage.last() {
            return damage;
        }
    }
}

fn read(bytes: &[u8]) -> (Vec<Record>, Vec<ReadErrorKind>, u64) {
    let mut reader = Reader::new(bytes).unwrap();
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break,
            Err(error) => {
                errors.push(error.kind);
                if reader.skip_damage().is_none() {
                    break;
                }
            }
        }
    }
    (records, errors, reader.missing_frames())
}

#[test]
fn behind_each_other_they_are_one_log_with_any_padding() {
    let expected = vec![start(1), alloc(1, 1000), alloc(2, 3000), free(1, 5000)];
    for zeros in [0, 1, 7, 4096] {
        let joined = segments().join(&vec![0; zeros][..]);
        let padded = [&joined[..], &vec![0; zeros]].concat();
        assert_eq!(
            read(&padded),
            (expected.clone(), vec![], 0),
            "{zeros} zeros"
        );
        let mut reader = Reader::new(&joined).unwrap();
        while let Ok(Some(_)) = reader.next_record() {}
        let numbers: Vec<u32> = reader.segments().iter().map(|s| s.number).collect();
        assert_eq!(numbers, [2, 3]);
    }
}

#[test]
fn the_first_of_them_gives_its_checkpoint() {
    let [_, second, third] = segments();
    let (records, errors, _) = read(&[second, third].concat());
    assert!(errors.is_empty());
    assert_eq!(records[1], checkpoint(2, 2000));
    assert_eq!(records[4], Record::CheckpointEnd { time_ns: 2000 });
    assert_eq!(records[5..], [alloc(2, 3000), free(1, 5000)]);
}

#[test]
fn what_does_not_continue_the_log_is_not_read() {
    let [first, second, third] = segments();
    let stranger = file(&[&[start(2)], &[alloc(9, 9000)]]);
    for other in [&third, &first, &stranger] {
        let (records, errors, _) = read(&[&first[..], other].concat());
        assert_eq!(records, [start(1), alloc(1, 1000)]);
        assert_eq!(errors, [ReadErrorKind::NotContinued]);
    }
    let (records, errors, _) = read(&[&first[..], &second, &second].concat());
    assert_eq!(records.len(), 3);
    assert_eq!(errors, [ReadErrorKind::NotContinued]);
}

/// A run is identified by its process, and by its start on either clock.
#[test]
fn a_segment_of_another_run_does_not_continue_the_log() {
    let [first, ..] = segments();
    let at = |pid, wall_ns, monotonic_ns| {
        Record::Start(Start {
            pid,
            wall_ns,
            monotonic_ns,
            ..Start::default()
        })
    };
    let end = Record::CheckpointEnd { time_ns: 2000 };
    for (start, is_next) in [
        (at(1, 7, 8), true),
        (at(2, 7, 8), false),
        (at(1, 9, 8), false),
        (at(1, 7, 9), false),
    ] {
        let second = file(&[
            std::slice::from_ref(&start),
            &[checkpoint(2, 2000), end.clone()],
            &[alloc(2, 3000)],
        ]);
        for zeros in [0, 5] {
            let both = [&first[..], &vec![0; zeros], &second].concat();
            assert_eq!(
                read(&both).0.len(),
                if is_next { 3 } else { 2 },
                "{start:?}"
            );
            let not_continued = ReadError {
                offset: (first.len() + zeros) as u64,
                kind: ReadErrorKind::NotContinued,
            };
            let expected = if is_next {
                vec![]
            } else {
                vec![(not_continued, None)]
            };
            assert_eq!(damage(&both), expected, "{start:?}");
        }
    }
}

#[test]
fn what_is_passed_over_is_counted_up_to_what_is_read_next() {
    let [first, second, _] = segments();
    let len = |frames: &[&[Record]]| file(frames).len() - FILE_HEADER.len();
    let (start, event) = (len(&[&[start(1)]]), len(&[&[alloc(1, 1000)]]));
    let after_start = (FILE_HEADER.len() + start) as u64;
    // A frame within a log.
    let mut within = file(&[&[self::start(1)], &[alloc(1, 1000)], &[alloc(2, 3000)]]);
    within[after_start as usize + event - 1] ^= 1;
    let is =
        |offset, kind, passed_over: usize| (ReadError { offset, kind }, Some(passed_over as u64));
    assert_eq!(
        damage(&within),
        [is(after_start, ReadErrorKind::Checksum, event)]
    );
    // The last frame of a segment is torn: the rest is read from the next header on.
    let torn = &first[..first.len() - 1];
    let both = [torn, &second].concat();
    assert_eq!(
        damage(&both),
        [is(after_start, ReadErrorKind::Checksum, event - 1)]
    );
}

#[test]
fn a_torn_segment_costs_its_tail_and_not_the_next_one() {
    let [first, second, third] = segments();
    let torn = &second[..second.len() - 1];
    let (records, errors, _) = read(&[&first[..], torn, &third].concat());
    // Block 2 was in the tail; its copy in the next checkpoint is skipped.
    assert_eq!(records, [start(1), alloc(1, 1000), free(1, 5000)]);
    assert_eq!(errors.len(), 1);
}

#[test]
fn events_behind_a_checkpoint_whose_end_is_damaged_are_read() {
    let [first, mut second, third] = segments();
    // A byte of the frame with the end: the one before the last.
    let last_frame = file(&[&[start(1)], &[alloc(2, 3000)]]).len() - file(&[&[start(1)]]).len();
    let at = second.len() - last_frame - 2;
    second[at] ^= 0xff;
    let (records, errors, _) = read(&[first, second, third].concat());
    assert_eq!(
        records,
        [start(1), alloc(1, 1000), alloc(2, 3000), free(1, 5000)]
    );
    assert_eq!(errors, [ReadErrorKind::Checksum]);
}

#[test]
fn a_segment_whose_header_is_damaged_is_passed_over_as_any() {
    let [first, second, third] = segments();
    let start_frame = file(&[&[start(1)]]).len() - FILE_HEADER.len();
    // The header, and that much of the first frame, too.
    for damaged in [1, FILE_HEADER.len(), FILE_HEADER.len() + start_frame] {
        let mut third = third.clone();
        third[..damaged].fill(0xee);
        let (records, errors, missing) = read(&[&first[..], &second, &third].concat());
        let expected = [start(1), alloc(1, 1000), alloc(2, 3000), free(1, 5000)];
        assert_eq!(records, expected, "{damaged} bytes");
        assert_eq!(errors, [ReadErrorKind::NoFrame], "{damaged} bytes");
        assert_eq!(missing, 0, "{damaged} bytes");
    }
}

/// Any cut and any flipped byte: no panic, no endless loop, and only written records come out.
#[test]
fn damage_anywhere_ends() {
    let joined = segments().join(&[0u8; 5][..]);
    for at in 0..joined.len() {
        if at >= 8 {
            read(&joined[..at]);
        }
        let mut damaged = joined.clone();
        damaged[at] ^= 0x5a;
        if Reader::new(&damaged).is_ok() {
            let (records, ..) = read(&damaged);
            assert!(records.len() <= 12);
        }
    }
}
