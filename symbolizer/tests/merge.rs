//! Several logs, added up: stacks are joined by file and offset, sums and variances add, times are
//! each process's own or one of the clock on the wall.

use crate::common::processes::{begin, load, put, three};
use crate::common::{LogBuilder, heapprof, json, ok, stderr, stdout, totals_line};
use heapprof_format::{Module, Segment, Start};
use std::collections::BTreeMap;

/// Returns the numbers of all lines of `top`, by function and module: value and squared error of
/// self and cumulative.
fn sites(args: &[&str]) -> BTreeMap<String, [f64; 4]> {
    let document = json(&[&["top", "--json", "-n", "0", "--cum"], args].concat());
    let lines = document["sites"].as_array().unwrap().iter();
    let is_basic = document["metric"].is_null();
    lines
        .map(|line| {
            let name = format!("{} {}", line["function"], line["module"]);
            let number = |key: &str| match is_basic {
                true => line[key]["in-use-bytes"].as_f64().unwrap(),
                false => line[key].as_f64().unwrap(),
            };
            let (own, all) = match is_basic {
                true => ("self_errors", "cumulative_errors"),
                false => ("self_error", "cumulative_error"),
            };
            let numbers = [
                number("self"),
                number("cumulative"),
                number(own).powi(2),
                number(all).powi(2),
            ];
            (name, numbers)
        })
        .collect()
}

#[test]
fn every_metric_of_several_logs_is_the_sum_of_each() {
    let folder = tempfile::tempdir().unwrap();
    for intervals in [[1, 1, 1], [512, 512, 4096]] {
        let files = three(folder.path(), intervals);
        for metric in [
            "in-use-bytes",
            "temporary",
            "heaptime",
            "heaptime-objects",
            "slack",
            "growth",
            "peak",
        ] {
            let mut sum: BTreeMap<String, [f64; 4]> = BTreeMap::new();
            for file in &files {
                for (name, numbers) in sites(&[file, "-m", metric]) {
                    let line = sum.entry(name).or_default();
                    for (sum, number) in line.iter_mut().zip(numbers) {
                        *sum += number;
                    }
                }
            }
            let [a, b, c] = &files;
            let merged = sites(&[a, b, c, "-m", metric]);
            let names = |of: &BTreeMap<String, [f64; 4]>| of.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&merged), names(&sum), "{metric}");
            for (name, numbers) in &merged {
                for (i, (&is, &was)) in numbers.iter().zip(&sum[name]).enumerate() {
                    // Rows are rounded one by one: by half a byte each, of 30 at most.
                    let rounding = if metric == "in-use-bytes" && i < 2 {
                        15.0
                    } else {
                        0.0
                    };
                    assert!(
                        (is - was).abs() <= rounding + 1e-6 * was.abs(),
                        "{metric} {name} {i}: {is} is not {was}"
                    );
                }
            }
        }
    }
}

#[test]
fn totals_are_the_sums_and_the_head_says_of_what() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = three(folder.path(), [1, 1, 1]);
    let totals = |files: &[&str]| totals_line(&ok(&[&["top"], files].concat()));
    let each = [&a, &b, &c].map(|file| totals(&[file]));
    let sum = [0, 1, 2, 3].map(|i| each.iter().map(|four| four[i]).sum::<u64>());
    assert_eq!(totals(&[&a, &b, &c]), sum);
    let text = ok(&["top", &a, &b, &c]);
    assert!(text.starts_with("server, 3 processes, "), "{text}");
    assert!(
        text.contains("every allocation recorded, numbers are exact"),
        "{text}"
    );
    assert!(
        text.contains("added up: 3 processes (server: pid 10, 11, 12)"),
        "{text}"
    );
    // Every form has the sum, and the words where it has a place for them.
    for command in ["tree", "info", "symbolize"] {
        let text = ok(&[command, &a, &b, &c]);
        assert!(text.contains("added up: 3 processes"), "{command}: {text}");
    }
    let info = ok(&["info", &a, &b, &c]);
    for file in ["0.heaplog", "1.heaplog", "2.heaplog"] {
        assert!(info.contains(file), "{info}");
    }
    assert!(info.contains("2026-01-01 00:00:11 UTC"), "{info}");
    let folded = ok(&["export", "-f", "folded", &a, &b, &c]);
    let stacks = folded.lines().filter(|line| !line.starts_with('#'));
    let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(stacks.map(number).sum::<u64>(), sum[1]);
    assert!(folded.contains("# added up: 3 processes"), "{folded}");
    for line in folded.lines().filter(|line| line.starts_with('#')) {
        let last = line.rsplit(' ').next().unwrap();
        assert!(last.parse::<f64>().is_err(), "a reader would count {line}");
    }
    let document = json(&["export", "-f", "json", &a, &b, &c]);
    assert_eq!(document["totals"]["allocated-bytes"], sum[3]);
    let processes = document["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 3);
    assert_eq!(
        (&processes[1]["pid"], &processes[1]["file"]),
        (&11.into(), &b.clone().into())
    );
    for args in [
        &["top", "--json"][..],
        &["top", "--json", "-m", "heaptime"],
        &["tree", "--json"],
    ] {
        let document = json(&[args, &[&a, &b, &c]].concat());
        assert_eq!(document["processes"].as_array().unwrap().len(), 3);
    }
    // And what is written can be read again, as one.
    let out = folder.path().join("sum.heap");
    let out = out.to_str().unwrap();
    ok(&["export", "-f", "gperftools", "-o", out, &a, &b, &c]);
    assert_eq!(totals(&[out]), sum);
    let svg = ok(&["export", "-f", "flamegraph", &a, &b, &c]);
    assert!(svg.contains("<svg"), "{svg}");
}

#[test]
fn a_site_that_is_not_listed_is_bounded_by_the_longest_interval() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = three(folder.path(), [512, 1, 4096]);
    let bound = |files: &[&str]| {
        let document = json(&[&["top", "--json"], files].concat());
        document["intervals"]["unseen_bytes"].as_f64()
    };
    let of_longest = bound(&[&c]).unwrap();
    assert!((of_longest - 4096.0 * 2.9957).abs() < 1.0);
    assert_eq!(bound(&[&a, &b, &c]), Some(of_longest));
    assert_eq!(bound(&[&b]), None);
    let text = ok(&["top", &a, &b, &c]);
    assert!(
        text.contains("sampled every 1 B to 4.0 KiB on average"),
        "{text}"
    );
}

/// Two processes made code at one address: it is not the same code. And no file of a third lies on
/// it.
#[test]
fn code_outside_all_files_is_never_joined() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (pid, at) in [(20, 0x1000), (21, 0x9000), (22, 0x7000_0000)] {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid, 1));
        load(&mut log, 0, at);
        let stack = match pid {
            22 => log.stack(&[0x7000_0101, 0x7000_0201]),
            _ => log.stack(&[0x7000_0101, at + 0x201]),
        };
        log.alloc(stack, 100);
        files.push(put(folder.path(), &format!("{pid}.heaplog"), &log.end()));
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let document = json(&[&["export", "-f", "json"], &files[..]].concat());
    let stacks = document["stacks"].as_array().unwrap();
    assert_eq!(stacks.len(), 3);
    let frames = document["frames"].as_array().unwrap();
    let outside = frames.iter().filter(|frame| frame["module"].is_null());
    assert_eq!(outside.count(), 2);
    assert_eq!(document["modules"].as_array().unwrap().len(), 1);
    // Each says whose address it is.
    let folded = ok(&[&["export", "-f", "folded"], &files[..]].concat());
    for pid in [20, 21] {
        let shown = format!("[pid {pid} 0x70000101] 100");
        assert!(folded.contains(&shown), "no {shown} in {folded}");
    }
}

/// A file without a build-id is the same if path and layout are; with one, if that is, whatever its
/// path.
#[test]
fn files_are_the_same_by_build_id_or_else_by_path_and_layout() {
    let folder = tempfile::tempdir().unwrap();
    let log = |pid, path: &str, build_id: &[u8], start, len| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid, 1));
        log.module_record(Module {
            number: 0,
            time_ns: 0,
            path: path.into(),
            build_id: build_id.into(),
            stamp: None,
            bias: start,
            segments: vec![Segment {
                start,
                len,
                file_offset: 0,
                flags: 5,
            }],
        });
        let stack = log.stack(&[start + 0x11, start + 0x21]);
        log.alloc(stack, 100);
        put(folder.path(), &format!("{pid}.heaplog"), &log.end())
    };
    let one = log(1, "/a", &[1, 2], 0x1000, 0x1000);
    let moved = log(2, "/b", &[1, 2], 0x4000, 0x1000);
    let rebuilt = log(3, "/a", &[1, 3], 0x4000, 0x1000);
    let bare = log(4, "/a", &[], 0x1000, 0x1000);
    let bare_too = log(5, "/a", &[], 0x8000, 0x1000);
    let bare_longer = log(6, "/a", &[], 0x8000, 0x2000);
    let stacks = |a: &str, b: &str| {
        let document = json(&["export", "-f", "json", a, b]);
        document["stacks"].as_array().unwrap().len()
    };
    assert_eq!(stacks(&one, &moved), 1);
    assert_eq!(stacks(&one, &rebuilt), 2);
    assert_eq!(stacks(&bare, &bare_too), 1);
    assert_eq!(stacks(&bare, &bare_longer), 2);
    assert_eq!(stacks(&one, &bare), 2);
}

#[test]
fn a_file_given_twice_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, _] = three(folder.path(), [1, 1, 1]);
    let linked = folder.path().join("again.heaplog");
    std::os::unix::fs::symlink(&a, &linked).unwrap();
    let copied = folder.path().join("copy.heaplog");
    std::fs::copy(&a, &copied).unwrap();
    let (linked, copied) = (linked.to_str().unwrap(), copied.to_str().unwrap());
    let out = heapprof(&["top", &a, &b, linked, copied]);
    assert_eq!(
        totals_line(&stdout(&out)),
        totals_line(&ok(&["top", &a, &b]))
    );
    let notes = stderr(&out);
    assert_eq!(notes.matches("counted once").count(), 2, "{notes}");
    assert_eq!(
        totals_line(&ok(&["top", &a, linked])),
        totals_line(&ok(&["top", &a]))
    );
}

#[test]
fn threads_without_a_record_are_nobody_else_s() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = [(1u8, 7u32, 1000), (2, 0, 10)].map(|(pid, thread, size)| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid.into(), 1));
        load(&mut log, 0, 0x1000);
        if pid == 2 {
            log.thread(thread, "worker");
        }
        let stack = log.stack(&[0x1101, 0x1201]);
        log.alloc_by(thread, stack, size);
        put(folder.path(), &format!("{pid}.heaplog"), &log.end())
    });
    let text = ok(&["top", "--by", "thread", &a, &b]);
    let row = |name: &str| text.lines().find(|line| line.contains(name)).map(str::trim);
    assert!(
        row("thread 7").is_some_and(|row| row.starts_with("1000 B")),
        "{text}"
    );
    assert!(
        row("worker").is_some_and(|row| row.starts_with("10 B")),
        "{text}"
    );
}

#[test]
fn what_makes_no_sense_of_several_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, _] = three(folder.path(), [1, 1, 1]);
    let refused = |args: &[&str], why: &str| {
        let out = heapprof(args);
        assert!(!out.status.success(), "{args:?}");
        assert!(stderr(&out).contains(why), "{}", stderr(&out));
    };
    refused(
        &["export", "-f", "firefox", &a, &b],
        "with --joined they have",
    );
    ok(&["export", "-f", "firefox", "--joined", &a, &b, "-o", "-"]);
    refused(
        &["top", "--perf-map", "/tmp/x", &a, &b],
        "the code of one process",
    );
    let dump = folder.path().join("a.heap");
    let dump = dump.to_str().unwrap();
    ok(&["symbolize", &a, "-o", dump]);
    refused(
        &["top", dump, &b, "--at", "1s"],
        "a dump holds the heap at one moment",
    );
    refused(&["top", dump, &b, "-m", "heaptime"], "a.heap: a dump holds");
    // A dump and a log can be added, and say so if they are of one process.
    assert_eq!(
        totals_line(&ok(&["top", dump, &b])),
        totals_line(&ok(&["top", &a, &b]))
    );
    let out = heapprof(&["top", dump, &a]);
    assert!(
        stderr(&out).contains("its blocks are counted twice"),
        "{}",
        stderr(&out)
    );
}

/// A sum of dumps has the error of the sum, as far as they state their own.
#[test]
fn errors_that_dumps_state_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = three(folder.path(), [512, 512, 512]);
    let dump = |log: &str, name: &str| {
        let out = folder.path().join(name);
        let out = out.to_str().unwrap().to_owned();
        ok(&["export", "-f", "gperftools", log, "-o", &out]);
        out
    };
    let (x, y, z) = (dump(&a, "x.heap"), dump(&b, "y.heap"), dump(&c, "z.heap"));
    // A dump's blocks are rounded line by line:
    // `in use     2.0 MiB ± 15.8 KiB in 1,101 ± 113 blocks`
    let head = |files: &[&str]| {
        let text = ok(&[&["top"], files].concat());
        let line = text.lines().find(|line| line.contains("in use  ")).unwrap();
        let numbers = line.trim().strip_prefix("in use").unwrap();
        let (bytes, blocks) = numbers.split_once(" in ").unwrap();
        let (_, error) = blocks.split_once(" ± ").unwrap_or_default();
        (bytes.trim().to_owned(), error.to_owned())
    };
    let (bytes, error) = head(&[&x, &y, &z]);
    assert!(
        bytes.contains(" ± ") && !error.is_empty(),
        "{bytes} {error}"
    );
    assert_eq!(head(&[&x, &y, &z]), head(&[&a, &b, &c]));
    // Numbers of a line beside samples: the whole has its error, lines do not.
    assert_eq!(head(&[&x, &b, &c]), head(&[&a, &b, &c]));
}

/// Processes of one file are named by the name that each was executed by. Dumps and pprof keep it.
#[test]
fn processes_are_named_by_what_was_executed() {
    let folder = tempfile::tempdir().unwrap();
    let log = |pid: u32, name: &str| {
        let mut log = LogBuilder::new(1);
        log.begins(Start {
            settings: vec![(heapprof_format::EXECUTED_AS.into(), name.into())],
            ..begin(pid, 1)
        });
        load(&mut log, 0, 0x1000);
        let stack = log.stack(&[0x1101, 0x1201]);
        log.alloc(stack, 5000);
        put(folder.path(), &format!("{pid}.heaplog"), &log.end())
    };
    let (cache, checker) = (log(20, "cache"), log(21, "checker"));
    let text = ok(&["top", &cache, &checker]);
    assert!(
        text.starts_with("cache and 1 other program, 2 processes, "),
        "{text}"
    );
    let info = ok(&["info", &checker]);
    assert!(info.starts_with("checker, pid 21, "), "{info}");
    assert!(
        info.contains("\n  executed as   checker\n") && !info.contains("setting"),
        "{info}"
    );
    for format in ["gperftools", "pprof"] {
        let out = folder.path().join(format);
        let out = out.to_str().unwrap();
        ok(&["export", "-f", format, "-o", out, &cache]);
        let text = ok(&["top", out]);
        assert!(text.starts_with("cache, pid 20"), "{format}: {text}");
    }
}
