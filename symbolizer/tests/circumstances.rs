//! What must stand beside the numbers wherever they go: when recording was stopped, and what a metric is not.

mod common;

use common::{LogBuilder, heapprof, stderr, stdout};
use heapprof_format::Record;
use heapprof_symbolizer::export::pprof::proto;
use prost::Message;
use serde_json::Value;
use std::io::Read;

const MS: u64 = 1_000_000;

fn ok(args: &[&str]) -> String {
    let out = heapprof(args);
    assert!(out.status.success(), "{args:?}: {}", stderr(&out));
    stdout(&out)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

/// Recorded for 101 ms, stopped for 250, recorded for the last 51.
fn paused(interval: u64) -> (tempfile::TempDir, String) {
    let mut log = LogBuilder::new(interval);
    log.module("/bin/server", 0x1000, 0x1000);
    let stack = log.stack(&[0x1101, 0x1201]);
    log.wait(100 * MS - MS);
    let first = log.alloc(stack, 1000);
    for interval in [0, interval] {
        log.record(|time_ns| Record::Regime {
            time_ns,
            interval,
            by_budget: false,
        });
        log.wait(if interval == 0 { 249 * MS } else { 49 * MS });
    }
    log.free(first);
    log.alloc(stack, 300);
    let folder = tempfile::tempdir().unwrap();
    let path = common::write(folder.path(), "s.heaplog", &log.end());
    (folder, path.to_str().unwrap().to_owned())
}

/// The comments of the pprof profile that these arguments make.
fn comments(args: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.pb.gz");
    ok(&[
        &["export", "-f", "pprof", "-o", out.to_str().unwrap()],
        args,
    ]
    .concat());
    let bytes = std::fs::read(&out).unwrap();
    let mut raw = Vec::new();
    let mut gzip = flate2::read::GzDecoder::new(&bytes[..]);
    gzip.read_to_end(&mut raw).unwrap();
    let message = proto::Profile::decode(&raw[..]).unwrap();
    let texts = message.comment.iter();
    texts
        .map(|&text| message.string_table[text as usize].clone())
        .collect()
}

const STOPPED: &str = "recording was stopped for 0.250 s of it: what was allocated then is missing";

#[test]
fn a_time_without_recording_is_told_wherever_numbers_are() {
    for interval in [1, 4096] {
        let (folder, file) = paused(interval);
        for command in ["top", "tree", "info"] {
            let text = ok(&[command, &file]);
            assert!(text.contains(STOPPED), "{command}: {text}");
        }
        assert!(comments(&[&file]).contains(&STOPPED.to_owned()));
        let folded = ok(&["export", "-f", "folded", &file]);
        assert!(folded.contains(&format!("# {STOPPED}\n")), "{folded}");
        for line in folded.lines().filter(|line| line.starts_with('#')) {
            let last = line.rsplit(' ').next().unwrap();
            assert!(last.parse::<f64>().is_err(), "a reader would count {line}");
        }
        for args in [
            &["export", "-f", "json"][..],
            &["top", "--json"],
            &["top", "--json", "-m", "heaptime"],
            &["tree", "--json"],
        ] {
            let document = json(&[args, &[&file]].concat());
            assert_eq!(document["stopped_s"], 0.25, "{args:?}");
            let stop = &document["stops"][0];
            assert_eq!(
                (&stop["from_s"], &stop["to_s"]),
                (&0.101.into(), &0.351.into())
            );
        }
        // Dumps say it, too, and go on saying it when they are read and written again.
        let dump = folder.path().join("s.heap");
        let dump = dump.to_str().unwrap();
        ok(&["export", "-f", "gperftools", "-o", dump, &file]);
        assert!(std::fs::read_to_string(dump).unwrap().contains(STOPPED));
        assert!(ok(&["info", dump]).contains(STOPPED));
    }
}

/// And beside a difference.
#[test]
fn a_difference_says_what_it_was_not_recorded_for() {
    let (_folder, log) = paused(1);
    let remarks = |args: &[&str]| {
        let document = json(&[&["diff", "--json"], args].concat());
        document["remarks"].to_string()
    };
    let windows = remarks(&[
        "--from", "0", "--to", "100ms", "--from", "101ms", "--to", "401ms", &log,
    ]);
    assert!(
        windows.contains("recording was stopped for 0.250 s of the second"),
        "{windows}"
    );
    assert!(!windows.contains("of the first:"), "{windows}");
    let files = remarks(&[&log, &log]);
    assert!(files.contains("s of the first: what") && files.contains("s of the second: what"));
}

#[test]
fn only_the_time_that_is_shown_counts() {
    let (_folder, file) = paused(1);
    let stopped = |args: &[&str]| {
        let document = json(&[&["top", "--json", &file], args].concat());
        document["stopped_s"].as_f64().unwrap()
    };
    assert_eq!(stopped(&["--at", "100ms"]), 0.0);
    assert_eq!(stopped(&["--at", "151ms"]), 0.05);
    assert_eq!(stopped(&["--from", "201ms", "--to", "301ms"]), 0.1);
    assert_eq!(stopped(&["--from", "301ms"]), 0.05);
    assert!(!ok(&["top", &file, "--at", "100ms"]).contains("stopped"));
    let folded = ok(&["export", "-f", "folded", "--at", "100ms", &file]);
    assert!(!folded.contains('#'), "{folded}");
}

#[test]
fn of_several_processes_the_stops_are_summed_and_listed() {
    let (_a, one) = paused(1);
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", 78, 1_767_225_600_000_000_000);
    let stack = log.stack(&[0x1101]);
    log.alloc(stack, 7);
    let folder = tempfile::tempdir().unwrap();
    let other = common::write(folder.path(), "o.heaplog", &log.end());
    let other = other.to_str().unwrap();
    let text = ok(&["top", &one, other]);
    let words = "recording was stopped for 0.250 s, in sum over 1 of the processes";
    assert!(text.contains(words), "{text}");
    let document = json(&["top", "--json", &one, other]);
    assert_eq!(document["stopped_s"], 0.25);
    assert_eq!(document["processes"][0]["stops"][0]["from_s"], 0.101);
    assert_eq!(document["processes"][1]["stopped_s"], 0.0);
    let info = json(&["info", "--json", &one, other]);
    assert_eq!(info["run"]["stopped_ns"], 250 * MS);
    assert_eq!(
        json(&["info", "--json", &one])["run"]["stopped_ns"],
        250 * MS
    );
}

/// Counters of losses are of what the writer knows: of what befell the file they know nothing.
#[test]
fn nothing_was_lost_is_said_of_whole_files_only() {
    const SAID: &str = "nothing was lost";
    let whole = common::server_log(1);
    let mut damaged = whole.clone();
    damaged[300] ^= 0xff;
    let torn = &whole[..whole.len() - 1];
    let folder = tempfile::tempdir().unwrap();
    for (bytes, is_said) in [(&whole[..], true), (&damaged, false), (torn, false)] {
        let log = common::write(folder.path(), "s.heaplog", bytes);
        let text = ok(&["info", log.to_str().unwrap()]);
        let is_hurt = text.contains("  damaged: ") || text.contains("  cut off at ");
        assert_eq!(
            (text.contains(SAID), is_hurt),
            (is_said, !is_said),
            "{text}"
        );
    }
}

/// The allocations between a sample and its free are not known when sampled: the number says so, wherever it goes.
#[test]
fn temporary_by_allocations_says_that_it_has_no_interval() {
    let caveat = "temporary has no valid interval";
    let within = ["--within-allocations", "3"];
    for (interval, is_said) in [(4096, true), (1, false)] {
        let (_folder, file) = paused(interval);
        for metric in ["temporary", "temporary-objects"] {
            let args = ["-m", metric, within[0], within[1], file.as_str()];
            let text = ok(&[&["top"], &args[..]].concat());
            assert_eq!(text.contains(caveat), is_said, "{text}");
            let document = json(&[&["top", "--json"], &args[..]].concat());
            assert_eq!(document["caveats"].to_string().contains(caveat), is_said);
            let document = json(&[&["export", "-f", "json"], &args[..]].concat());
            assert_eq!(document["caveats"].to_string().contains(caveat), is_said);
            let folded = ok(&[&["export", "-f", "folded"], &args[..]].concat());
            assert_eq!(folded.contains(caveat), is_said, "{folded}");
            let said = comments(&args).iter().any(|line| line.contains(caveat));
            assert_eq!(said, is_said);
        }
        // By time, it has one.
        let text = ok(&["top", "-m", "temporary", "--within", "10ms", &file]);
        assert!(!text.contains(caveat), "{text}");
        let document = json(&["top", "--json", "-m", "temporary", &file]);
        assert!(document["caveats"].is_null());
    }
}
