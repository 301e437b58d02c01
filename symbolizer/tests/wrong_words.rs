//! Wrong arguments: the message names the option and says what is wanted. The status is 2.

use crate::common::{heapprof, stderr};

/// `arguments` are refused, with these words.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = heapprof(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: no {word:?} in {said}");
    }
}

#[test]
fn a_number_that_is_none_names_its_option() {
    for (arguments, option, wanted) in [
        (&["top", "-n", "-1", "x"][..], "--number", "0 or more"),
        (&["top", "-n", "x", "x"], "--number", "a whole number"),
        (
            &["top", "-n", "99999999999999999999", "x"],
            "--number",
            "18446744073709551615 at most",
        ),
        (
            &["top", "--confidence", "-5", "x"],
            "--confidence",
            "between 0 and 100",
        ),
        (
            &["top", "--within", "-1ms", "x"],
            "--within",
            "such as 10ms",
        ),
        (
            &["top", "--within-allocations", "-1", "x"],
            "--within-allocations",
            "1 or more",
        ),
        (&["tree", "--min", "nan", "x"], "--min", "from 0 to 100"),
        (&["tree", "--min", "-1", "x"], "--min", "from 0 to 100"),
        (&["tree", "--min", "101", "x"], "--min", "from 0 to 100"),
        (&["tree", "--depth", "-1", "x"], "--depth", "0 or more"),
        (
            &["diff", "--min-significance", "nan", "x", "y"],
            "--min-significance",
            "0 or more",
        ),
        (
            &["diff", "--min-significance", "-1", "x", "y"],
            "--min-significance",
            "0 or more",
        ),
        (
            &["timeline", "--steps", "-1", "x"],
            "--steps",
            "from 1 to 100000",
        ),
        (&["timeline", "--top", "-1", "x"], "--top", "0 or more"),
        (&["dump", "--every", "-1s", "x"], "--every", "100MiB"),
        (
            &["dump", "--every-freed", "-5", "x"],
            "--every-freed",
            "100MiB",
        ),
        (&["ctl", "-1", "status"], "<PID>", "the number of a process"),
        (
            &["ctl", "all", "status"],
            "<PID>",
            "the number of a process",
        ),
        (&["ctl", "7", "interval", "-5"], "<BYTES>", "512KiB"),
        (&["run", "-i", "-1", "--", "true"], "--interval", "512KiB"),
        (
            &["run", "-i", "2000G", "--", "true"],
            "--interval",
            "1099511627776 bytes at most",
        ),
    ] {
        refused(arguments, &[option, wanted]);
    }
}

/// A moment before the beginning is told as a moment that there is not, and not as an option.
#[test]
fn a_negative_moment_is_a_moment() {
    let output = heapprof(&["top", "--at", "-5s", "nowhere.heaplog"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nowhere.heaplog"), "{said}");
}

/// An option that is mistyped is not taken for the program.
#[test]
fn an_option_of_run_that_there_is_not_is_no_program() {
    refused(
        &["run", "--intervall", "1", "--", "true"],
        &["--intervall", "exists: '--interval'"],
    );
}

/// `arguments` cannot be done, with that status and these words.
fn failed(arguments: &[&str], status: i32, words: &[&str]) {
    let output = heapprof(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: no {word:?} in {said}");
    }
}

/// As an output `-` is standard output, as an input it is refused; no file of that name is made.
#[test]
fn a_dash_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let log = crate::common::write(folder.path(), "a.heaplog", &crate::common::server_log(1));
    let log = log.to_str().unwrap();
    failed(&["top", "-"], 1, &["standard input is not read"]);
    for command in [
        &["export", "-f", "folded"][..],
        &["symbolize"],
        &["bundle"],
        &["timeline"],
        &["diff", "--at", "0s", "--at", "end"],
    ] {
        let file = folder.path().join("out");
        let to = |out: &str| heapprof(&[command, &["-o", out, log]].concat());
        let (told, written) = (to("-"), to(file.to_str().unwrap()));
        assert!(
            told.status.success() && written.status.success(),
            "{told:?}"
        );
        assert!(!told.stdout.is_empty() && written.stdout.is_empty());
        assert_eq!(told.stdout, std::fs::read(&file).unwrap(), "{command:?}");
    }
    assert!(!std::path::Path::new("-").exists());
}

#[test]
fn what_is_given_twice_and_can_be_in_force_once_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = crate::common::write(folder.path(), "a.heaplog", &crate::common::server_log(1));
    let log = log.to_str().unwrap();
    for (first, second) in [("10MB", "20MB"), ("1s", "2s")] {
        failed(
            &["dump", "--every", first, "--every", second, log],
            2,
            &["--every is given twice"],
        );
    }
}

/// The library's name is said where it is wrong; one that is set to nothing is as if it were not
/// set.
#[test]
fn a_library_that_is_not_there_is_told_by_its_variable() {
    let run = |library: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .args(["run", "--", "true"])
            .env("HEAPPROF_LIBRARY", library)
            .output()
            .unwrap();
        stderr(&output)
    };
    assert!(run("/no/such.so").contains("HEAPPROF_LIBRARY=/no/such.so: there is no such file"));
    assert!(!run("").contains("HEAPPROF_LIBRARY="));
}

/// Where nothing is temporary in what is shown, a word on what is temporary is a mistake, and not
/// ignored.
#[test]
fn what_is_temporary_is_said_where_it_is_shown() {
    for arguments in [
        &["top", "--within", "1ms", "x"][..],
        &["tree", "--within", "1ms", "x"],
        &["top", "-m", "peak", "--within-allocations", "3", "x"],
        &["diff", "--within", "1ms", "x", "y"],
        &["export", "-f", "folded", "--within", "1ms", "x"],
    ] {
        let output = heapprof(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("add -m temporary"), "{arguments:?}: {said}");
    }
}

/// A metric is found by the names that people and other programs have for it.
#[test]
fn metrics_have_other_names() {
    let folder = tempfile::tempdir().unwrap();
    let log = crate::common::server_log(1);
    let file = crate::common::write(folder.path(), "s.heaplog", &log);
    let file = file.to_str().unwrap();
    let shown = |metric: &str| crate::common::ok(&["top", "-m", metric, file]);
    for (name, others) in [
        (
            "in-use-bytes",
            &["in-use", "inuse", "inuse_space", "in_use_bytes"][..],
        ),
        ("in-use-objects", &["inuse_objects", "in-use-blocks"]),
        (
            "allocated-bytes",
            &["allocated", "alloc_space", "alloc-bytes"],
        ),
        ("allocated-objects", &["allocations", "alloc_objects"]),
        ("peak", &["peak_space", "peak-bytes"]),
        ("growth", &["growth_space"]),
    ] {
        for other in others {
            assert_eq!(shown(other), shown(name), "{other}");
        }
    }
    refused(
        &["top", "-m", "sideways", file],
        &["--metric", "in-use-bytes"],
    );
    // In a file of limits, too.
    let budget = "[[limit]]\nmetric = \"allocated\"\nat-most = \"1GiB\"\n";
    let budget = crate::common::write(folder.path(), "b.toml", budget.as_bytes());
    let budget = budget.to_str().unwrap();
    let checked = heapprof(&["check", "--budget", budget, file]);
    let said = stderr(&checked);
    assert!(!said.contains("metric"), "{said}");
}
