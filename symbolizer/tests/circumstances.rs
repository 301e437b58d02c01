//! Circumstances that stand beside the numbers in every output: when recording was stopped, and
//! what a metric leaves out.

use crate::common::{LogBuilder, heapprof, json, ok, stderr};
use heapprof_core::SizeClass;
use heapprof_format::{Checkpoint, EndReason, Passed, Record, Sums};
use heapprof_symbolizer::export::pprof::proto;
use prost::Message;
use std::io::Read;

const MS: u64 = 1_000_000;

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
    let path = crate::common::write(folder.path(), "s.heaplog", &log.end());
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
        for command in ["top", "tree", "info", "timeline"] {
            let text = ok(&[command, &file]);
            assert!(text.contains(STOPPED), "{command}: {text}");
        }
        // A picture says it, and shows when it was; CSV has no place for words.
        let svg = ok(&["timeline", "--svg", &file]);
        assert!(svg.contains(STOPPED), "{svg}");
        assert_eq!(svg.matches("fill=\"#eee\"").count(), 2, "{svg}");
        let page = ok(&["report", "-o", "-", &file]);
        assert!(
            page.contains(STOPPED) && page.contains("\"stops\":["),
            "{page}"
        );
        let csv = heapprof(&["timeline", "--csv", &file]);
        assert!(stderr(&csv).contains(STOPPED), "{}", stderr(&csv));
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
            &["timeline", "--json"],
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

/// It says neither that all was recorded nor that all was sampled.
#[test]
fn a_recording_that_never_started_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.heaplog", "b.heaplog"].map(|name| {
        let mut log = LogBuilder::new(4096);
        log.record(|_| Record::Regime {
            time_ns: 0,
            interval: 0,
            by_budget: false,
        });
        log.wait(99 * MS);
        let path = crate::common::write(folder.path(), name, &log.end());
        path.to_str().unwrap().to_owned()
    });
    for args in [&["info", &files[0]][..], &["top", &files[0], &files[1]]] {
        let text = ok(args);
        let told = "nothing recorded, since recording was never started";
        assert!(text.contains(told) && !text.contains("exact"), "{text}");
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
    assert!(!folded.contains("stopped"), "{folded}");
}

#[test]
fn of_several_processes_the_stops_are_summed_and_listed() {
    let (_a, one) = paused(1);
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", 78, 1_767_225_600_000_000_000);
    let stack = log.stack(&[0x1101]);
    log.alloc(stack, 7);
    let folder = tempfile::tempdir().unwrap();
    let other = crate::common::write(folder.path(), "o.heaplog", &log.end());
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
    let whole = crate::common::server_log(1);
    let mut damaged = whole.clone();
    damaged[300] ^= 0xff;
    let torn = &whole[..whole.len() - 1];
    let folder = tempfile::tempdir().unwrap();
    for (bytes, is_said) in [(&whole[..], true), (&damaged, false), (torn, false)] {
        let log = crate::common::write(folder.path(), "s.heaplog", bytes);
        let text = ok(&["info", log.to_str().unwrap()]);
        let is_hurt = text.contains("  damaged: ") || text.contains("  cut off at ");
        assert_eq!(
            (text.contains(SAID), is_hurt),
            (is_said, !is_said),
            "{text}"
        );
    }
}

/// The allocations between a sample and its free are not known when sampled: the number says so,
/// wherever it goes.
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
            let said = text.lines().find(|line| line.contains(caveat));
            assert!(!said.is_some_and(|line| line.contains("  ")), "{text}");
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
        assert_eq!(document["caveats"], serde_json::json!([]));
    }
}

/// Returns the words of an export beside its numbers: for text the whole, for pprof its comments.
fn exported(format: &str, args: &[&str]) -> String {
    match format {
        "pprof" => comments(args).join("\n"),
        _ => ok(&[&["export", "-f", format], args].concat()),
    }
}

/// Forms that have a place for words.
const WITH_WORDS: [&str; 11] = [
    "gperftools",
    "symbolized",
    "pprof",
    "folded",
    "flamegraph",
    "json",
    "speedscope",
    "jemalloc",
    "dhat",
    "callgrind",
    "firefox",
];

/// Every form of a part says that it is a part.
#[test]
fn what_part_is_shown_is_told_wherever_numbers_are() {
    const VIEW: &str = "allocated between 0.050000 s and 0.200000 s";
    let (_folder, file) = paused(1);
    let part = [
        "--from", "50ms", "--to", "200ms", "--focus", "server", &file,
    ];
    let filter = "filtered (focus server): all numbers are of what this lets through";
    for command in ["top", "tree"] {
        let text = ok(&[&[command], &part[..]].concat());
        let head = text.split("  in use").next().unwrap();
        assert!(head.contains(VIEW) && head.contains(filter), "{text}");
        let document = json(&[&[command, "--json"], &part[..]].concat());
        assert!(document["view"].as_str().unwrap().starts_with(VIEW));
        assert_eq!(document["filter"], "focus server");
    }
    for args in [
        &["top", "--json", "-m", "heaptime"][..],
        &["export", "-f", "json"],
    ] {
        let document = json(&[args, &part[..]].concat());
        assert!(document["view"].as_str().unwrap().starts_with(VIEW));
        assert_eq!(document["filter"], "focus server");
    }
    let document = json(&["info", "--json", "--at", "100ms", &file]);
    assert_eq!(document["view"], "at 0.100000 s");
    assert!(document["filter"].is_null());
    for format in WITH_WORDS {
        let text = exported(format, &part);
        let is_filtered = match format {
            "json" => text.contains("\"filter\":\"focus server\""),
            _ => text.contains(filter),
        };
        assert!(text.contains(VIEW) && is_filtered, "{format}: {text}");
        assert!(
            text.contains("recording was stopped for 0.099 s") || format == "json",
            "{format}: {text}"
        );
        // And nothing of the kind of the whole.
        let text = exported(format, &[&file]);
        assert!(!text.contains("filter") && !text.contains(VIEW), "{text}");
    }
    for args in [&["top", "--csv"][..], &["export", "-f", "csv"]] {
        let out = heapprof(&[args, &part[..]].concat());
        let notes = stderr(&out);
        assert!(notes.contains(VIEW) && notes.contains(filter), "{notes}");
    }
    // An expression that ends in a number does not make a line of folded stacks of it.
    let folded = ok(&["export", "-f", "folded", "--ignore", "x 5", &file]);
    for line in folded.lines().filter(|line| line.starts_with('#')) {
        let last = line.rsplit(' ').next().unwrap();
        assert!(last.parse::<f64>().is_err(), "a reader would count {line}");
    }
}

#[test]
fn forms_say_that_they_add_up_processes() {
    let (_a, one) = paused(1);
    let (_b, two) = {
        let mut log = LogBuilder::new(1);
        log.start_of("/bin/server", 78, 1_767_225_600_000_000_000);
        let stack = log.stack(&[0x1101]);
        log.alloc(stack, 7);
        let folder = tempfile::tempdir().unwrap();
        let path = crate::common::write(folder.path(), "o.heaplog", &log.end());
        (folder, path.to_str().unwrap().to_owned())
    };
    for format in WITH_WORDS {
        // JSON lists them; the Firefox profiler shows one process.
        if !["json", "firefox"].contains(&format) {
            let text = exported(format, &[&one, &two]);
            assert!(text.contains("added up: 2 processes"), "{format}: {text}");
        }
    }
}

/// A log that begins at 5 s, after ten blocks were freed of which nothing else is known.
///
/// ```text
///   4 s   a block that stays      6 s   one that goes at 7 s      8 s   the end
/// ```
fn rotated() -> (tempfile::TempDir, String) {
    const S: u64 = 1000 * MS;
    let mut log = LogBuilder::new(1);
    log.given(&Record::Checkpoint(Checkpoint {
        segment: 3,
        time_ns: 5 * S,
        peak_ns: 3 * S,
        peak_bytes: 9000 << 32,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    let stack = log.stack(&[0x1101]);
    log.given(&Record::Passed(Passed {
        stack,
        class: SizeClass::of(1000).0,
        first_ns: S,
        sums: Sums {
            samples: 10,
            fixed: [10 << 32, 10_000 << 32, 0, 0],
        },
    }));
    log.wait(4 * S - MS);
    log.alloc(stack, 1000);
    log.given(&Record::CheckpointEnd { time_ns: 5 * S });
    log.wait(2 * S - MS);
    let id = log.alloc(stack, 1000);
    log.wait(S - MS);
    log.free(id);
    log.wait(S);
    let folder = tempfile::tempdir().unwrap();
    let path = crate::common::write(folder.path(), "s.heaplog", &log.end());
    (folder, path.to_str().unwrap().to_owned())
}

#[test]
fn what_a_log_that_rotated_no_longer_knows_is_told_beside_what_needs_it() {
    const LATE: &str = "the log rotated, detail begins at 5.000 s: peak, temporary,";
    let (_folder, file) = rotated();
    for metric in ["peak", "temporary", "heaptime", "growth", "lifetime"] {
        let text = ok(&["top", "-m", metric, &file]);
        assert!(text.contains(LATE), "{text}");
        let document = json(&["top", "--json", "-m", metric, &file]);
        assert!(document["caveats"].to_string().contains(LATE), "{metric}");
    }
    for format in ["pprof", "json", "dhat", "firefox"] {
        assert!(exported(format, &[&file]).contains(LATE), "{format}");
    }
    for format in ["folded", "speedscope", "callgrind", "flamegraph"] {
        let text = exported(format, &["-m", "peak", &file]);
        assert!(text.contains(LATE), "{format}");
        // In use and allocated are of the whole run.
        assert!(!exported(format, &[&file]).contains(LATE), "{format}");
    }
    assert!(!ok(&["top", &file]).contains(LATE));
    // A window of the time that is known is complete.
    let text = ok(&["top", "-m", "peak", "--from", "5.5s", &file]);
    assert!(!text.contains(LATE), "{text}");
}

/// DHAT's viewer divides the time that blocks lived by their number. Blocks with detail lived for a
/// second.
#[test]
fn dhat_has_lifetimes_of_as_many_blocks_as_it_counts() {
    let (_folder, file) = rotated();
    let document = json(&["export", "-f", "dhat", &file]);
    let point = &document["pps"][0];
    assert_eq!(point["tbk"], 12);
    assert_eq!(point["tl"], 12 * 1_000_000);
}

/// The profiler's account is of the whole run: beside numbers of a part it says so.
#[test]
fn counts_of_a_part_and_of_the_whole_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let log = crate::common::write(folder.path(), "s.heaplog", &crate::common::server_log(1));
    let log = log.to_str().unwrap();
    let whole = ok(&["info", log]);
    assert!(whole.contains("  samples, 5 of them in use"), "{whole}");
    assert!(!whole.contains("in the whole run"), "{whole}");
    let part = ok(&["info", "--at", "3ms", log]);
    assert!(
        part.contains("3  samples in the part that is shown, 3 of them in use"),
        "{part}"
    );
    assert!(
        part.contains("16  allocations sampled, in the whole run"),
        "{part}"
    );
}

/// A log that could not be written any further, as of a worker that may not make its next segment:
/// its numbers are exact up to there, and nobody is to take them for the process's.
#[test]
fn a_recording_that_ended_before_its_process_says_so_wherever_numbers_are() {
    let folder = tempfile::tempdir().unwrap();
    let log = |reason, pid: &str| {
        let mut log = LogBuilder::new(1);
        log.module("/bin/server", 0x1000, 0x1000);
        let stack = log.stack(&[0x1101, 0x1201]);
        log.alloc(stack, 1000);
        log.record(|time_ns| Record::End { time_ns, reason });
        let path = crate::common::write(folder.path(), &format!("{pid}.heaplog"), &log.cut());
        path.to_str().unwrap().to_owned()
    };
    let failed = log(EndReason::LogFailed, "failed");
    let said = "recording ended at 0.002 s, before the process did (the log could not be written any further): what came after is \
        missing";
    for command in ["top", "tree", "info"] {
        let text = ok(&[command, &failed]);
        assert!(text.contains(said), "{command}: {text}");
    }
    assert!(comments(&[&failed]).contains(&said.to_owned()));
    let document = json(&["export", "-f", "json", &failed]);
    assert_eq!(document["caveats"][0], said);
    // The part that is shown ends before the recording does.
    let early = ok(&["top", "--to", "0.001s", &failed]);
    assert!(!early.contains("recording ended"), "{early}");
    for reason in [EndReason::Exit, EndReason::Exec] {
        let text = ok(&["top", &log(reason, "whole")]);
        assert!(!text.contains("recording ended"), "{text}");
    }
}

/// A log whose writer did not come to its end: blocks that were freed seem to be in use.
#[test]
fn a_log_that_is_cut_or_has_no_end_is_nowhere_called_exact() {
    let folder = tempfile::tempdir().unwrap();
    let log = |reason: Option<EndReason>, name: &str| {
        let mut log = LogBuilder::new(1);
        log.start_of("/bin/server", name.len() as u32, 1_000);
        log.module("/bin/server", 0x1000, 0x1000);
        let stack = log.stack(&[0x1101, 0x1201]);
        log.alloc(stack, 1000);
        if let Some(reason) = reason {
            log.record(|time_ns| Record::End { time_ns, reason });
        }
        let path = crate::common::write(folder.path(), name, &log.cut());
        path.to_str().unwrap().to_owned()
    };
    let (cut, endless) = (log(Some(EndReason::Cut), "cut"), log(None, "endless"));
    let whole = log(Some(EndReason::Exit), "whole");
    for command in ["top", "tree", "info"] {
        let text = ok(&[command, &cut]);
        let said = "the process ended at 0.002 s, before its log was complete: the last records are missing";
        assert!(text.contains(said), "{command}: {text}");
        for log in [&cut, &endless] {
            let text = ok(&[command, log]);
            assert!(!text.contains("numbers are exact"), "{command}: {text}");
        }
        assert!(ok(&[command, &whole]).contains("numbers are exact"));
    }
    assert!(
        ok(&["info", &cut])
            .contains("  end           the process ended before the log was complete")
    );
    for log in [&cut, &endless] {
        let comments = comments(&[log]);
        let exact = comments
            .iter()
            .any(|line| line.contains("exact, every allocation"));
        assert!(!exact, "{comments:?}");
    }
    let both = ok(&["top", &cut, &whole]);
    assert!(
        both.contains("recording of 1 of the processes ended before they did"),
        "{both}"
    );
    assert!(!both.contains("numbers are exact"), "{both}");
}

/// A notice of the library stands once in `info` and at the head of every table. Each segment of a
/// log that rotates repeats the notice.
#[test]
fn what_the_library_noted_is_told_wherever_numbers_are() {
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x1000);
    let stack = log.stack(&[0x1101, 0x1201]);
    log.alloc(stack, 1000);
    let notice = |time_ns| Record::Notice {
        time_ns,
        text: "the last dump is skipped: HEAPPROF_EXIT_WAIT_MS=10".into(),
    };
    for _ in 0..2 {
        log.record(|_| notice(500 * MS));
    }
    log.alloc(stack, 300);
    let folder = tempfile::tempdir().unwrap();
    let path = crate::common::write(folder.path(), "s.heaplog", &log.end());
    let file = path.to_str().unwrap();
    let noted = "noted at 0.500 s: \"the last dump is skipped: HEAPPROF_EXIT_WAIT_MS=10\"";
    for command in ["top", "tree", "info", "timeline"] {
        let text = ok(&[command, file]);
        assert_eq!(text.matches(noted).count(), 1, "{command}: {text}");
    }
    let info = ok(&["info", file]);
    assert!(info.contains("\n  at 0.500 s: the last dump"), "{info}");
    let folded = ok(&["export", "-f", "folded", file]);
    assert!(folded.contains(&format!("# {noted}\n")), "{folded}");
    assert!(comments(&[file]).contains(&noted.to_owned()));

    // With several logs, the process of the notice is named, and a notice of several is said once.
    let another = |pid, notice: Option<Record>| {
        let mut log = LogBuilder::new(1);
        log.begins(crate::common::processes::begin(pid, 1));
        log.module("/bin/server", 0x1000, 0x1000);
        let stack = log.stack(&[0x1101, 0x1201]);
        log.alloc(stack, 5);
        if let Some(notice) = notice {
            log.record(|_| notice);
        }
        let name = format!("{pid}.heaplog");
        crate::common::write(folder.path(), &name, &log.end())
    };
    let (other, noted) = (another(10, None), another(11, Some(notice(700 * MS))));
    let (other, noted) = (other.to_str().unwrap(), noted.to_str().unwrap());
    let added = ok(&["top", file, other]);
    let of_one = "noted of server, pid 77: \"the last dump is skipped: HEAPPROF_EXIT_WAIT_MS=10\"";
    assert_eq!(added.matches(of_one).count(), 1, "{added}");
    let added = ok(&["top", file, other, noted]);
    let of_two = "noted of 2 processes: \"the last dump is skipped: HEAPPROF_EXIT_WAIT_MS=10\"";
    assert_eq!(added.matches("the last dump").count(), 1, "{added}");
    assert!(added.contains(of_two), "{added}");
    let joined = folder.path().join("joined.heaplog");
    ok(&["join", "-o", joined.to_str().unwrap(), file, other]);
    let joined = ok(&["top", joined.to_str().unwrap()]);
    let noted = "s: \"server, pid 77: the last dump is skipped";
    assert!(joined.contains(noted), "{joined}");
}
