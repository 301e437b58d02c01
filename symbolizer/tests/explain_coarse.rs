//! `heapprof explain` of a log that rotated: verdicts that rest on the coarse history.

use heapprof_format::{
    Alloc, Checkpoint, CoarseMoment, Encoder, FILE_HEADER, Free, Record, Stack, Sums, WalkEnd,
};

use crate::common::encoded::start;
use crate::common::history::ok;
use crate::explain::{expected, verdicts};

const S: u64 = 1_000_000_000;
pub(crate) const MINUTE: u64 = 60 * S;
pub(crate) const KB: u64 = 1000;
/// Ten hours with a moment every ten minutes; the last hour is in detail.
pub(crate) const END: u64 = 60;
pub(crate) const DETAIL: u64 = 54;

/// Blocks of a stack: when each came and went, in tens of minutes, and its size.
pub(crate) type Blocks = Vec<(u64, Option<u64>, u64)>;

pub(crate) fn leak() -> Blocks {
    (0..END).map(|n| (n, None, 100 * KB)).collect()
}

/// As many bytes from the sixth hour on, in blocks that stay.
fn filled() -> Blocks {
    (0..36).map(|n| (n, None, 100 * KB)).collect()
}

/// A table that is filled again and again, in each period, and emptied at once.
fn saw_tooth(period: u64) -> Blocks {
    let end = |n: u64| Some((n / period + 1) * period).filter(|&end| end < END);
    let step = |n: u64| (n, end(n), 3000 * KB / period);
    (0..END).map(step).collect()
}

/// Grows, while old blocks go.
fn backlog() -> Blocks {
    (0..END)
        .flat_map(|n| {
            let goes = Some(n + 6).filter(|&end| end < END);
            [(n, goes, 300 * KB), (n, None, 40 * KB)]
        })
        .collect()
}

fn log_of(stacks: &[Blocks], folder: &tempfile::TempDir) -> String {
    log_with(stacks, 1, &[], folder)
}

/// A log with each of so many moments, and with these records in its checkpoint.
pub(crate) fn log_with(
    stacks: &[Blocks],
    every: usize,
    records: &[Record],
    folder: &tempfile::TempDir,
) -> String {
    let mut encoder = Encoder::new();
    start(&mut encoder, 31, S, vec![]);
    let mut bytes = [&FILE_HEADER[..], encoder.finish()].concat();
    let lives = |&(came, went, _): &(u64, Option<u64>, u64), at: u64| {
        came < at && went.is_none_or(|went| went >= at)
    };
    let level = |blocks: &Blocks, at: u64| -> u64 {
        let living = blocks.iter().filter(|block| lives(block, at));
        living.map(|it| it.2).sum()
    };
    let sum = |at: u64| -> u64 { stacks.iter().map(|blocks| level(blocks, at)).sum() };
    encoder.record(&Record::Checkpoint(Checkpoint {
        segment: 9,
        time_ns: DETAIL * 10 * MINUTE,
        peak_bytes: i128::from(sum(DETAIL)) << 32,
        peak_ns: DETAIL * 10 * MINUTE,
        intervals: (1, 1),
        requested: Sums::default(),
        ..Checkpoint::default()
    }));
    for number in 0..stacks.len() as u32 {
        encoder.record(&Record::Stack(Stack {
            number,
            end: WalkEnd::Root,
            frames: vec![0x10, 0x1001 + 16 * u64::from(number)],
            interrupted: vec![],
            labels: vec![],
        }));
    }
    for at in (1..=DETAIL).step_by(every) {
        let of_stacks = stacks.iter().map(|blocks| level(blocks, at));
        encoder.record(&Record::CoarseMoment(CoarseMoment {
            time_ns: at * 10 * MINUTE,
            bytes: sum(at),
            bytes_error: 0,
            objects: 1,
            highest: sum(at),
            resident: 0,
            largest: (0..).zip(of_stacks).filter(|it| it.1 > 0).collect(),
        }));
    }
    records.iter().for_each(|record| encoder.record(record));
    // Events of the detail, by time. A block is spread over its ten minutes by its stack.
    let mut events: Vec<(u64, Option<Alloc>, u64)> = Vec::new();
    let mut in_use: Vec<Alloc> = Vec::new();
    let blocks = stacks.iter().enumerate();
    let blocks = blocks.flat_map(|(stack, all)| all.iter().map(move |it| (stack as u32, it)));
    for (id, (stack, block)) in (1..).zip(blocks) {
        let &(came, went, size) = block;
        let ns = |at: u64| at * 10 * MINUTE + u64::from(stack + 1) * S;
        let alloc = Alloc {
            time_ns: ns(came),
            thread: 0,
            id,
            size,
            slack: 0,
            stack,
            interval: 1,
        };
        if came >= DETAIL {
            events.push((ns(came), Some(alloc), id));
        } else if lives(block, DETAIL) {
            in_use.push(alloc);
        }
        if let Some(went) = went.filter(|&went| went >= DETAIL) {
            events.push((ns(went), None, id));
        }
    }
    in_use.sort_by_key(|alloc| alloc.time_ns);
    in_use.iter().for_each(|alloc| encoder.alloc(alloc));
    encoder.record(&Record::CheckpointEnd {
        time_ns: DETAIL * 10 * MINUTE,
    });
    events.sort_by_key(|it| it.0);
    for (time_ns, alloc, id) in events {
        match alloc {
            Some(alloc) => encoder.alloc(&alloc),
            None => encoder.free(&Free {
                time_ns,
                thread: 0,
                id,
            }),
        }
    }
    encoder.record(&Record::Marker {
        time_ns: END * 10 * MINUTE,
        name: "last".into(),
    });
    bytes.extend_from_slice(encoder.finish());
    let path = folder.path().join("server.heaplog");
    std::fs::write(&path, bytes).expect("a file");
    path.display().to_string()
}

/// The log of a leak.
pub(crate) fn with_leak(folder: &tempfile::TempDir) -> String {
    log_of(&[leak()], folder)
}

#[test]
fn what_grows_over_the_whole_run_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_of(&[leak(), filled(), backlog()], &folder);
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds.get(&0), Some(&"leak".to_owned()), "{document}");
    assert_eq!(kinds.get(&2), Some(&"backlog".to_owned()), "{document}");
    // It does not go on.
    assert_ne!(kinds.get(&1), Some(&"leak".to_owned()), "{document}");
    let findings = document["findings"].as_array().expect("findings");
    let leak = findings.iter().find(|it| it["kind"] == "leak");
    let leak = leak.expect("a leak");
    assert_eq!(
        (&leak["coarse"]["what"], &leak["freed_of_old"]),
        (&"grown since".into(), &0.0.into())
    );
    let backlog = findings.iter().find(|it| it["kind"] == "backlog");
    // There were 6 blocks of 300 KB and 30 of 40 KB, which stay.
    let gone = backlog.expect("a backlog")["freed_of_old"]
        .as_f64()
        .expect("a number");
    assert!((gone - 0.6).abs() < 0.02, "{gone}");
    assert_eq!(leak["coarse"]["time_ns"], 10 * MINUTE);
    assert_eq!(leak["coarse"]["in_use_bytes"], 100e3);
    // 100 KB in ten minutes.
    let rate = leak["growth_bytes_per_second"].as_f64().expect("a number");
    assert!((rate / (100e3 / 600.0) - 1.0).abs() < 0.1, "{rate}");
    let text = ok(&["explain", &log, "--width", "200"]);
    let evidence = " since 600.0 s (97.7 KiB then, coarsely); 5.7 MiB in use; 0";
    assert!(text.contains(evidence), "{text}");
}

/// Six moments tell that of what there was hardly anything went, and the ages of the blocks the
/// rest.
#[test]
fn a_few_moments_suffice_if_nothing_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_with(&[leak(), filled(), saw_tooth(16)], 9, &[], &folder);
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds.get(&0), Some(&"leak".to_owned()), "{document}");
    assert_eq!(kinds.get(&1), Some(&"one-time".to_owned()), "{document}");
    assert_ne!(kinds.get(&2), Some(&"leak".to_owned()), "{document}");
    let findings = document["findings"].as_array().expect("findings");
    let leak = findings.iter().find(|it| it["kind"] == "leak");
    let rate = leak.expect("a leak")["growth_bytes_per_second"].as_f64();
    let rate = rate.expect("a number") / (100e3 / 600.0);
    assert!((rate - 1.0).abs() < 0.1, "{rate}");
}

/// Two moments are too few. In the detail, the leak adds a twentieth to what is in use.
#[test]
fn what_grows_in_the_detail_cannot_be_judged_without_its_past() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_with(&[leak(), filled()], 27, &[], &folder);
    let (kinds, document) = verdicts(&log);
    let all = [(0, "cannot be judged"), (1, "one-time")];
    assert_eq!(kinds, expected(&all), "{document}");
    assert_eq!(document["nothing_is_wrong"], false);
    let findings = document["findings"].as_array().expect("findings").iter();
    let mut coarse = findings.map(|it| &it["coarse"]).filter(|it| !it.is_null());
    let coarse = coarse.next().expect("the past of the leak");
    assert_eq!(coarse["what"], "not known until");
    assert_eq!(coarse["time_ns"], DETAIL * 10 * MINUTE);
    let text = ok(&["explain", &log, "--width", "200"]);
    let evidence = " since 32400.0 s, and how it was before is not known";
    assert!(text.contains(evidence), "{text}");
    assert!(!text.contains("Nothing is wrong"), "{text}");
}

/// In the detail, the saw-teeth rise as leaks do.
#[test]
fn what_is_over_or_went_before_is_no_leak() {
    let folder = tempfile::tempdir().expect("a folder");
    // Every eight hours, and every 160 minutes.
    let log = log_of(&[filled(), saw_tooth(48), saw_tooth(16)], &folder);
    let (kinds, document) = verdicts(&log);
    let all = [(0, "one-time"), (1, "backlog"), (2, "periodic")];
    assert_eq!(kinds, expected(&all), "{document}");
    let text = ok(&["explain", &log, "--width", "200"]);
    let fallen =
        "old blocks are freed (100.0%), but more come; coarsely, 2.9 MiB at 28800.0 s, which went";
    assert!(text.contains(fallen), "{text}");
    assert!(text.contains("rises and falls 4 times, up to "), "{text}");
}
