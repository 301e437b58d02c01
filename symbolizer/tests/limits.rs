//! `--fail-above`: for tests that watch over memory.

use crate::common::history::{History, S, asked, folder};
use crate::common::{heapprof, stderr, stdout, write};

/// The exit status, and what was said.
fn status(args: &[&str]) -> (i32, String) {
    let out = heapprof(args);
    assert!(!stdout(&out).is_empty(), "{args:?}: {}", stderr(&out));
    (out.status.code().unwrap(), stderr(&out))
}

/// At its end the server has 102,500 bytes in use in 105 blocks; at most it had 1,150,001.
#[test]
fn an_exact_number_is_above_its_limit_or_not() {
    let (_folder, log, _) = asked(1);
    for (metric, just, above) in [
        ("in-use-bytes", "102500", "102499"),
        ("in-use-objects", "105", "104"),
        ("peak", "1150001", "1150000"),
        ("allocated-bytes", "1123KiB", "0"),
        // 100 kB for ten seconds, 50 kB for three, three MB for a millisecond each, and the leak.
        ("heaptime", "1160501", "1160500"),
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
    // The limit is about the blocks that a filter lets through.
    let top = ["top", &log, "--focus", "nothing", "--fail-above", "0"];
    assert_eq!(status(&top).0, 0);
    let old = ["top", &log, "--older-than", "5s", "--fail-above", "100499"];
    assert_eq!(status(&old).0, 3);
    let json = [&old[..], &["--json"]].concat();
    assert_eq!(status(&json).0, 3);
}

#[test]
fn growth_within_a_log_is_limited_by_bytes_or_by_a_share() {
    let (_folder, log, _) = asked(1);
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
    assert_eq!(top("31700KiB"), (0, String::new()));
    let (code, said) = top("31000KiB");
    assert_eq!(code, 0);
    assert!(
        said.contains("noise may have made that") && said.contains("standard error"),
        "{said}"
    );
    assert_eq!(top("30000KiB").0, 3);
    // The difference of the two is 6328 KiB, with 364 KiB.
    let diff = |limit: &str| status(&["diff", &a, &b, "--fail-above", limit]);
    assert_eq!(diff("6400KiB"), (0, String::new()));
    let (code, said) = diff("5600KiB");
    assert_eq!(code, 0);
    assert!(said.contains("noise may have made that"), "{said}");
    assert_eq!(diff("2000KiB").0, 3);
    assert_eq!(diff("10%").0, 3);
    assert_eq!(diff("24%").0, 0);
}

#[test]
fn a_limit_that_is_none_is_refused() {
    for (args, code, words) in [
        (&["top", "x", "--fail-above", "5%"][..], 2, "bytes, such as"),
        (&["top", "x", "--fail-above", "-1"], 2, "bytes, such as"),
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
    let (_folder, log, _) = asked(1);
    let mut child = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(["top", &log, "--fail-above", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}
