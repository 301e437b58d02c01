//! Of a log that rotated, and of which the oldest segments are gone: the largest heap, where it is known and where it is not.

mod common;

use common::history::{folder, json, ok};
use common::{heapprof, stderr, write};
use heapprof_format::{
    Alloc, Checkpoint, Encoder, FILE_HEADER, Free, Record, Stack, Start, WalkEnd,
};

const MB: u64 = 1_000_000;
const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

fn start(encoder: &mut Encoder, pid: u32, monotonic_ns: u64, settings: Vec<(String, String)>) {
    encoder.record(&Record::Start(Start {
        program: "/bin/server".into(),
        pid,
        forked_from: 30 * u32::from(!settings.is_empty()),
        monotonic_ns,
        interval: 1,
        settings,
        ..Start::default()
    }));
}

fn stack(encoder: &mut Encoder) {
    encoder.record(&Record::Stack(Stack {
        number: 0,
        end: WalkEnd::Root,
        frames: vec![0x10, 0x1001],
        interrupted: vec![],
    }));
}

fn alloc(encoder: &mut Encoder, time_ns: u64, id: u64, size: u64) {
    encoder.alloc(&Alloc {
        time_ns,
        thread: 0,
        id,
        size,
        slack: 0,
        stack: 0,
        interval: 1,
    });
}

fn free(encoder: &mut Encoder, time_ns: u64, id: u64) {
    encoder.free(&Free {
        time_ns,
        thread: 0,
        id,
    });
}

/// The second segment: 10 blocks of a megabyte are in use at 5 s, all of them from 4 s; five go at 6 s, and one comes and goes. So
/// many megabytes were the most before, at that time.
fn second_segment(encoder: &mut Encoder, most: u64, at_ns: u64) {
    encoder.record(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 5 * S,
        peak_ns: at_ns,
        peak_bytes: i128::from(most * MB) << 32,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    stack(encoder);
    for id in 1..=10 {
        alloc(encoder, 4 * S, id, MB);
    }
    encoder.record(&Record::CheckpointEnd { time_ns: 5 * S });
    for id in 1..=5 {
        free(encoder, 6 * S, id);
    }
    alloc(encoder, 7 * S, 11, MB);
    free(encoder, 8 * S, 11);
}

fn log(most: u64, at_ns: u64) -> (tempfile::TempDir, String) {
    let folder = folder();
    let mut encoder = Encoder::new();
    start(&mut encoder, 31, 31 * S, vec![]);
    let mut bytes = [&FILE_HEADER[..], encoder.finish()].concat();
    second_segment(&mut encoder, most, at_ns);
    bytes.extend_from_slice(encoder.finish());
    let log = write(folder.path(), "s.heaplog", &bytes);
    let log = log.display().to_string();
    (folder, log)
}

/// The heap grew up to the last event before the segment, and shrank: the largest is what the checkpoint holds.
#[test]
fn the_largest_heap_may_be_that_of_the_checkpoint() {
    let (_folder, log) = log(10, 5 * S);
    let top = json(&["top", &log, "--at", "peak", "--json"]);
    assert_eq!(top["totals"]["in-use-bytes"], 10 * MB);
    let diff = json(&["diff", &log, "--at", "peak", "--at", "end", "--json"]);
    let total = &diff["total"];
    assert_eq!(total["before"], 10e6, "{total}");
    assert_eq!(total["after"], 5e6, "{total}");
    // What came after it: one of a megabyte.
    let diff = [
        "diff", &log, "--from", "peak", "--to", "end", "--from", "start", "--to", "peak", "--json",
    ];
    let diff = json(&[&diff[..], &["-m", "allocated-bytes"]].concat());
    assert_eq!(diff["total"]["before"], 1e6);
    assert_eq!(diff["total"]["after"], 10e6);
}

/// Within the microsecond of the last event before the segment more was in use than after it. Which blocks, nobody knows any more.
#[test]
fn the_largest_heap_within_the_checkpoints_microsecond_is_gone() {
    let (_folder, log) = log(12, 5 * S);
    for command in [
        &["top", &log, "--at", "peak"][..],
        &["diff", &log, "--at", "peak", "--at", "end"],
    ] {
        let output = heapprof(command);
        assert!(!output.status.success(), "{command:?}");
        let said = stderr(&output);
        assert!(said.contains("is before what is kept"), "{said}");
    }
    let timeline = ok(&["timeline", &log]);
    assert!(
        timeline.contains("peak at 5.000000 s: 11.4 MiB in use\n"),
        "{timeline}"
    );
}
