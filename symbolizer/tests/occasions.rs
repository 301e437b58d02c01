//! When dumps are made from a log: each kind of occasion, and what begins a count anew.

use heapprof_format::{
    Alloc, Checkpoint, Encoder, EndReason, FILE_HEADER, Free, ReadError, Record, Stack, Start,
    WalkEnd,
};
use heapprof_symbolizer::{DumpTriggers, dumps_of_log};

const MIB: u64 = 1 << 20;
const S: u64 = 1_000_000_000;

struct Log {
    encoder: Encoder,
    time_ns: u64,
    ids: u64,
}

impl Log {
    fn new() -> Log {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            interval: 1,
            ..Start::default()
        }));
        let mut log = Log {
            encoder,
            time_ns: 0,
            ids: 0,
        };
        log.stack();
        log
    }

    fn stack(&mut self) {
        self.encoder.record(&Record::Stack(Stack {
            number: 0,
            end: WalkEnd::Root,
            frames: vec![0x10, 0x1001],
            interrupted: vec![],
            labels: Vec::new(),
        }));
    }

    fn at(&mut self, time_ns: u64) -> &mut Log {
        self.time_ns = time_ns;
        self
    }

    /// Returns its id.
    fn alloc(&mut self, size: u64) -> u64 {
        self.ids += 1;
        self.encoder.alloc(&Alloc {
            time_ns: self.time_ns,
            thread: 1,
            id: self.ids,
            size,
            slack: 0,
            stack: 0,
            interval: 1,
        });
        self.ids
    }

    fn free(&mut self, id: u64) {
        let (time_ns, thread) = (self.time_ns, 1);
        self.encoder.free(&Free {
            time_ns,
            thread,
            id,
        });
    }

    /// Each dump's reason, and what it says is in use, in MiB.
    fn dumps(mut self, occasions: DumpTriggers) -> Vec<(String, u64)> {
        self.encoder.record(&Record::End {
            time_ns: self.time_ns,
            reason: EndReason::Exit,
        });
        let log = [&FILE_HEADER[..], self.encoder.finish()].concat();
        let mut dumps = Vec::new();
        dumps_of_log::<ReadError>(&log, occasions, |profile| {
            let in_use = profile.numbers().in_use_bytes / MIB;
            dumps.push((profile.run.reason.clone(), in_use));
            Ok(())
        })
        .unwrap();
        dumps
    }
}

fn said(dumps: &[(&str, u64)]) -> Vec<(String, u64)> {
    let owned = dumps
        .iter()
        .map(|(reason, mib)| ((*reason).to_owned(), *mib));
    owned.collect()
}

#[test]
fn any_dump_begins_all_counts_anew() {
    let mut log = Log::new();
    let ids: Vec<u64> = (0..6).map(|_| log.alloc(MIB)).collect();
    log.free(ids[0]);
    log.free(ids[1]);
    log.alloc(3 * MIB);
    // Every 4 MiB allocated: at the fourth, and not before 8. Every 2 MiB freed.
    let dumps = log.dumps(DumpTriggers {
        every_allocated: 4 * MIB,
        every_freed: 2 * MIB,
        ..DumpTriggers::default()
    });
    assert_eq!(
        dumps,
        said(&[
            ("4 MB allocated cumulatively", 4),
            // Two MiB after the last dump, which begin anew as well.
            ("2 MB freed cumulatively", 4),
        ])
    );
}

#[test]
fn in_use_counts_from_the_highest_dump() {
    let mut log = Log::new();
    // 2 MiB are not more than 2 MiB; 3 are. Then down and up again: 5 are not 2 above 3.
    let first: Vec<u64> = (0..3).map(|_| log.alloc(MIB)).collect();
    log.free(first[0]);
    log.free(first[1]);
    for _ in 0..5 {
        log.alloc(MIB);
    }
    let dumps = log.dumps(DumpTriggers {
        every_in_use: 2 * MIB,
        ..DumpTriggers::default()
    });
    assert_eq!(dumps, said(&[("3 MB in use", 3), ("6 MB in use", 6)]));
}

#[test]
fn the_clock_is_judged_before_the_event() {
    let mut log = Log::new();
    log.at(2 * S).alloc(MIB);
    // At its very time an event is in it.
    log.at(10 * S).alloc(MIB);
    log.at(10 * S + 1000).alloc(MIB);
    log.at(35 * S).alloc(MIB);
    let dumps = log.dumps(DumpTriggers {
        every_ns: 10 * S,
        ..DumpTriggers::default()
    });
    assert_eq!(
        dumps,
        said(&[
            ("10 sec. since the start", 2),
            ("20 sec. since the start", 3),
            ("30 sec. since the start", 3),
        ])
    );
}

/// Segment 2 begins at 5 s with 5 MiB in use; its checkpoint's end is there, or is not.
fn rotated(is_whole: bool) -> Log {
    let mut log = Log::new();
    log.encoder.record(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 5 * S,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    for _ in 0..5 {
        log.at(4 * S).alloc(MIB);
    }
    if is_whole {
        log.encoder
            .record(&Record::CheckpointEnd { time_ns: 5 * S });
    }
    log.at(6 * S);
    log
}

#[test]
fn a_checkpoint_is_no_occasion_and_what_follows_is() {
    let occasions = DumpTriggers {
        every_allocated: 2 * MIB,
        every_ns: 4 * S,
        ..DumpTriggers::default()
    };
    let dumps = |is_whole| {
        let mut log = rotated(is_whole);
        for _ in 0..2 {
            log.alloc(MIB);
        }
        log.at(9 * S).alloc(MIB);
        log.at(12 * S + 1000).alloc(MIB);
        log.dumps(occasions)
    };
    let clock = [
        ("8 sec. since the start", 7),
        ("12 sec. since the start", 8),
    ];
    assert_eq!(
        dumps(true),
        said(&[
            ("7 MB allocated cumulatively", 7),
            ("10 sec. since the start", 8)
        ])
    );
    // The first event behind it shows that it is over, where its end is missing, and is no occasion
    // itself.
    assert_eq!(dumps(false), said(&clock));
}
