//! A join, against a naive model: lists of blocks of several processes, with the times at which
//! they came and went.

use std::collections::BTreeMap;

use crate::common::processes::{S, begin, load, put};
use crate::common::{LogBuilder, heapprof, stderr};
use heapprof_core::{CoarseHistory, SizeClass};
use heapprof_format::{
    Alloc, Checkpoint, CoarseMoment, EndReason, Free, Passed, Record, Start, Sums,
};
use heapprof_symbolizer::Temporary;
use heapprof_symbolizer::{
    Groups, Join, JoinError, Looks, Moment, Profile, ReadRequest, Rows, View, profile_of_log,
    profile_of_view, timeline_of_log,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A block of a process; times are of its own clock.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// The number of the caller's stack.
    caller: u64,
    size: u64,
    came_ms: u64,
    /// Later, or never.
    lived_ms: Option<u64>,
}

impl Block {
    fn went_ms(&self) -> Option<u64> {
        Some(self.came_ms + self.lived_ms?)
    }

    fn is_in_use_at(&self, ms: u64) -> bool {
        self.came_ms <= ms && self.went_ms().is_none_or(|went| went > ms)
    }
}

#[derive(Debug, Clone)]
struct Process {
    began_ms: u64,
    /// The end, on the process's own clock.
    ends_ms: u64,
    /// Its log says that it ended.
    has_end: bool,
    blocks: Vec<Block>,
    /// Its log has lost what was before, but for a checkpoint.
    rotated_ms: Option<u64>,
}

/// The time between two moments of a coarse history.
const STEP_MS: u64 = 5;

impl Process {
    /// Bytes in use at a time of its own.
    fn bytes_at(&self, own_ms: u64) -> u64 {
        let blocks = self.blocks.iter();
        let in_use = blocks.filter(|block| block.is_in_use_at(own_ms));
        in_use.map(|block| block.size).sum()
    }

    /// Bytes of a caller that a join knows of at that time: before detail begins, those of the last
    /// moment, if there is one.
    fn bytes_known_of(&self, caller: u64, own_ms: u64) -> u64 {
        let is_coarse = self
            .rotated_ms
            .is_some_and(|rotated_ms| own_ms < rotated_ms);
        let known_ms = match is_coarse {
            true if own_ms < STEP_MS => return 0,
            true => own_ms / STEP_MS * STEP_MS,
            false => own_ms,
        };
        let blocks = self.blocks.iter();
        let in_use = blocks.filter(|it| it.caller == caller && it.is_in_use_at(known_ms));
        in_use.map(|block| block.size).sum()
    }

    /// Its coarse history: a moment in each step, and that of its checkpoint.
    fn moments(&self, rotated_ms: u64, stacks: &[u32; 4]) -> Vec<CoarseMoment> {
        let times = (STEP_MS..rotated_ms).step_by(STEP_MS as usize);
        let mut before_ms = 0;
        let moment = |ms: u64| {
            let in_use = || self.blocks.iter().filter(move |it| it.is_in_use_at(ms));
            let of_caller = |(caller, stack): (u64, &u32)| {
                let blocks = in_use().filter(|block| block.caller == caller);
                (*stack, blocks.map(|block| block.size).sum())
            };
            let since = std::mem::replace(&mut before_ms, ms);
            CoarseMoment {
                time_ns: ms * MS,
                bytes: self.bytes_at(ms),
                objects: in_use().count() as u64,
                highest: (since..=ms).map(|ms| self.bytes_at(ms)).max().unwrap_or(0),
                largest: (0..).zip(stacks).map(of_caller).collect(),
                ..CoarseMoment::default()
            }
        };
        times.chain([rotated_ms]).map(moment).collect()
    }
}

fn block() -> impl Strategy<Value = Block> {
    let lived_ms = prop::option::of(1..900u64);
    let times = (0..900u64, lived_ms);
    (0..4u64, 1..100_000u64, times).prop_map(|(caller, size, (came_ms, lived_ms))| Block {
        caller,
        size,
        came_ms,
        lived_ms,
    })
}

fn process() -> impl Strategy<Value = Process> {
    let blocks = prop::collection::vec(block(), 0..12);
    let rotated_ms = prop::option::weighted(0.3, 0..1000u64);
    let times = (0..1500u64, 1..1000u64, prop::bool::weighted(0.8));
    (times, blocks, rotated_ms).prop_map(
        |((began_ms, ends_ms, has_end), mut blocks, rotated_ms)| {
            blocks.retain(|block| block.came_ms <= ends_ms);
            for block in &mut blocks {
                let is_seen = block.went_ms().is_some_and(|went| went <= ends_ms);
                block.lived_ms = block.lived_ms.filter(|_| is_seen);
            }
            blocks.sort_by_key(|block| block.came_ms);
            Process {
                began_ms,
                ends_ms,
                has_end,
                blocks,
                rotated_ms: rotated_ms.filter(|&rotated_ms| rotated_ms <= ends_ms),
            }
        },
    )
}

/// Where a process has the server: the first one where others have something else.
fn server_at(index: usize) -> u64 {
    [0x1000, 0x7000, 0x1000, 0x9000][index]
}

fn exactly(samples: u64, bytes: u64) -> Sums {
    Sums {
        samples,
        fixed: [i128::from(samples) << 32, i128::from(bytes) << 32, 0, 0],
    }
}

fn log_of(process: &Process, index: usize) -> Vec<u8> {
    let mut log = LogBuilder::new(1);
    log.begins(Start {
        wall_ns: begin(40, 1).wall_ns + process.began_ms * MS,
        ..begin(40 + index as u32, 1)
    });
    log.flush();
    load(&mut log, 0, server_at(index));
    load(&mut log, 1, server_at(index) + 0x2000);
    let stacks = [0, 1, 2, 3].map(|caller| {
        let server = server_at(index);
        log.stack(&[server + 0x2010, server + 0x101 + 16 * caller])
    });
    let alloc = |id: usize, block: &Block| Alloc {
        time_ns: block.came_ms * MS,
        thread: id as u32 % 2,
        id: 1000 + id as u64,
        size: block.size,
        slack: 0,
        stack: stacks[block.caller as usize],
        interval: 1,
    };
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (id, block) in process.blocks.iter().enumerate() {
        events.push((block.came_ms, false, id));
        events.extend(block.went_ms().map(|went| (went, true, id)));
    }
    events.sort_unstable();
    if let Some(rotated_ms) = process.rotated_ms {
        let mut passed: BTreeMap<(u64, u8), (u64, u64)> = BTreeMap::new();
        let known = |block: &&Block| block.came_ms <= rotated_ms;
        for block in process.blocks.iter().filter(known) {
            let row = passed
                .entry((block.caller, SizeClass::of(block.size).0))
                .or_default();
            if !block.is_in_use_at(rotated_ms) {
                *row = (row.0 + 1, row.1 + block.size);
            }
        }
        let requested: u64 = (process.blocks.iter().filter(known))
            .map(|block| block.size)
            .sum();
        log.given(&Record::Checkpoint(Checkpoint {
            segment: 3,
            time_ns: rotated_ms * MS,
            bytes_before: 77,
            intervals: (1, 1),
            requested: exactly(
                process.blocks.iter().filter(known).count() as u64,
                requested,
            ),
            ..Checkpoint::default()
        }));
        for moment in process.moments(rotated_ms, &stacks) {
            log.given(&Record::CoarseMoment(moment));
        }
        log.flush();
        for ((caller, class), (samples, bytes)) in passed {
            log.given(&Record::Passed(Passed {
                stack: stacks[caller as usize],
                class,
                first_ns: 0,
                sums: exactly(samples, bytes),
            }));
        }
        for (id, block) in process.blocks.iter().enumerate() {
            if block.is_in_use_at(rotated_ms) {
                log.given(&Record::Alloc(alloc(id, block)));
            }
        }
        log.flush();
        log.given(&Record::CheckpointEnd {
            time_ns: rotated_ms * MS,
        });
    }
    for (time_ms, is_free, id) in events {
        if process
            .rotated_ms
            .is_some_and(|rotated_ms| time_ms <= rotated_ms)
        {
            continue;
        }
        log.given(&match is_free {
            true => Record::Free(Free {
                time_ns: time_ms * MS,
                thread: 0,
                id: 1000 + id as u64,
            }),
            false => Record::Alloc(alloc(id, &process.blocks[id])),
        });
    }
    log.record_at(process.ends_ms * MS, |time_ns| match process.has_end {
        true => Record::End {
            time_ns,
            reason: EndReason::Exit,
        },
        false => Record::Marker {
            time_ns,
            name: "still here".into(),
        },
    });
    log.cut()
}

fn joined(logs: &[Vec<u8>]) -> Vec<u8> {
    let mut join = Join::new();
    for (number, log) in logs.iter().enumerate() {
        join.add(format!("{number}.heaplog"), log, false, |_| {})
            .unwrap();
    }
    let mut bytes = Vec::new();
    join.write(&mut bytes, |_| {}).unwrap();
    bytes
}

/// In use and allocated: blocks and bytes, by the caller.
type Numbers = BTreeMap<u64, [u64; 4]>;

/// Returns the model's numbers at a moment of the common clock.
fn expected(processes: &[Process], ms: u64) -> Numbers {
    let end = |process: &Process| process.began_ms + process.ends_ms;
    let last = processes.iter().map(end).max().unwrap();
    let mut numbers = Numbers::new();
    for process in processes {
        let Some(own_ms) = ms.checked_sub(process.began_ms) else {
            continue;
        };
        let is_there = own_ms < process.ends_ms || end(process) == last || !process.has_end;
        for block in &process.blocks {
            if block.came_ms > own_ms {
                continue;
            }
            let row = numbers.entry(block.caller).or_default();
            if is_there && block.is_in_use_at(own_ms) {
                (row[0], row[1]) = (row[0] + 1, row[1] + block.size);
            }
            (row[2], row[3]) = (row[2] + 1, row[3] + block.size);
        }
    }
    numbers
}

/// Returns the caller of a stack of the joined log. It is known by its offset in the server,
/// wherever the server lies now.
fn caller_of(profile: &Profile, stack: u32) -> u64 {
    let stack = &profile.stacks[stack as usize];
    let places: Vec<_> = profile.places(stack).collect();
    let call = places[1];
    let module = &profile.modules[call.module.unwrap() as usize];
    assert_eq!(module.path, "/bin/server");
    (call.avma - module.bias.unwrap() - 0x100) / 16
}

/// Returns the numbers of a profile of the joined log.
fn found(profile: &Profile) -> Numbers {
    let mut numbers = Numbers::new();
    for row in &profile.rows {
        let caller = caller_of(profile, row.stack);
        let totals = &row.totals;
        let sum = numbers.entry(caller).or_default();
        sum[0] += totals.in_use.objects();
        sum[1] += totals.in_use.bytes();
        sum[2] += totals.allocated.objects();
        sum[3] += totals.allocated.bytes();
    }
    numbers.retain(|_, numbers| *numbers != [0; 4]);
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// At each moment, in use is what all processes that are there have, and allocated what all
    /// have allocated. Logs that rotated tell the same from the last of their checkpoints on.
    #[test]
    fn each_moment_has_what_all_processes_have(
        processes in prop::collection::vec(process(), 1..4),
        moments in prop::collection::vec(0..2500u64, 4),
    ) {
        let logs: Vec<_> = processes.iter().enumerate().map(|(i, p)| log_of(p, i)).collect();
        let log = joined(&logs);
        let first = processes.iter().map(|p| p.began_ms).min().unwrap();
        let ends = processes.iter().map(|p| p.began_ms + p.ends_ms);
        let last = ends.max().unwrap();
        let rotated = processes.iter().filter_map(|p| Some(p.began_ms + p.rotated_ms?));
        let detailed = rotated.max();
        let whole = profile_of_log(&log, |_| {}).unwrap();
        prop_assert_eq!(found(&whole), expected(&processes, last));
        prop_assert_eq!(whole.parts.len(), processes.len());
        prop_assert!(whole.account.is_whole() && whole.account.unknown_frees == 0);
        prop_assert_eq!(whole.run.duration_ns, (last - first) * MS);
        prop_assert_eq!(
            whole.run.checkpoint.map(|checkpoint| checkpoint.time_ns),
            detailed.map(|ms| (ms - first) * MS)
        );
        // The bytes that the samples stand for are known without the checkpoint, too.
        prop_assert_eq!(whole.requested.bytes(), whole.totals().allocated.bytes());
        for ms in moments {
            if ms < first || ms > last || detailed.is_some_and(|detailed| ms < detailed) {
                continue;
            }
            let request = ReadRequest {
                view: View::At(Moment::After((ms - first) * MS)),
                ..ReadRequest::default()
            };
            let profile = profile_of_view(&log, &request, |_| {}).unwrap();
            prop_assert_eq!(found(&profile), expected(&processes, ms), "at {} ms", ms);
        }
        // The most at once is the most of any moment at which a block came.
        let comes = processes.iter().flat_map(|process| {
            process.blocks.iter().map(|block| process.began_ms + block.came_ms)
        });
        let bytes = |ms| expected(&processes, ms).values().map(|row| row[1]).sum::<u64>();
        if detailed.is_none() {
            let most = comes.map(bytes).max().unwrap_or(0);
            prop_assert!(whole.peak.unwrap().bytes.to_f64() >= most as f64);
        }
    }
}

/// The sum over all processes that are there, of what `bytes` says of one at a time of its own.
fn of_all(processes: &[Process], ms: u64, bytes: impl Fn(&Process, u64) -> u64) -> u64 {
    let end = |process: &Process| process.began_ms + process.ends_ms;
    let last = processes.iter().map(end).max().unwrap();
    let there = processes.iter().filter(|process| {
        process.began_ms <= ms && (ms < end(process) || end(process) == last || !process.has_end)
    });
    there
        .map(|process| bytes(process, ms - process.began_ms))
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Before all have detail, each moment has what is known of all, and all never had more than
    /// the most.
    #[test]
    fn each_coarse_moment_has_what_is_known_of_all_processes(
        processes in prop::collection::vec(process(), 1..4),
    ) {
        let rotated = processes.iter().filter_map(|p| Some(p.began_ms + p.rotated_ms?));
        let Some(detailed) = rotated.max() else {
            return Ok(());
        };
        let logs: Vec<_> = processes.iter().enumerate().map(|(i, p)| log_of(p, i)).collect();
        let whole = profile_of_log(&joined(&logs), |_| {}).unwrap();
        let first = processes.iter().map(|p| p.began_ms).min().unwrap();
        let moments = &whole.coarse;
        prop_assert_eq!(moments.last().map(|it| it.time_ns), Some((detailed - first) * MS));
        prop_assert!(moments.len() <= CoarseHistory::MOST);
        let mut before_ms = first;
        for moment in moments {
            let ms = first + moment.time_ns / MS;
            let known = [0, 1, 2, 3].map(|caller| {
                of_all(&processes, ms, |it, own_ms| it.bytes_known_of(caller, own_ms))
            });
            let mut found = [0; 4];
            for &(stack, bytes) in &moment.largest {
                found[caller_of(&whole, stack) as usize] += bytes;
            }
            prop_assert_eq!(found, known, "at {} ms", ms);
            prop_assert_eq!(moment.bytes, known.iter().sum::<u64>(), "at {} ms", ms);
            let all = (before_ms..=ms).map(|ms| of_all(&processes, ms, Process::bytes_at));
            let most = all.max().unwrap_or(0);
            prop_assert!(moment.highest >= most, "{} at {} ms", moment.highest, ms);
            before_ms = ms;
        }
    }
}

/// A process of 1000 bytes from 1 s to its end at 3 s, and one of 10 from 2 s on, to the end of all
/// at 5 s.
fn two() -> [Vec<u8>; 2] {
    let process = |began_ms, ends_ms, came_ms, size| Process {
        began_ms,
        ends_ms,
        has_end: true,
        blocks: vec![Block {
            caller: 0,
            size,
            came_ms,
            lived_ms: None,
        }],
        rotated_ms: None,
    };
    [process(0, 3000, 1000, 1000), process(1000, 4000, 1000, 10)].map({
        let mut index = 0;
        move |process| {
            index += 1;
            log_of(&process, index - 1)
        }
    })
}

#[test]
fn a_process_that_ends_has_nothing_and_the_last_one_keeps_what_it_had() {
    let log = joined(&two());
    let whole = profile_of_log(&log, |_| {}).unwrap();
    assert_eq!(whole.process_name(), "server, 2 processes");
    let peak = whole.peak.unwrap();
    assert_eq!((peak.time_ns, peak.bytes.to_f64()), (2 * S, 1010.0));
    let markers: Vec<_> = (whole.run.markers.iter())
        .map(|marker| (marker.time_ns / S, marker.name.as_str()))
        .collect();
    assert_eq!(
        markers,
        [
            (0, "server, pid 40: began"),
            (1, "server, pid 41: began"),
            (3, "server, pid 40: ended"),
            (5, "server, pid 41: ended"),
        ]
    );
    let timeline = timeline_of_log(
        &log,
        &whole,
        5,
        Groups {
            rows: Rows::Whole,
            count: 0,
            of: |_| None,
            looks: Looks::default(),
        },
        |_| (),
        |_| {},
    )
    .unwrap();
    let in_use: Vec<f64> = timeline.steps.iter().map(|step| step.in_use).collect();
    assert_eq!(in_use, [1000.0, 1010.0, 10.0, 10.0, 10.0]);
    let allocated: Vec<f64> = timeline.steps.iter().map(|step| step.allocated).collect();
    assert_eq!(allocated, [1000.0, 10.0, 0.0, 0.0, 0.0]);
}

#[test]
fn what_cannot_be_joined_says_why() {
    let logs = two();
    let log = joined(&logs);
    let refused = Join::new().add("x".into(), &log, false, |_| {});
    assert!(matches!(refused, Err(JoinError::Joined)), "{refused:?}");
    // The start is in the first frame, behind eight bytes and sixteen of the frame's own.
    let mut damaged = logs[0].clone();
    damaged[30] ^= 1;
    let refused = Join::new().add("x".into(), &damaged, false, |_| {});
    assert!(matches!(refused, Err(JoinError::NoStart)), "{refused:?}");
    let refused = Join::new().add("x".into(), b"heap", false, |_| {});
    assert!(matches!(refused, Err(JoinError::Read(_))), "{refused:?}");
}

/// A block that a process has until its end was not freed: its lifetime is unknown, and it is not
/// temporary.
#[test]
fn what_goes_with_its_process_has_not_died() {
    let log = joined(&two());
    let request = ReadRequest {
        pasts: Some(Temporary::within(10 * S)),
        ..ReadRequest::default()
    };
    let profile = profile_of_view(&log, &request, |_| {}).unwrap();
    let temporary: u64 = profile
        .pasts
        .iter()
        .map(|past| past.temporary.bytes())
        .sum();
    assert_eq!(temporary, 0);
    let lifetimes = &profile.lifetimes[0];
    assert_eq!((lifetimes.died_samples(), lifetimes.live_samples()), (0, 2));
}

/// The peak before all logs have detail is unknown. It is at least the peak of one of the logs.
#[test]
fn the_peak_of_a_process_that_rotated_is_the_least_that_all_had() {
    let rotated = |peak_bytes: i128| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(40, 1));
        let stack = log.stack(&[0x10, 0x20]);
        log.given(&Record::Checkpoint(Checkpoint {
            segment: 2,
            time_ns: 5 * S,
            peak_ns: 3 * S,
            peak_bytes: peak_bytes << 32,
            ..Checkpoint::default()
        }));
        log.given(&Record::CheckpointEnd { time_ns: 5 * S });
        log.wait(6 * S);
        log.alloc(stack, 100);
        log.end()
    };
    for (most, time_ns, bytes, is_gone) in [(5000, 3, 5000.0, true), (50, 6, 100.0, false)] {
        let log = joined(&[rotated(most)]);
        let peak = profile_of_log(&log, |_| {}).unwrap().peak.unwrap();
        let found = (peak.time_ns / S, peak.bytes.to_f64(), peak.is_gone);
        assert_eq!(found, (time_ns, bytes, is_gone));
    }
}

/// If the end of a checkpoint is damaged, later events come at their own times, and not with the
/// checkpoint.
#[test]
fn a_checkpoint_without_its_end_is_over_with_the_next_event() {
    let mut log = LogBuilder::new(1);
    log.begins(begin(40, 1));
    log.given(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 5 * S,
        ..Checkpoint::default()
    }));
    let stack = log.stack(&[0x10, 0x20]);
    let alloc = |id, time_ns| {
        Record::Alloc(Alloc {
            time_ns,
            thread: 0,
            id,
            size: id,
            slack: 0,
            stack,
            interval: 1,
        })
    };
    log.flush();
    log.given(&alloc(100, 3 * S));
    log.given(&alloc(7, 8 * S));
    let log = joined(&[log.cut()]);
    let at = |seconds: u64| {
        let request = ReadRequest {
            view: View::At(Moment::After(seconds * S)),
            ..ReadRequest::default()
        };
        let profile = profile_of_view(&log, &request, |_| {}).unwrap();
        assert_eq!(profile.account.remarks, Vec::<String>::new());
        profile.numbers().in_use_bytes
    };
    assert_eq!((at(5), at(7), at(8)), (100, 100, 107));
}

/// The process of a block is known in logs that are added up, in joined logs, and in one log.
#[test]
fn each_process_has_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let logs = two();
    let [first, second] = [0, 1].map(|i| put(folder.path(), &format!("{i}.heaplog"), &logs[i]));
    let joined = put(folder.path(), "all.heaplog", &joined(&logs));
    let dump = folder.path().join("1.heap").display().to_string();
    crate::common::ok(&["export", "--format", "gperftools", "-o", &dump, &second]);
    let in_use = |args: &[&str]| -> Vec<(String, u64)> {
        let args = [&["top", "--by", "process", "--json", "-n", "0"], args].concat();
        let document: serde_json::Value = serde_json::from_str(&crate::common::ok(&args)).unwrap();
        let groups = document["groups"].as_array().unwrap().iter();
        groups
            .map(|group| {
                let name = group["name"].as_str().unwrap().to_owned();
                (name, group["self"]["in-use-bytes"].as_u64().unwrap())
            })
            .collect()
    };
    let of = |pid: u32, bytes| (format!("server, pid {pid}"), bytes);
    let both = [of(40, 1000), of(41, 10)];
    assert_eq!(in_use(&[&second, &first]), both);
    assert_eq!(in_use(&["--at", "peak", &joined]), both);
    assert_eq!(in_use(&["--joined", "--at", "peak", &second, &first]), both);
    assert_eq!(
        in_use(&["--joined", "--at", "4", &second, &first]),
        both[1..]
    );
    assert_eq!(in_use(&["--at", "end", &joined]), both[1..]);
    assert_eq!(in_use(&[&first]), both[..1]);
    assert_eq!(in_use(&[&dump]), both[1..]);
    let twice = heapprof(&["top", &joined, &second]);
    assert!(
        stderr(&twice).contains("both have server, pid 41"),
        "{}",
        stderr(&twice)
    );
    assert!(stderr(&heapprof(&["top", &first, &second])).is_empty());
    let own = heapprof(&["top", "--at", "peak", &first, &second]);
    assert!(
        stderr(&own).contains("each process at its own peak"),
        "{}",
        stderr(&own)
    );
    // The sum of two dumps does not tell in which dump a block was.
    let not_told = ("(threads are not in this file)".to_owned(), 1010);
    assert_eq!(in_use(&[&dump, &first]), [not_told]);
    let args = ["timeline", "--by", "process", "--steps", "5", "--json"];
    for files in [&[&second, &first][..], &[&joined]] {
        let args: Vec<&str> = args
            .iter()
            .copied()
            .chain(files.iter().map(|f| f.as_str()))
            .collect();
        let drawn: serde_json::Value = serde_json::from_str(&crate::common::ok(&args)).unwrap();
        assert_eq!(drawn["groups"], serde_json::json!([both[0].0, both[1].0]));
        let steps = drawn["steps"].as_array().unwrap().iter();
        let in_use: Vec<_> = steps
            .map(|step| step["groups_in_use_bytes"].clone())
            .collect();
        // When the most bytes of the step were in use: the first process ends in the third.
        let expected = [
            [1000.0, 0.0],
            [1000.0, 10.0],
            [1000.0, 10.0],
            [0.0, 10.0],
            [0.0, 10.0],
        ];
        assert_eq!(in_use, expected.map(|step| serde_json::json!(step)));
    }
    let tree = crate::common::ok(&["tree", "--by", "process", "--at", "peak", &joined]);
    // The other is less than a hundredth.
    assert!(tree.contains("├ server, pid 40"), "{tree}");
}
