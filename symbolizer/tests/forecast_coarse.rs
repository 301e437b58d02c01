//! `heapprof explain` of a log that rotated: when a limit is reached, by the coarse history.

use heapprof_format::{MemoryField, MemoryReading, Record};
use serde_json::Value;

use crate::common::history::{json, ok};
use crate::explain_coarse::{Blocks, DETAIL, END, KB, MINUTE, leak, log_with};

/// The forecast in words of a limit with so much room, and the document.
fn explained(stacks: &[Blocks], room: u64, every: usize, records: &[Record]) -> (String, Value) {
    let mut reading = MemoryReading::at(DETAIL * 10 * MINUTE);
    reading.set(MemoryField::CgroupHighEvents, 0); // of version 2
    reading.set(MemoryField::CgroupMax, 1 << 30);
    reading.set(MemoryField::CgroupUsed, (1 << 30) - room);
    let reading = Record::Memory(Box::new(reading));
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_with(stacks, every, &[&[reading], records].concat(), &folder);
    let text = ok(&["explain", &log, "--width", "300"]);
    let line = text.lines().find(|line| line.contains("memory.max"));
    let (_, forecast) = line.expect("a forecast").split_once("used: ").expect("it");
    (forecast.into(), json(&["explain", "--json", &log]))
}

fn forecast_with(
    stacks: &[Blocks],
    room: u64,
    every: usize,
    records: &[Record],
) -> (String, Value) {
    let (forecast, mut document) = explained(stacks, room, every, records);
    (forecast, document["limit"].take())
}

fn forecast(stacks: &[Blocks], room: u64) -> (String, Value) {
    forecast_with(stacks, room, 1, &[])
}

/// A table of the beginning.
fn table() -> Blocks {
    vec![(0, None, 100_000 * KB)]
}

/// As much in each ten minutes, of that size, from one time to another.
fn growth(from: u64, to: u64, size: u64) -> Blocks {
    (from..to).map(|n| (n, None, size)).collect()
}

/// The document of a heap that grew and is level in the detail.
pub(crate) fn with_two_rates() -> Value {
    explained(&[growth(0, 50, 1000 * KB)], 7200 * KB, 1, &[]).1
}

fn number(limit: &Value, key: &str) -> f64 {
    limit[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key}: {limit}"))
}

#[test]
fn slow_growth_is_seen_over_the_whole_run() {
    // In the detail, the leak is less than a hundredth of all.
    let (text, limit) = forecast(&[table(), leak()], 7200 * KB);
    assert_eq!(
        text,
        "reached in 11.8 h at the rate since 600.0 s (11.0 h to 12.7 h)"
    );
    assert_eq!(limit["since_ns"], 10 * MINUTE);
    assert!(limit.get("other").is_none(), "{limit}");
    let (seconds, least) = (number(&limit, "seconds"), number(&limit, "seconds_least"));
    let most = number(&limit, "seconds_most");
    assert!((seconds / 43_200.0 - 1.0).abs() < 0.1, "{limit}");
    // A moment is 100 KB from the next: so much is not known of each low.
    assert!(least < 0.95 * seconds && most > 1.05 * seconds, "{limit}");
    assert!(least > 0.8 * seconds && most < 1.2 * seconds, "{limit}");
    // 100 times as much room.
    let (text, limit) = forecast(&[table(), leak()], 720_000 * KB);
    assert_eq!(text, "not reached within 7 days at the rate since 600.0 s");
    assert!(limit["seconds"].is_null(), "{limit}");
}

#[test]
fn a_heap_that_grew_and_is_level_has_the_rate_of_the_time_since() {
    let level = growth(0, 24, 1000 * KB);
    let (text, limit) = forecast(&[level], 7200 * KB);
    assert!(
        text.starts_with("not reached within 7 days at the rate since 18300.0 s"),
        "{text}"
    );
    assert_eq!(number(&limit, "growth_bytes_per_second"), 0.0);
    assert!(limit.get("other").is_none(), "{limit}");
}

#[test]
fn a_heap_that_is_level_in_the_detail_has_two_rates() {
    let (text, limit) = forecast(&[growth(0, 50, 1000 * KB)], 7200 * KB);
    let both = "not reached within 7 days at the rate since 32400.0 s; reached in ";
    assert!(text.starts_with(both), "{text}");
    assert!(text.contains(" at the rate since 600.0 s ("), "{text}");
    assert!(limit["seconds"].is_null(), "{limit}");
    let seconds = number(&limit["other"], "seconds");
    assert!((3600.0..7200.0).contains(&seconds), "{limit}");
    assert_eq!(limit["other"]["since_ns"], 10 * MINUTE);
}

#[test]
fn a_rise_in_the_detail_is_told_beside_what_was_level() {
    let rise = growth(DETAIL, END, 5000 * KB);
    let (text, limit) = forecast(&[table(), rise.clone()], 15_000 * KB);
    let at_rise = "reached in 30 min at the rate since 32400.0 s (30 min to 30 min)";
    // The lowest levels of the last quarter are apart.
    let at_level = "not reached before 4.5 days at the rate since 600.0 s, if at all";
    assert_eq!(text, format!("{at_rise}; {at_level}"));
    assert!(number(&limit, "seconds") < 2000.0, "{limit}");
    assert!(limit["other"]["seconds"].is_null(), "{limit}");

    // The heap has been larger before: it rises and falls.
    let before = vec![(20, Some(22), 50_000 * KB)];
    let (text, limit) = forecast(&[table(), rise, before], 15_000 * KB);
    assert_eq!(text, format!("{at_level}; {at_rise}"));
    assert!(limit["seconds"].is_null(), "{limit}");
    assert_eq!(limit["other"]["since_ns"], DETAIL * 10 * MINUTE);
}

#[test]
fn growth_that_began_late_has_its_own_time() {
    let late = growth(30, END, 1000 * KB);
    let (text, limit) = forecast(&[table(), late], 72_000 * KB);
    assert!(text.contains(" at the rate since 18300.0 s ("), "{text}");
    let rate = number(&limit, "growth_bytes_per_second");
    assert!((rate / (1e6 / 600.0) - 1.0).abs() < 0.1, "{rate}");
}

/// A saw-tooth that has been as high before is level, whatever its last rise.
#[test]
fn the_last_rise_of_a_saw_tooth_is_no_growth() {
    let end = |n: u64| Some((n / 20 + 1) * 20).filter(|&end| end < END);
    let teeth = (0..END).map(|n| (n, end(n), 1000 * KB)).collect();
    let (text, limit) = forecast(&[table(), teeth], 15_000 * KB);
    assert!(limit["seconds"].is_null(), "{text}");
    assert_eq!(limit["since_ns"], 10 * MINUTE, "{text}");
}

#[test]
fn too_few_moments_say_nothing() {
    let (text, limit) = forecast_with(&[table(), leak()], 7200 * KB, 9, &[]);
    assert!(text.ends_with(" at this rate, if at all"), "{text}");
    assert!(limit.get("since_ns").is_none(), "{limit}");
    // With few of them, the interval is wider.
    let (_, limit) = forecast_with(&[table(), leak()], 7200 * KB, 3, &[]);
    assert_eq!(limit["since_ns"], 10 * MINUTE);
    let part = number(&limit, "seconds_least") / number(&limit, "seconds");
    assert!((0.5..0.85).contains(&part), "{limit}");
}

/// Blocks that came while recording was stopped are not known. Known ones come in their place.
#[test]
fn only_the_time_since_recording_was_stopped_counts() {
    let regime = |at: u64, interval| Record::Regime {
        time_ns: at * 10 * MINUTE,
        interval,
        by_budget: false,
    };
    let stop = [regime(0, 1), regime(5, 0), regime(8, 1)];
    let (text, limit) = forecast_with(&[table(), leak()], 7200 * KB, 1, &stop);
    assert_eq!(limit["since_ns"], 80 * MINUTE, "{text}");
    // In the detail.
    let stop = [regime(0, 1), regime(55, 0), regime(56, 1)];
    let (_, limit) = forecast_with(&[table(), leak()], 7200 * KB, 1, &stop);
    assert!(limit.get("since_ns").is_none(), "{limit}");
}
