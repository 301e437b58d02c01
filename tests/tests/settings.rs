//! Settings: an invalid one is one line on standard error and the default. The program runs on, and
//! its own output and exit status stay the same.

use std::collections::BTreeMap;
use std::fs;

use heapprof_tests::{Finished, Log, Run};

/// Runs `exit_ways exit` (status 3) in a folder of its own, with one variable set.
fn run_with(variable: &str, value: &str) -> Finished {
    let run = Run::fixture("exit_ways").arg("exit");
    let run = if variable == "HEAPPROFILE" {
        run
    } else {
        run.prefix("t")
    };
    let run = if variable == "HEAPPROF_SAMPLE_INTERVAL" {
        run
    } else {
        run.interval(1)
    };
    run.env(variable, value).run()
}

/// Asserts exactly one line, which names the variable and has all these words.
#[track_caller]
fn assert_one_line(ran: &Finished, variable: &str, words: &[&str]) {
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert_eq!(ran.said().len(), 1, "{}", ran.stderr);
    for word in [variable].iter().chain(words) {
        assert!(ran.stderr.contains(word), "no `{word}` in: {}", ran.stderr);
    }
}

/// Asserts that output and status are those without the library.
#[track_caller]
fn assert_untouched(ran: &Finished) {
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    let expected = format!("pid {}\nstack 17001 allocates main\n", ran.pid);
    assert_eq!(ran.stdout, expected);
}

#[test]
fn a_bad_value_is_one_line_and_the_default() {
    let cases: [(&str, &str, &[&str]); 30] = [
        ("HEAPPROF_SAMPLE_INTERVAL", "abc", &["abc", "using 524288"]),
        (
            "HEAPPROF_SAMPLE_INTERVAL",
            "99999999999999999999",
            &["99999999999999999999", "using 524288"],
        ),
        ("HEAPPROF_SAMPLE_INTERVAL", "-1", &["-1", "using 524288"]),
        ("HEAPPROF_SAMPLE_INTERVAL", "1.5", &["1.5", "using 524288"]),
        (
            "HEAPPROF_SAMPLE_INTERVAL",
            "18446744073709551615",
            &["18446744073709551615", "using 524288"],
        ),
        (
            "HEAPPROF_SAMPLE_INTERVAL",
            "9999999999999G",
            &["9999999999999G", "using 524288"],
        ),
        ("HEAPPROF_STACK_DEPTH", "x", &["x", "using 512"]),
        ("HEAPPROF_STACK_DEPTH", "99999", &["99999", "using 512"]),
        ("HEAPPROF_STACK_DEPTH", "0", &["0", "using 512"]),
        ("HEAPPROF_EXIT_WAIT_MS", "soon", &["soon", "using 100"]),
        (
            "HEAPPROF_EXIT_WAIT_MS",
            "3600001",
            &["3600001", "an hour", "using 100"],
        ),
        ("HEAPPROF_VERBOSE", "maybe", &["maybe", "using 0"]),
        (
            "HEAPPROFILESIGNAL",
            "NOPE",
            &["NOPE", "no dumps on signals"],
        ),
        ("HEAPPROFILESIGNAL", "9", &["9", "no dumps on signals"]),
        ("HEAPPROFILESIGNAL", "SIGKILL", &["no dumps on signals"]),
        (
            "HEAPPROFILESIGNAL",
            "4711",
            &["4711", "no dumps on signals"],
        ),
        ("HEAPPROFILESIGNAL", "-5", &["-5", "no dumps on signals"]),
        ("HEAP_PROFILE_TIME_INTERVAL", "x", &["x", "using 0"]),
        (
            "HEAP_PROFILE_INUSE_INTERVAL",
            "x",
            &["x", "using 104857600"],
        ),
        (
            "HEAP_PROFILE_ALLOCATION_INTERVAL",
            "many",
            &["many", "using 1073741824"],
        ),
        (
            "HEAP_PROFILE_DEALLOCATION_INTERVAL",
            "1e9",
            &["1e9", "using 0"],
        ),
        ("HEAP_PROFILE_TIME_INTERVAL", "-1", &["-1", "using 0"]),
        ("HEAPPROF_MAX_SAMPLES_PER_SEC", "few", &["few", "using 0"]),
        ("HEAPPROF_MAX_SAMPLES_PER_SEC", "-3", &["-3", "using 0"]),
        ("HEAPPROF_RECORD_OVER", "big", &["big", "using 0"]),
        ("HEAPPROF_RECORD_OVER", "9999999G", &["9999999G", "using 0"]),
        ("HEAPPROF_START", "later", &["later", "counts as not set"]),
        ("HEAPPROF_START", "0", &["0", "counts as not set"]),
        ("HEAPPROF_CONTROL", "maybe", &["maybe", "first sample"]),
        ("HEAPPROF_CONTROL", "2", &["2", "first sample"]),
    ];
    let mut wrong = Vec::new();
    for (variable, value, words) in cases {
        let case = std::panic::catch_unwind(|| {
            let ran = run_with(variable, value);
            assert_untouched(&ran);
            assert_one_line(&ran, variable, words);
            let log = ran.log().whole();
            if variable == "HEAPPROF_SAMPLE_INTERVAL" {
                assert_eq!(log.start().interval, 524_288);
            } else {
                assert_eq!(log.blocks_of(17001).len(), 1);
            }
            assert_eq!(ran.files(), ["t.0001.heap", "t.heaplog"]);
        });
        if case.is_err() {
            wrong.push(format!("{variable}={value}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A prefix that cannot be written to: nothing is recorded, there or elsewhere.
#[test]
fn a_prefix_that_cannot_be_written_is_one_line() {
    for prefix in [
        "/nonexistent/dir/x",
        "/etc/passwd/x",
        "/proc/x",
        "missing/x",
    ] {
        let ran = run_with("HEAPPROFILE", prefix);
        assert_untouched(&ran);
        assert_one_line(&ran, "HEAPPROFILE", &[prefix, "nothing is recorded"]);
        assert_eq!(ran.files(), [""; 0]);
    }
}

#[test]
fn nowhere_to_write_is_one_line_and_a_program_that_runs_on() {
    for prefix in [None, Some("/nonexistent/dir/x")] {
        let mut run = Run::fixture("exit_ways")
            .arg("exit")
            .interval(1)
            .inside("/proc");
        if let Some(prefix) = prefix {
            run = run.env("HEAPPROFILE", prefix);
        }
        let ran = run.run();
        assert_untouched(&ran);
        assert_one_line(&ran, "HEAPPROFILE", &["nothing is recorded"]);
        assert_eq!(ran.files(), [""; 0]);
    }
}

#[test]
fn an_empty_value_is_as_none() {
    for variable in [
        "HEAPPROF_SAMPLE_INTERVAL",
        "HEAPPROF_VERBOSE",
        "HEAPPROFILESIGNAL",
        "HEAPPROFILE",
        "HEAPPROF_MAX_SAMPLES_PER_SEC",
        "HEAPPROF_RECORD_OVER",
        "HEAPPROF_START",
        "HEAPPROF_CONTROL",
    ] {
        let ran = run_with(variable, "");
        assert_untouched(&ran);
        assert_eq!(ran.stderr, "", "{variable}");
        assert_eq!(ran.files_ending(".heaplog").len(), 1, "{variable}");
    }
}

#[test]
fn units_are_understood() {
    for (value, bytes) in [
        ("4K", 4096),
        ("2MiB", 2 << 20),
        ("1g", 1 << 30),
        (" 512 KB ", 512_000),
        (" 512 KiB ", 512 << 10),
    ] {
        let ran = run_with("HEAPPROF_SAMPLE_INTERVAL", value);
        assert_eq!(ran.stderr, "", "{value}");
        assert_eq!(ran.log().start().interval, bytes, "{value}");
    }
}

#[test]
fn verbose_is_one_line_at_start_and_one_at_exit() {
    for way in ["return", "exit", "_exit", "quick_exit", "thread_exit"] {
        let ran = Run::fixture("exit_ways")
            .arg(way)
            .interval(1)
            .prefix("t")
            .env("HEAPPROF_VERBOSE", "1")
            .run();
        let said = ran.said();
        assert_eq!(ran.stderr.lines().count(), 2, "{way}: {}", ran.stderr);
        assert_eq!(said.len(), 2, "{way}: {}", ran.stderr);
        let log = ran.log_path();
        let log = log.to_str().unwrap();
        assert!(
            said[0].contains(&ran.pid.to_string()) && said[0].contains(log),
            "{}",
            said[0]
        );
        let samples = ran.log().blocks().len();
        for words in [&format!(" {samples} samples"), "losses", log, "0001.heap"] {
            assert!(
                said[1].contains(words),
                "{way}: no `{words}` in {}",
                said[1]
            );
        }
    }
}

/// jemalloc reads its options before libc knows the environment, because the library is initialised
/// first.
#[test]
fn options_of_jemalloc_are_read() {
    let ran = run_with("_RJEM_MALLOC_CONF", "no_such_option:1");
    assert!(
        ran.stderr.contains("Invalid conf pair: no_such_option:1"),
        "{}",
        ran.stderr
    );
    assert_untouched(&ran);
}

#[test]
fn interval_zero_records_nothing() {
    let ran = run_with("HEAPPROF_SAMPLE_INTERVAL", "0");
    assert_untouched(&ran);
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.files(), [""; 0]);
}

#[test]
fn without_a_prefix_the_log_is_in_the_working_directory_and_there_are_no_dumps() {
    let ran = Run::fixture("exit_ways")
        .arg("exit")
        .interval(1)
        .env("HEAP_PROFILE_TIME_INTERVAL", "1")
        .run();
    assert_untouched(&ran);
    assert_eq!(ran.stderr, "");
    assert_eq!(
        ran.files(),
        [format!("heapprof.exit_ways.{}.heaplog", ran.pid)]
    );
    assert_eq!(ran.log().whole().blocks_of(17001).len(), 1);
}

/// A relative prefix is relative to the folder where the program started, wherever it goes later.
#[test]
fn a_relative_prefix_stays_where_the_program_began() {
    let run = Run::program("/bin/sh")
        .args(["-c", "cd elsewhere && exec /bin/sh -c 'cd deeper; exit 9'"])
        .interval(1)
        .env("HEAPPROFILE", "sub/t");
    for folder in ["sub", "elsewhere/deeper", "elsewhere/sub"] {
        fs::create_dir_all(run.folder().join(folder)).unwrap();
    }
    let ran = run.run();
    assert_eq!(ran.code(), 9);
    assert_eq!(ran.stderr, "");
    let logs = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(ran.folder().join(folder)).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| name.ends_with(".heaplog"));
        names.sort();
        names
    };
    // The first shell began here; the second began in elsewhere/.
    assert_eq!(logs("sub"), ["t.heaplog"]);
    assert_eq!(logs("elsewhere/sub"), ["t.heaplog"]);
    assert_eq!(logs("elsewhere/deeper"), [""; 0]);
    let second = Log::read(&ran.folder().join("elsewhere/sub/t.heaplog")).whole();
    assert!(second.start().args.iter().any(|arg| arg.contains("deeper")));
    assert!(second.end().is_some());
}

/// A signal for dumps that would end the program is reported at start.
#[test]
fn a_signal_for_dumps_that_nobody_asked_for_is_told() {
    let run = || Run::fixture("exit_ways").arg("exit");
    for (run, why) in [
        (run().interval(1), "without HEAPPROFILE"),
        (run().interval(0).prefix("t"), "HEAPPROF_SAMPLE_INTERVAL=0"),
    ] {
        let ran = run.env("HEAPPROFILESIGNAL", "SIGUSR2").run();
        assert_untouched(&ran);
        assert_one_line(&ran, "HEAPPROFILESIGNAL", &["12", why]);
    }
}

/// HEAPPROF_STACK_DEPTH=1: every block belongs to its immediate caller, and the numbers are those
/// of the whole stacks.
#[test]
fn a_depth_of_one_counts_by_immediate_caller() {
    let run = |depth: &str| {
        let run = Run::fixture("threads_basic").interval(1);
        run.env("HEAPPROF_STACK_DEPTH", depth).run().well()
    };
    let (whole, short) = (run("512"), run("1"));
    let by_caller = |ran: &Finished| {
        let log = ran.log().whole();
        let mut found: BTreeMap<(u64, String), (u64, u64)> = BTreeMap::new();
        for block in log.blocks() {
            if !(9000..9008).contains(&block.size) {
                continue;
            }
            let stack = &log.named().stacks[block.stack];
            let caller = stack.iter().find(|function| !function.is_allocator());
            let caller = caller.expect("a caller").plain.clone();
            let (all, in_use) = found.entry((block.size, caller)).or_default();
            *all += 1;
            *in_use += u64::from(block.in_use);
        }
        (log, found)
    };
    let ((_, of_whole), (log, of_short)) = (by_caller(&whole), by_caller(&short));
    assert_eq!(of_short, of_whole);
    assert_eq!(of_short.len(), 8);
    assert!(of_short.values().all(|counts| *counts == (100, 50)));
    for stack in &log.profile.stacks {
        assert!(stack.frames.len() <= 2, "{stack:?}");
    }
}

/// A misspelled name would otherwise be ignored silently.
#[test]
fn a_mistyped_variable_is_told() {
    let known = [
        ("HEAPPROF_CONTROL", "0"),
        ("HEAPPROF_EXIT_WAIT_MS", "200"),
        ("HEAPPROF_LIBRARY", "/nowhere"),
        ("HEAPPROF_MAX_LOG", "1M"),
        ("HEAPPROF_MAX_SAMPLES_PER_SEC", "1000"),
        ("HEAPPROF_RECORD_OVER", "1M"),
        ("HEAPPROF_SAMPLE_INTERVAL", "4096"),
        ("HEAPPROF_STACK_DEPTH", "64"),
        ("HEAPPROF_START", "running"),
        ("HEAPPROF_VERBOSE", "0"),
        ("HEAPPROFILE", "t"),
        // Not settings of the library.
        ("HEAPPROFILE_USE_PID", "1"),
        ("HEAP_PROFILE_MMAP", "1"),
        ("HEAP_SIZE", "1"),
    ];
    let with_all = || {
        let run = Run::fixture("exit_ways").arg("exit");
        known
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    };
    let ran = with_all().run();
    assert_eq!((ran.code(), &*ran.stderr), (3, ""));
    for (wrong, right) in [
        ("HEAPPROF_SAMPLE_INTERVL", "HEAPPROF_SAMPLE_INTERVAL"),
        ("HEAPPROF_INTERVAL", "HEAPPROF_SAMPLE_INTERVAL"),
        ("HEAPPROFFILE", "HEAPPROFILE"),
        ("HEAP_PROFILE_INUSE", "HEAP_PROFILE_INUSE_INTERVAL"),
        ("HEAP_PROFILE_INTERVAL", "HEAPPROF_SAMPLE_INTERVAL"),
        ("HEAPPROF_LIBRARI", "HEAPPROF_LIBRARY"),
    ] {
        let ran = with_all().env(wrong, "1").run();
        let meant = format!("probably meant: {right} ");
        assert_one_line(&ran, wrong, &["no setting", &meant, "--help"]);
        let told = with_all().env(wrong, "1").env("HEAPPROF_TOLD", "1").run();
        assert_eq!(told.stderr, "", "{wrong}");
    }
    let ran = with_all().env("HEAPPROF_COLOUR_SCHEME", "1").run();
    assert_one_line(&ran, "HEAPPROF_COLOUR_SCHEME", &["no setting", "--help"]);
}

/// A value may contain anything: no terminal obeys it, and one line stays one line.
#[test]
fn a_line_holds_no_control_characters() {
    let long = "x".repeat(500);
    for value in ["a\nb\x1b[31m", &format!("a\nb\x1b[31m{long}")] {
        let run = Run::fixture("exit_ways").arg("exit");
        let ran = run.env("HEAPPROF_SAMPLE_INTERVAL", value).run();
        assert_untouched(&ran);
        let words = value.replace(['\n', '\x1b'], "?");
        assert_one_line(&ran, &words, &["using 524288"]);
    }
}
