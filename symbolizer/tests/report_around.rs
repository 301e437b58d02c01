//! Surroundings of the heap in a report's page, against the commands that show the same: findings,
//! resident memory, mappings, threads and sizes, slack and ages.

use std::collections::BTreeMap;

use heapprof_format::{MemoryField, MemoryReading, Record};
use serde_json::{Value, json};

use crate::common::LogBuilder;
use crate::common::history::{self, S, ok};
use crate::common::processes::{begin, load, put};
use crate::mapped_memory;
use crate::report::report;

const MS: u64 = 1_000_000;

/// A leak in one thread, requests in another, and slack; with readings of the memory.
fn log(interval: u64) -> Vec<u8> {
    let mut log = LogBuilder::new(interval);
    log.begins(begin(7, interval));
    load(&mut log, 0, 0x10000);
    log.thread(0, "main");
    log.thread(1, "worker");
    let [leak, request] = [0x101, 0x201].map(|at| log.stack(&[0x10000, 0x10000 + at]));
    let mut requests = Vec::new();
    for tick in 0..500 {
        log.wait(18 * MS);
        log.alloc_by(0, leak, 1000);
        requests.push(log.alloc_by(1, request, 20_000 + 10 * (tick % 7)));
        if requests.len() > 40 {
            let oldest = requests.remove(0);
            log.free(oldest);
        }
        if tick % 30 == 29 {
            log.record(|time_ns| Record::Memory(Box::new(reading(time_ns, tick))));
        }
    }
    log.end()
}

fn reading(time_ns: u64, tick: u64) -> MemoryReading {
    let mut reading = MemoryReading::at(time_ns);
    for (field, kib) in [
        (MemoryField::Resident, 9000 + tick),
        (MemoryField::HeapSmall, 1500 + tick),
        (MemoryField::HeapLarge, 200),
        (MemoryField::HeapActive, 2000 + tick),
        (MemoryField::HeapCached, 50),
        (MemoryField::HeapUntouched, 30),
        (MemoryField::File, 4000),
        (MemoryField::DetailAge, 0),
    ] {
        reading.set(field, kib << 10);
    }
    reading
}

fn in_folder(bytes: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = put(folder.path(), "server.heaplog", bytes);
    (folder, log)
}

/// The lines of `top`, by name, of what has some.
fn top(log: &str, options: &[&str]) -> Value {
    let words = [&["top", "--json", "-n", "0"], options, &[log]].concat();
    let document: Value = history::json(&words);
    let lines = document["groups"]
        .as_array()
        .or(document["sites"].as_array());
    let lines = lines.expect("lines").iter().map(|line| {
        let name = line["name"].as_str().or(line["function"].as_str());
        let own = &line["self"];
        let value = own.get("in-use-bytes").unwrap_or(own).as_f64();
        (
            name.expect("a name").to_owned(),
            value.expect("a number") as u64,
        )
    });
    let lines: BTreeMap<String, u64> = lines.filter(|(_, value)| *value > 0).collect();
    json!(lines)
}

#[test]
fn the_head_has_what_explain_says() {
    let (_folder, log) = in_folder(&log(1));
    let said = report(&log, &[]);
    let text = ok(&["explain", "--width", "400", &log]);
    let list = said["data"]["findings"]["list"]
        .as_array()
        .expect("findings");
    assert_eq!(list[0]["verdict"], "leak");
    let frame = list[0]["site"].as_u64().expect("a frame") as usize;
    let name = said["data"]["frames"][frame][0].as_u64().expect("a text") as usize;
    let function = said["data"]["texts"][name].as_str().expect("a name");
    for (number, finding) in (1..).zip(list) {
        let part = |key: &str| finding[key].as_str().unwrap_or_default();
        let head = format!("{number}. {}: ", part("verdict"));
        assert!(text.contains(&head), "{head}: {text}");
        assert!(
            text.contains(part("evidence")),
            "{}: {text}",
            part("evidence")
        );
        assert!(
            text.contains(part("command")),
            "{}: {text}",
            part("command")
        );
    }
    assert!(text.contains(&format!("1. leak: {function}")), "{text}");
    assert_eq!(said["data"]["findings"]["until_s"], Value::Null);
    assert!(list.iter().any(|it| it["is_trouble"] == false), "{list:?}");
}

#[test]
fn a_run_without_trouble_is_said_to_have_none() {
    let mut log = LogBuilder::new(1);
    log.begins(begin(7, 1));
    load(&mut log, 0, 0x10000);
    let stack = log.stack(&[0x10000, 0x10101]);
    log.alloc(stack, 1_000_000);
    log.wait(60 * S);
    log.alloc(stack, 1);
    let (_folder, log) = in_folder(&log.end());
    let said = report(&log, &[]);
    let summary = said["data"]["findings"]["summary"]
        .as_str()
        .expect("a summary");
    let text = ok(&["explain", &log]);
    assert!(
        !summary.is_empty() && text.contains(summary),
        "{summary}: {text}"
    );
}

/// A leak in a run of five seconds, and in one of a minute.
#[test]
fn a_short_run_is_said_to_be_short() {
    for (step, is_short) in [(S / 20, true), (S, false)] {
        let mut log = LogBuilder::new(1);
        log.begins(begin(7, 1));
        load(&mut log, 0, 0x10000);
        let stack = log.stack(&[0x10000, 0x10101]);
        for _ in 0..100 {
            log.alloc(stack, 100_000);
            log.wait(step);
        }
        let (_folder, log) = in_folder(&log.end());
        let said = report(&log, &[]);
        let findings = &said["data"]["findings"];
        assert_eq!(findings["list"][0]["verdict"], "leak");
        let remark = findings["on_length"].as_str().expect("a text");
        assert_eq!(!remark.is_empty(), is_short, "{remark}");
        let text = ok(&["explain", "--width", "400", &log]);
        assert_eq!(text.contains("The run is short"), is_short, "{text}");
        assert!(text.contains(remark), "{remark}: {text}");
    }
}

/// At every moment, of a sampled log as well as of one that is exact.
#[test]
fn the_waterfall_of_a_moment_is_that_of_rss() {
    for interval in [1, 4096] {
        let (_folder, log) = in_folder(&log(interval));
        let said = report(&log, &["--steps", "12"]);
        let moments = said["moments"].as_array().expect("moments");
        let memory = said["memory"].as_array().expect("memory");
        for (moment, memory) in moments.iter().zip(memory) {
            let at = format!("{}s", moment["time"]);
            let expected = history::json(&["rss", "--json", "--at", &at, &log]);
            let reading_s = expected["reading_ns"].as_f64().expect("a time") / 1e9;
            assert_eq!(memory["time_s"].as_f64(), Some(reading_s), "at {at}");
            assert_eq!(memory["resident"], expected["resident_bytes"], "at {at}");
            let lines = memory["lines"].as_array().expect("lines");
            let there = expected["lines"].as_array().expect("lines").iter();
            let there: Vec<&Value> = there.filter(|line| line["bytes"] != 0).collect();
            assert_eq!(lines.len(), there.len(), "at {at}");
            let mut sum = 0;
            for (line, expected) in lines.iter().zip(there) {
                assert_eq!(line["remedy"], expected["remedy"], "at {at}");
                let bytes = line["bytes"].as_i64().expect("bytes");
                // Rows are rounded one by one.
                let off = bytes - expected["bytes"].as_i64().expect("bytes");
                assert!(
                    off.abs() <= if interval == 1 { 0 } else { 2 },
                    "at {at}: {line}"
                );
                assert_eq!(line["from"], sum);
                sum += bytes;
                assert_eq!(line["to"], sum);
            }
            assert_eq!(memory["resident"], sum);
        }
    }
    let (_folder, plain, _) = history::server_file(1);
    assert_eq!(report(&plain, &[])["data"]["memory"], Value::Null);
}

#[test]
fn threads_sizes_types_and_modules_are_those_of_top() {
    let (_folder, log) = in_folder(&log(1));
    let said = report(&log, &["--steps", "20", "--stacks", "1"]);
    let half = said["moments"][10]["time"].to_string() + "s";
    for by in ["thread", "size", "type", "module", "function"] {
        let groups = &said["groupings"][by];
        assert_eq!(groups[0], top(&log, &["--by", by]), "{by}");
        assert_eq!(groups[1], top(&log, &["--by", by, "--at", &half]), "{by}");
    }
    let threads = said["groupings"]["thread"][0].as_object().expect("threads");
    assert_eq!(threads.len(), 2);
    assert_eq!(said["groupings"].get("process"), None);
}

#[test]
fn processes_that_were_joined_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let logs = [40, 41].map(|pid| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid, 1));
        load(&mut log, 0, 0x10000);
        log.thread(0, "main");
        let stack = log.stack(&[0x10000, 0x10101]);
        log.alloc(stack, 1000 * u64::from(pid));
        log.wait(2 * S);
        put(folder.path(), &format!("{pid}.heaplog"), &log.cut())
    });
    let said = report(&logs[1], &[&logs[0]]);
    let expected = json!({"server, pid 40": 40_000, "server, pid 41": 41_000});
    assert_eq!(said["groupings"]["process"][0], expected);
}

#[test]
fn slack_and_ages_are_those_of_top() {
    let (_folder, log) = in_folder(&log_with_slack());
    let said = report(&log, &[]);
    let slack = top(&log, &["-m", "slack", "--by", "function"]);
    assert_eq!(said["slack"], slack);
    assert!(slack.as_object().is_some_and(|it| !it.is_empty()));
    let document: Value = history::json(&["top", "-m", "lifetime", "--json", "-n", "0", &log]);
    let lines = document["sites"].as_array().expect("sites");
    let ages = said["data"]["ages"].as_array().expect("ages");
    assert_eq!(ages.len(), lines.len());
    let name = |age: &Value| {
        let frame = &said["data"]["frames"][age["site"].as_u64().expect("a frame") as usize];
        said["data"]["texts"][frame[0].as_u64().expect("a text") as usize].clone()
    };
    for line in lines {
        let age = ages.iter().find(|age| name(age) == line["function"]);
        let age = age.expect("the site's ages");
        let (is, expected) = (
            age["lifetime_s"].as_f64(),
            line["lifetime_median_s"].as_f64(),
        );
        assert_eq!(is.is_some(), expected.is_some(), "{line}");
        if let (Some(is), Some(expected)) = (is, expected) {
            assert!((is / expected - 1.0).abs() < 0.01, "{is} {line}");
        }
    }
    // Half of the blocks that stay are older than two seconds, and half younger.
    let old = ages.iter().filter_map(|age| age["age_s"].as_f64());
    assert!(
        old.into_iter().any(|age| (1.8..2.2).contains(&age)),
        "{ages:?}"
    );
}

/// Blocks of the first stack stay, one each 40 ms for four seconds; of the second they live 100 ms.
fn log_with_slack() -> Vec<u8> {
    let mut h = history::History::new(1);
    for tick in 0..100 {
        h.at(tick * 40 * MS);
        h.alloc(0, 100, 12);
        let short = h.alloc(1, 1000, 24);
        h.at(tick * 40 * MS + 20 * MS);
        h.free(short);
    }
    h.at(4 * S);
    h.alloc(1, 1000, 24);
    h.end().0
}

#[test]
fn mappings_are_those_of_top_at_each_moment() {
    let (_folder, log) = in_folder(&mapped_memory::log());
    let said = report(&log, &["--steps", "40"]);
    let moments = said["moments"].as_array().expect("moments");
    assert_eq!(moments.len(), 41);
    for moment in moments {
        let at = format!("{}s", moment["time"]);
        for (place, metric) in ["mapped", "mapped-resident"].into_iter().enumerate() {
            let sum = |of: &str| -> f64 {
                let groups = moment["groups"].as_array().expect("groups").iter();
                let groups =
                    groups.filter(|group| group["name"].as_str().expect("a name").contains(of));
                groups
                    .filter_map(|group| group["mapped"][place].as_f64())
                    .sum()
            };
            let lines = top(&log, &["-m", metric, "--by", "function", "--at", &at]);
            let lines = lines.as_object().expect("lines").iter();
            for (name, bytes) in lines.filter(|(name, _)| name.contains(".so")) {
                assert_eq!(sum(name), bytes.as_f64().expect("bytes"), "{name} at {at}");
            }
        }
    }
    let end = &moments[40]["groups"];
    let of = |name: &str| {
        let groups = end.as_array().expect("groups").iter();
        let group = groups.into_iter().find(|group| group["name"] == name);
        group.map(|group| group["mapped"].clone())
    };
    assert_eq!(of("[heap]"), Some(json!([4 << 20, 3 << 20])));
    assert_eq!(of("[anonymous]"), Some(json!([2 << 20, 1 << 20])));
}

/// Three spikes, the middle one the highest, and a dent that parts none.
#[test]
fn peaks_are_the_highest_that_stand_apart() {
    let mut h = history::History::new(1);
    let mut block = h.alloc(0, 1, 0);
    for (tick, size) in [0, 50, 10, 90, 85, 89, 10, 70, 0].into_iter().enumerate() {
        h.at(tick as u64 * S + S / 2);
        h.free(block);
        block = h.alloc(0, size * 1000 + 1, 0);
    }
    h.at(10 * S);
    let (_folder, log) = in_folder(&h.end().0);
    let said = report(&log, &["--steps", "100"]);
    let peaks = said["peaks"].as_array().expect("peaks");
    let bytes: Vec<u64> = peaks
        .iter()
        .map(|peak| peak["bytes"].as_u64().expect("bytes"))
        .collect();
    assert_eq!(bytes, [90_001, 70_001, 50_001]);
    assert_eq!(
        (&peaks[0]["time_s"], &peaks[0]["moment"]),
        (&json!(3.5), &json!(101))
    );
}

/// Blocks of an allocator inside the program lie in mappings, and are no samples' error.
#[test]
fn blocks_of_a_tapped_allocator_lie_in_mappings() {
    let mut log = LogBuilder::new(1);
    log.begins(begin(7, 1));
    log.module("/opt/libheapprof.so", 0x10000, 0x1000);
    log.module("/opt/browser", 0x20000, 0x1000);
    let [ours, tapped] = [0x10100, 0x20100].map(|first| log.stack(&[first, 0x20200]));
    log.alloc(ours, 100 << 10);
    log.alloc(tapped, 300 << 10);
    log.wait(MS);
    log.record(|time_ns| {
        let mut reading = MemoryReading::at(time_ns);
        for (field, kib) in [
            (MemoryField::Resident, 1000),
            (MemoryField::HeapSmall, 0),
            (MemoryField::HeapLarge, 112),
            (MemoryField::HeapActive, 112),
            (MemoryField::Mapped, 250),
            (MemoryField::MappedUnrecorded, 150),
            (MemoryField::DetailAge, 0),
        ] {
            reading.set(field, kib << 10);
        }
        Record::Memory(Box::new(reading))
    });
    let (_folder, log) = in_folder(&log.end());
    let shown = history::json(&["rss", "--json", &log]);
    let lines = shown["lines"].as_array().expect("lines");
    let kib = |key: &str| {
        let line = lines.iter().find(|line| line["key"] == key)?;
        Some(line["bytes"].as_i64()? >> 10)
    };
    let keys = ["in_use", "sample_difference", "mapped_rest", "mapped"];
    let there = keys.map(kib);
    assert_eq!(there, [Some(400), Some(12), Some(100), None], "{shown:#}");
}
