//! Any records, in any order, as the logs of three processes: their join is a log without a fault.
#![no_main]

use heapprof_format::{
    Alloc, Checkpoint, Counter, Encoder, EndReason, FILE_HEADER, FORKED_AT, Free, Module, Passed,
    Process, Record, Segment, Stack, Start, Sums, Thread, WalkEnd,
};
use heapprof_symbolizer::{Join, profile_of_log};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut encoders = [0, 1, 2].map(|index| {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            program: "/bin/server".into(),
            pid: index,
            wall_ns: 1_000_000 * u64::from(index),
            interval: 1,
            settings: vec![(FORKED_AT.into(), "1".into())],
            ..Start::default()
        }));
        encoder
    });
    let mut logs = [const { Vec::new() }; 3].map(|_: Vec<u8>| FILE_HEADER.to_vec());
    for five in bytes.chunks_exact(5) {
        let [what, a, b, c, d] = five.try_into().expect("five bytes");
        let index = usize::from(what >> 6) % 3;
        if what & 63 == 63 {
            let frame = encoders[index].finish();
            logs[index].extend_from_slice(frame);
        } else {
            encoders[index].record(&record(what & 63, [a, b, c, d]));
        }
    }
    for (log, encoder) in logs.iter_mut().zip(&mut encoders) {
        log.extend_from_slice(encoder.finish());
    }
    let mut join = Join::new();
    let mut joined = 0;
    for (number, log) in logs.iter().enumerate() {
        let without_inherited = number == 1;
        joined += usize::from(join.add(String::new(), log, without_inherited, |_| ()).is_ok());
    }
    let mut bytes = Vec::new();
    join.write(&mut bytes, |_| ()).expect("memory");
    let profile = profile_of_log(&bytes, |_| ()).expect("what we write, we read");
    let account = &profile.account;
    assert!(account.is_whole() && account.remarks.is_empty(), "{account:?}");
    assert_eq!(profile.account.unknown_frees, 0);
    assert_eq!(profile.parts.len(), joined);
});

fn record(what: u8, [a, b, c, d]: [u8; 4]) -> Record {
    let time_ns = 50_000 * u64::from(d);
    let thread = if b == 255 { u32::MAX } else { u32::from(b % 4) };
    let sums = Sums {
        samples: u64::from(a),
        fixed: [i128::from(a) << 32, i128::from(b) << 40, 0, 0],
    };
    match what % 16 {
        0..=3 => Record::Alloc(Alloc {
            time_ns,
            thread,
            id: u64::from(a),
            size: 1 << (c % 64),
            slack: u64::from(b),
            stack: u32::from(b / 32),
            interval: 1 << (c / 4),
        }),
        4..=6 => Record::Free(Free {
            time_ns,
            thread,
            id: u64::from(a),
        }),
        7 => Record::Stack(Stack {
            number: u32::from(a / 32),
            end: WalkEnd::from_u8(b % 7).expect("an end"),
            frames: vec![0x1000 + u64::from(b), 0x1000 * u64::from(c)],
            interrupted: vec![u32::from(d)],
            labels: vec![("k".into(), "ab"[..usize::from(d % 3)].into()); usize::from(c % 3)],
        }),
        8 => Record::Module(Module {
            number: u32::from(a),
            time_ns,
            path: "/x".into(),
            build_id: vec![b],
            stamp: None,
            bias: u64::from(c) << (a % 64),
            segments: vec![Segment {
                start: u64::from(c) << (a % 64),
                len: u64::from(d) << (b % 64),
                file_offset: 0,
                flags: 5,
            }],
        }),
        9 => Record::ModuleGone {
            module: u32::from(a),
            time_ns,
        },
        10 => Record::Thread(Thread {
            number: thread,
            tid: 1,
            name: "t".into(),
        }),
        11 => Record::Regime {
            time_ns,
            interval: u64::from(a),
            by_budget: b % 2 == 0,
        },
        12 => Record::Checkpoint(Checkpoint {
            segment: u32::from(a),
            time_ns,
            peak_bytes: i128::from(b) << (c % 120),
            intervals: (u64::from(b), u64::from(c)),
            requested: sums,
            ..Checkpoint::default()
        }),
        13 => Record::Passed(Passed {
            stack: u32::from(a / 32),
            class: c,
            first_ns: time_ns,
            sums,
        }),
        14 => Record::CheckpointEnd { time_ns },
        _ => match a % 4 {
            0 => Record::Marker {
                time_ns,
                name: "forked: at least 0".into(),
            },
            1 => Record::Counters {
                time_ns,
                values: vec![(Counter::from_number(b.into()), u64::MAX)],
            },
            2 => Record::Process(Process::default()),
            _ => Record::End {
                time_ns,
                reason: EndReason::from_u8(b % 4).expect("a reason"),
            },
        },
    }
}
