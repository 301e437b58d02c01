//! `--fail-above`: for tests that watch over memory.

use crate::common::history::{History, S, folder, json, server_file};
use crate::common::processes::begin;
use crate::common::{LogBuilder, heapprof, stderr, stdout, write};
use heapprof_format::{Counter, Start};

/// The exit status, and what was said.
fn status(args: &[&str]) -> (i32, String) {
    let out = heapprof(args);
    assert!(!stdout(&out).is_empty(), "{args:?}: {}", stderr(&out));
    (out.status.code().unwrap(), stderr(&out))
}

/// At its end the server has 102,500 bytes in use in 105 blocks; at most it had 1,150,001.
#[test]
fn an_exact_number_is_above_its_limit_or_not() {
    let (_folder, log, _) = server_file(1);
    for (metric, just, above) in [
        ("in-use-bytes", "102500", "102499"),
        ("in-use-objects", "105", "104"),
        ("peak", "1150001", "1150000"),
        ("allocated-bytes", "1123KiB", "0"),
        // 100 kB for ten seconds, 50 kB for three, three MB for a millisecond each, and the leak.
        ("heaptime", "1160501", "1160500"),
        // 102,500 and 102,400 bytes.
        ("in-use-bytes", "100.09765625KiB", "0.09765625M"),
    ] {
        let top = ["top", &log, "-m", metric, "--fail-above"];
        let just = [&top[..], &[just]].concat();
        if metric != "allocated-bytes" {
            assert_eq!(status(&just), (0, String::new()), "{metric}");
        }
        let (code, said) = status(&[&top[..], &[above]].concat());
        assert_eq!(code, 3, "{metric}: {said}");
        assert!(
            said.contains(metric) && said.contains("above the limit of"),
            "{said}"
        );
    }
    // The limit is about the blocks that a filter lets through, and not about none at all.
    let top = ["top", &log, "--focus", "nothing", "--fail-above", "0"];
    let (code, said) = status(&top);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("the filter (focus nothing) leaves nothing"),
        "{said}"
    );
    let allowed = [&top[..], &["--allow-inconclusive"]].concat();
    assert_eq!(status(&allowed).0, 0);
    let old = ["top", &log, "--older-than", "5s", "--fail-above", "100499"];
    assert_eq!(status(&old).0, 3);
    let json = [&old[..], &["--json"]].concat();
    assert_eq!(status(&json).0, 3);
}

#[test]
fn growth_within_a_log_is_limited_by_bytes_or_by_a_share() {
    let (_folder, log, _) = server_file(1);
    // 2,500 bytes came after the marker; 100,000 were there.
    let diff = |limit: &str| {
        let args = ["diff", &log, "--at", "4500ms", "--at", "end"];
        status(&[&args[..], &["--fail-above", limit]].concat())
    };
    for (limit, code) in [
        ("2500", 0),
        ("2499", 3),
        ("2.5%", 0),
        ("2.4%", 3),
        ("0", 3),
        ("0%", 3),
        ("1000%", 0),
    ] {
        let (found, said) = diff(limit);
        assert_eq!(found, code, "{limit}: {said}");
    }
    let (_, said) = diff("2%");
    assert!(
        said.contains("in-use-bytes grew by 2.4 KiB, above the limit of 2.0 KiB, 2 % of 97.7 KiB"),
        "{said}"
    );
    // A number that shrinks grows by nothing, in other forms, too.
    let shrinks = [
        "diff",
        &log,
        "--at",
        "3s",
        "--at",
        "end",
        "--fail-above",
        "0",
    ];
    assert_eq!(status(&shrinks), (0, String::new()));
    let folded = [
        "diff",
        &log,
        "--at",
        "4500ms",
        "--at",
        "end",
        "--fail-above",
        "0",
        "--folded",
    ];
    assert_eq!(status(&folded).0, 3);
}

/// So many blocks of 4 KiB, each of which is one of 1.58.
fn sampled(folder: &tempfile::TempDir, name: &str, blocks: u64) -> String {
    let mut history = History::new(4096);
    for _ in 0..blocks {
        history.alloc(0, 4096, 0);
    }
    history.at(S);
    write(folder.path(), name, &history.end().0)
        .display()
        .to_string()
}

#[test]
fn of_sampled_numbers_only_what_noise_does_not_make_is_above() {
    let folder = folder();
    let (a, b) = (
        sampled(&folder, "a.heaplog", 4000),
        sampled(&folder, "b.heaplog", 5000),
    );
    // 5000 samples stand for 31,640 KiB, and their standard error is 271 KiB.
    let top = |limit: &str| status(&["top", &b, "--fail-above", limit]);
    assert_eq!(top("32500KiB"), (0, String::new()));
    for near in ["31000KiB", "32000KiB"] {
        let (code, said) = top(near);
        assert_eq!(code, 4, "{near}: {said}");
        assert!(
            said.contains("cannot judge the limit: in-use-bytes is 30.9 MiB"),
            "{said}"
        );
        assert!(said.contains("nearer than 3 standard errors"), "{said}");
        let allowed = ["top", &b, "--fail-above", near, "--allow-inconclusive"];
        let (code, said) = status(&allowed);
        assert_eq!(code, 0, "{near}: {said}");
        assert!(said.contains("note: cannot judge: "), "{said}");
    }
    assert_eq!(top("30000KiB").0, 3);
    // The difference of the two is 6328 KiB, with 364 KiB.
    let diff = |limit: &str| status(&["diff", &a, &b, "--fail-above", limit]);
    assert_eq!(diff("7500KiB"), (0, String::new()));
    let (code, said) = diff("5600KiB");
    assert_eq!(code, 4);
    assert!(
        said.contains("in-use-bytes grew by 6.2 MiB (standard error"),
        "{said}"
    );
    assert_eq!(diff("2000KiB").0, 3);
    assert_eq!(diff("10%").0, 3);
    assert_eq!(diff("32%").0, 0);
}

/// The limit is within what 3 intervals and more of unseen bytes make, or above.
#[test]
fn of_what_no_sample_was_seen_there_may_be_some() {
    let folder = folder();
    let mut history = History::new(4096);
    for block in 0..1000_usize {
        history.alloc(0, 4096, 0);
        history.free(block);
    }
    let log = write(folder.path(), "freed.heaplog", &history.end().0);
    let log = log.display().to_string();
    let top = |limit: &str| status(&["top", &log, "--fail-above", limit]);
    // -ln(1 - 0.9973) intervals of 4 KiB.
    assert_eq!(top("24KiB").0, 0);
    assert_eq!(top("23KiB").0, 4);
}

/// A gate does not pass on what is missing.
#[test]
fn a_log_that_is_cut_or_damaged_or_empty_cannot_be_judged() {
    let (folder, log, _) = server_file(1);
    let bytes = std::fs::read(&log).unwrap();
    let cut = write(folder.path(), "cut.heaplog", &bytes[..bytes.len() - 40]);
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    let damaged = write(folder.path(), "damaged.heaplog", &damaged);
    let empty = write(folder.path(), "empty.heaplog", &History::new(1).end().0);
    for (file, words) in [
        (&cut, "cut off at offset"),
        (&damaged, "damaged in"),
        (&empty, "it has no allocation"),
    ] {
        let file = file.display().to_string();
        for args in [
            &["top", &file, "--fail-above", "1GiB"][..],
            &["diff", &log, &file, "--fail-above", "1GiB"],
            &[
                "diff",
                &file,
                "--at",
                "0s",
                "--at",
                "end",
                "--fail-above",
                "1GiB",
            ],
        ] {
            let output = heapprof(args);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(4), "{args:?}: {said}");
            assert!(
                said.contains("cannot judge the limit: "),
                "{args:?}: {said}"
            );
            assert!(said.contains(words), "{args:?}: {said}");
            let allowed = [args, &["--allow-inconclusive"]].concat();
            assert_eq!(heapprof(&allowed).status.code(), Some(0), "{args:?}");
        }
    }
}

/// No form says "exact" of a log that lacks something, and each JSON document says that it does.
#[test]
fn nothing_is_exact_of_a_log_that_is_damaged() {
    let (folder, log, _) = server_file(1);
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    let file = write(folder.path(), "damaged.heaplog", &bytes);
    let file = file.display().to_string();
    for args in [
        &["top", &file][..],
        &["top", &file, "-m", "peak"],
        &["tree", &file],
        &["info", &file],
        &["symbolize", &file],
        &["export", "-f", "folded", &file],
        &["export", "-f", "pprof", &file],
        &["export", "-f", "callgrind", &file],
        &["report", &file, "-o", "-"],
        &["top", &file, "--json"],
        &["top", &file, "--json", "-m", "peak"],
        &["tree", &file, "--json"],
        &["info", &file, "--json"],
        &["timeline", &file, "--json"],
        &["diff", &log, &file, "--json"],
        &["diff", &file, "--at", "0s", "--at", "end", "--json"],
        &["export", "-f", "json", &file],
    ] {
        let output = heapprof(args);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            stderr(&output)
        );
        let shown = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        for exact in ["numbers are exact", "exact, every", "nothing was lost"] {
            assert!(!shown.contains(exact), "{args:?}: {exact}");
        }
        if args.contains(&"--json") || args.contains(&"json") {
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(document["version"], 1, "{args:?}");
            assert_eq!(document["complete"], false, "{args:?}");
            let caveats = document["caveats"].to_string();
            assert!(caveats.contains("damaged in"), "{args:?}: {caveats}");
        }
    }
    let whole = heapprof(&["top", &log, "--json"]);
    let whole: serde_json::Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!(whole["complete"], true);
}

#[test]
fn a_limit_that_is_none_is_refused() {
    for (args, code, words) in [
        (&["top", "x", "--fail-above", "5%"][..], 2, "bytes, such as"),
        (&["top", "x", "--fail-above", "-1"], 2, "negative"),
        (&["top", "x", "--fail-above", "nan"], 2, "bytes, such as"),
        (&["top", "x", "--fail-above", "1.5"], 2, "a part of a byte"),
        (
            &["diff", "x", "y", "--fail-above", "1.00000000001G"],
            2,
            "11 digits behind the point",
        ),
        (
            &["run", "--fail-above", "-1.5G", "--", "true"],
            2,
            "negative",
        ),
        (&["diff", "x", "y", "--fail-above", "much"], 2, "or 5%"),
        (&["diff", "x", "y", "--fail-above", "nan%"], 2, "or 5%"),
        (
            &["top", "x", "--fail-above", "1", "-m", "lifetime"],
            2,
            "lifetimes have none",
        ),
    ] {
        let output = heapprof(args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// A reader that has seen enough does not make it pass.
#[test]
fn a_pipe_that_is_closed_hides_nothing() {
    use std::process::{Command, Stdio};
    let (_folder, log, _) = server_file(1);
    let mut child = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(["top", &log, "--fail-above", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// A log without an end is a doubt only if its process is not seen to run.
#[test]
fn a_process_that_runs_is_said_to_run_and_can_be_judged() {
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let mut log = LogBuilder::new(1);
    log.begins(Start {
        program: exe.display().to_string(),
        pid: std::process::id(),
        wall_ns: 0, // not known: else the process would be too young for the log
        ..begin(1, 1)
    });
    let stack = log.stack(&[0x1101]);
    log.alloc(stack, 1000);
    let folder = folder();
    let file = write(folder.path(), "live.heaplog", &log.cut());
    let file = file.display().to_string();
    let (code, said) = status(&["top", &file, "--fail-above", "1000"]);
    assert_eq!(code, 0, "{said}");
    let info = stdout(&heapprof(&["info", &file]));
    assert!(info.contains("still runs"), "{info}");
    assert!(!info.contains("killed"), "{info}");
}

/// A dump that was not written is told, and the log lacks nothing for it.
#[test]
fn a_log_without_one_of_its_dumps_is_complete() {
    for (counter, is_complete) in [(Counter::LostDumps, true), (Counter::LostQueueFull, false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogBuilder::new(1);
        let stack = log.stack(&[1, 2]);
        log.alloc(stack, 1000);
        log.counters(&[(Counter::SampledAllocs, 1), (counter, 1)]);
        let file = write(folder.path(), "a.heaplog", &log.end());
        let file = file.display().to_string();
        let top = crate::common::json(&["top", "--json", &file]);
        assert_eq!(top["complete"], is_complete, "{counter:?}: {top}");
        let info = crate::common::ok(&["info", &file]);
        assert!(info.contains(counter.describe()), "{info}");
    }
}

/// A dump with its names. The function `read_request` has 2,000 bytes in use.
const NAMED: &str = include_str!("golden/symbolized/exact.heap");

/// A suppression matches by name: where one side has none, no difference is judged.
///
/// ```text
///   before    [server+0x101]   2,000 bytes    leak:read_request leaves them in
///   after     read_request     2,000 bytes    leak:read_request leaves them out
/// ```
#[test]
fn what_a_suppression_may_have_missed_is_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| write(folder.path(), name, text.as_bytes());
    let (_, unnamed) = NAMED.split_once("---\n").unwrap();
    let (named, unnamed) = (file("named.heap", NAMED), file("unnamed.heap", unnamed));
    let suppressions = file("known.supp", "leak:read_request\n");
    let (named, unnamed) = (named.to_str().unwrap(), unnamed.to_str().unwrap());
    let limit = [
        "diff",
        "--fail-above",
        "1",
        "--suppressions",
        suppressions.to_str().unwrap(),
    ];
    let (code, said) = status(&[&limit[..], &[named, named]].concat());
    assert_eq!(code, 0, "{said}");
    for (sides, which) in [([unnamed, named], "first"), ([named, unnamed], "second")] {
        let (code, said) = status(&[&limit[..], &sides].concat());
        assert_eq!(code, 4, "{said}");
        let words = format!("of the {which}, ");
        assert!(
            said.contains(&words) && said.contains("sites have no names"),
            "{said}"
        );
        let allowed = [&limit[..], &["--allow-inconclusive"], &sides].concat();
        assert_ne!(status(&allowed).0, 4);
        let out = heapprof(&[&limit[..], &sides].concat());
        let total = stdout(&out);
        let total = total.lines().find(|line| line.ends_with("(all)")).unwrap();
        assert!(total.contains("unknown"), "{total}");
        // Without suppressions a sum needs no names.
        let (code, said) = status(&[&limit[..3], &sides].concat());
        assert_eq!(code, 0, "{said}");
    }
}

/// A compiler that inlines a function takes its parameters away, and not its limit.
#[test]
fn a_limit_of_a_function_holds_where_its_parameters_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let dump = write(folder.path(), "a.heap", NAMED.as_bytes());
    for subject in ["site", "function"] {
        for (pattern, expected) in [
            ("read_request(int)", true),
            ("^read_request(int)$", true),
            ("^demo::init$", true),
            ("demo::init(int)", true),
            ("demo::init(long)", false),
        ] {
            let text = format!("[[limit]]\n{subject} = \"{pattern}\"\nat-most = 1\n");
            let budget = write(folder.path(), "b.toml", text.as_bytes());
            let args = ["check", "--budget", budget.to_str().unwrap()];
            let (code, said) = status(&[&args[..], &[dump.to_str().unwrap()]].concat());
            assert_eq!(code == 3, expected, "{subject} {pattern}: {said}");
        }
    }
}

/// The process of an empty log did something that nobody knows.
#[test]
fn an_empty_log_among_others_leaves_a_limit_open() {
    let (folder, log, _) = server_file(1);
    let empty = folder.path().join("empty.heaplog").display().to_string();
    std::fs::write(&empty, "").expect("a file");
    for files in [[&log, &empty], [&empty, &log]] {
        for joined in [&[][..], &["--joined"]] {
            let top = ["top", files[0], files[1], "--fail-above", "1GiB"];
            let (code, said) = status(&[&top[..], joined].concat());
            assert_eq!(code, 4, "{said}");
            assert!(said.contains("1 log has no record"), "{said}");
        }
    }
    let document = json(&["top", &log, &empty, "--json"]);
    assert_eq!(document["complete"], false);
    // A log that was joined from them says so, too, also among others.
    let all = folder.path().join("all.heaplog").display().to_string();
    crate::common::ok(&["join", "-o", &all, &log, &empty]);
    let (_other_folder, other, _) = server_file(1);
    for files in [&[&*all][..], &[&*all, &*other]] {
        let limit = [&["top", "--fail-above", "1GiB"], files].concat();
        let (code, said) = status(&limit);
        assert_eq!(code, 4, "{said}");
        assert!(said.contains("1 log has no record"), "{said}");
    }
    for command in ["top", "tree", "info", "timeline"] {
        let document = json(&[command, "--json", &all]);
        assert_eq!(document["complete"], false, "{command}");
        let caveats = document["caveats"].to_string();
        assert!(
            caveats.contains("1 log has no record"),
            "{command}: {caveats}"
        );
    }
    let info = crate::common::ok(&["info", &all]);
    assert!(info.contains("1 log has no record"), "{info}");
    assert!(!info.contains("logs without a record"), "{info}");
    // A log that is cut says it of its part.
    let bytes = std::fs::read(&log).unwrap();
    let cut = write(folder.path(), "cut.heaplog", &bytes[..bytes.len() - 40]);
    let cut = cut.display().to_string();
    crate::common::ok(&["join", "-o", &all, &cut]);
    let document = json(&["top", "--json", &all]);
    assert_eq!(document["complete"], false);
    let (code, said) = status(&["top", &all, "--fail-above", "1GiB"]);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("damaged or cut off when they were joined"),
        "{said}"
    );
}

#[test]
fn a_difference_of_which_the_filter_leaves_nothing_is_not_judged() {
    let (folder, log, _) = server_file(1);
    let all = folder.path().join("all.supp").display().to_string();
    std::fs::write(&all, "leak:*\n").expect("a file");
    let of_two = ["diff", &log, &log];
    let of_moments = ["diff", &log, "--at", "1s", "--at", "end"];
    for files in [&of_two[..], &of_moments] {
        for filter in [["--where", "tenant=x"], ["--suppressions", &all]] {
            let limit = ["--fail-above", "1GiB"];
            let (code, said) = status(&[files, &filter, &limit].concat());
            assert_eq!(code, 4, "{files:?} {filter:?}: {said}");
        }
    }
}

/// The function of the second limit was renamed.
#[test]
fn a_pattern_of_a_budget_that_matches_nothing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let dump = write(folder.path(), "a.heap", NAMED.as_bytes());
    let limit = |of: &str| format!("[[limit]]\nat-most = \"1.5GiB\"\n{of}\n");
    let all = [
        limit("site = \"read_request\""),
        limit("name = \"old\"\nsite = \"read_demand\""),
        limit("site = \"^gone$\""),
        limit("module = \"/nowhere/\""),
        limit(""),
    ];
    let budget = write(folder.path(), "b.toml", all.concat().as_bytes());
    let check = ["check", "--budget", budget.to_str().unwrap()];
    let check = [&check[..], &[dump.to_str().unwrap()]].concat();
    // Names of sites are missing, which leaves a limit open. Modules have all names.
    let (code, said) = status(&check);
    assert_eq!(code, 4, "{said}");
    let file = budget.display();
    let told =
        |of: &str, line: u32| format!("heapprof: note: {of} ({file}, line {line}) matches nothing");
    let expected = [
        told("site read_demand", 7),
        told("site ^gone$", 10),
        told("module /nowhere/", 13),
    ];
    assert_eq!(said.lines().take(3).collect::<Vec<_>>(), expected);
    assert!(!said.contains("read_request"), "{said}");
    let must = limit("module = \"/nowhere/\"\nmust-match = true");
    write(folder.path(), "b.toml", must.as_bytes());
    assert_eq!(status(&check).0, 4);
    let useless = limit("must-match = true");
    write(folder.path(), "b.toml", useless.as_bytes());
    let refused = heapprof(&check);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("must-match is about a pattern"));
    let alone = limit("module = \"/nowhere/\"");
    write(folder.path(), "b.toml", alone.as_bytes());
    assert_eq!(status(&check), (0, told("module /nowhere/", 3) + "\n"));
    write(folder.path(), "b.toml", all.concat().as_bytes());
    let document = json(&[&check[..], &["--json", "--allow-inconclusive"]].concat());
    let limits = document["limits"].as_array().unwrap();
    let told = |key: &str| -> Vec<serde_json::Value> {
        limits.iter().map(|limit| limit[key].clone()).collect()
    };
    let matches = [Some(true), Some(false), Some(false), Some(false), None];
    let matches: Vec<serde_json::Value> = matches.iter().map(|&it| it.into()).collect();
    assert_eq!(told("matches"), matches);
    assert_eq!(told("line")[1], 7);
    assert_eq!(told("at_most")[0], 1.5 * f64::from(1 << 30));
}

/// Peaks of several processes are at times of their own.
#[test]
fn a_peak_of_several_processes_is_told_to_be_a_sum() {
    let logs = [1, 2].map(server_file);
    let folder = tempfile::tempdir().unwrap();
    let note = "each process at its own peak; with --joined";
    for (metric, options, expected) in [
        ("peak", &[][..], 1),
        ("peak", &["--joined"], 0),
        ("in-use-bytes", &[], 0),
    ] {
        let text = format!("[[limit]]\nmetric = \"{metric}\"\nat-most = \"1GiB\"\n");
        let budget = write(folder.path(), "b.toml", text.as_bytes());
        let check = ["check", "--budget", budget.to_str().unwrap()];
        let files = [logs[0].1.as_str(), logs[1].1.as_str()];
        let (code, said) = status(&[&check[..], &files, options].concat());
        assert_eq!((code, said.matches(note).count()), (0, expected), "{said}");
    }
}
