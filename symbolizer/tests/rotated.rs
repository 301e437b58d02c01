//! The largest heap in a log that rotated and has lost its oldest segments: the cases in which it
//! is known, and those in which it is not.

use std::path::PathBuf;

use crate::common::encoded::{alloc, free, stack, start};
use crate::common::history::{folder, json, ok};
use crate::common::{heapprof, stderr, write};
use heapprof_core::Weight;
use heapprof_format::{
    Alloc, Checkpoint, Encoder, FILE_HEADER, FORKED_AT, PARENT_LOG, Record, Start,
};
use serde_json::Value;

const MB: u64 = 1_000_000;
const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// The second segment: 10 blocks of a megabyte are in use at 5 s, all of them from 4 s; five go at
/// 6 s, and one comes and goes. So many megabytes were the most before, at that time.
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

/// The heap grew up to the last event before the segment, and shrank: the largest is what the
/// checkpoint holds.
#[test]
fn the_largest_heap_may_be_that_of_the_checkpoint() {
    let (_folder, log) = log(10, 5 * S);
    let top = json(&["top", &log, "--at", "peak", "--json"]);
    assert_eq!(top["totals"]["in-use-bytes"], 10 * MB);
    let diff = json(&["diff", &log, "--at", "peak", "--at", "end", "--json"]);
    let total = &diff["total"];
    assert_eq!(total["before"], 10e6, "{total}");
    assert_eq!(total["after"], 5e6, "{total}");
    // One block of a megabyte came after the peak.
    let diff = [
        "diff", &log, "--from", "peak", "--to", "end", "--from", "start", "--to", "peak", "--json",
    ];
    let diff = json(&[&diff[..], &["-m", "allocated-bytes"]].concat());
    assert_eq!(diff["total"]["before"], 1e6);
    assert_eq!(diff["total"]["after"], 10e6);
}

/// More was in use within the microsecond of the last event before the segment than after it. The
/// blocks of that time are not known any more.
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

fn dhat(log: &str) -> Value {
    json(&["export", "-f", "dhat", log])
}

fn sum(dhat: &Value, key: &str) -> u64 {
    let points = dhat["pps"].as_array().expect("points");
    points
        .iter()
        .map(|point| point[key].as_u64().expect("a number"))
        .sum()
}

/// The blocks in use when detail begins were in use at that time, and not when the last block came.
#[test]
fn dhats_peak_is_no_earlier_than_what_is_kept() {
    let (_folder, log) = log(10, 5 * S);
    let dhat = dhat(&log);
    assert_eq!((sum(&dhat, "gb"), sum(&dhat, "mb")), (10 * MB, 10 * MB));
    assert_eq!(dhat["tg"], 5_000_000);
}

/// A forked process freed what it had from its parent, in segments that are gone: that was never in
/// use beside what came later.
#[test]
fn dhats_peak_is_without_what_went_before() {
    let folder = folder();
    let mut parent = Encoder::new();
    start(&mut parent, 30, 30 * S, vec![]);
    stack(&mut parent);
    for id in 101..=200 {
        alloc(&mut parent, MS, id, MB);
    }
    let bytes = [&FILE_HEADER[..], parent.finish()].concat();
    let parent: PathBuf = write(folder.path(), "parent.heaplog", &bytes);
    let mut child = Encoder::new();
    let settings = vec![
        (FORKED_AT.into(), (31 * S).to_string()),
        (PARENT_LOG.into(), parent.display().to_string()),
    ];
    start(&mut child, 31, 31 * S, settings);
    let mut bytes = [&FILE_HEADER[..], child.finish()].concat();
    child.record(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 5 * S,
        peak_ns: 5 * S,
        peak_bytes: i128::from(10 * MB) << 32,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    stack(&mut child);
    for id in 1..=10 {
        alloc(&mut child, 4 * S, id, MB);
    }
    for id in 101..=200 {
        free(&mut child, 2 * S, id);
    }
    child.record(&Record::CheckpointEnd { time_ns: 5 * S });
    alloc(&mut child, 6 * S, 11, MB);
    bytes.extend_from_slice(child.finish());
    let child = write(folder.path(), "child.heaplog", &bytes)
        .display()
        .to_string();
    let peak = json(&["top", &child, "-m", "peak", "--json"]);
    assert_eq!(peak["total"], 11e6);
    let dhat = dhat(&child);
    assert_eq!((sum(&dhat, "gb"), sum(&dhat, "mb")), (11 * MB, 11 * MB));
    assert_eq!(dhat["tg"], 6_000_000);
}

/// Equal maxima are equal, also as sums of fractions: the first is the peak, in DHAT's form as
/// everywhere.
#[test]
fn dhat_has_the_first_of_equal_peaks() {
    const INTERVAL: u64 = 524_288;
    let folder = folder();
    for size in 1..200 {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            program: "/bin/server".into(),
            interval: INTERVAL,
            ..Start::default()
        }));
        stack(&mut encoder);
        let mut at = |time_ns, id, size| {
            encoder.alloc(&Alloc {
                time_ns,
                thread: 0,
                id,
                size,
                slack: 0,
                stack: 0,
                interval: INTERVAL,
            });
        };
        at(S, 1, 1000 * size);
        at(2 * S, 2, 7 * size);
        at(3 * S, 3, 100_003 * size);
        // In another order the same.
        for id in [1, 2, 3] {
            free(&mut encoder, 4 * S, id);
        }
        let mut at = |time_ns, id, size| {
            encoder.alloc(&Alloc {
                time_ns,
                thread: 0,
                id,
                size,
                slack: 0,
                stack: 0,
                interval: INTERVAL,
            });
        };
        at(5 * S, 4, 100_003 * size);
        at(6 * S, 5, 1000 * size);
        at(7 * S, 6, 7 * size);
        assert!(Weight::of(7 * size, INTERVAL).objects_f64() > 1.0);
        let bytes = [&FILE_HEADER[..], encoder.finish()].concat();
        let log = write(folder.path(), &format!("{size}.heaplog"), &bytes);
        let dhat = dhat(&log.display().to_string());
        assert_eq!(dhat["tg"], 3_000_000, "{size}");
    }
}
