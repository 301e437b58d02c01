//! Several logs, added up: stacks are joined by file and offset, sums and variances add, times are each process's own
//! or one of the clock on the wall.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{LogBuilder, heapprof, stderr, stdout, totals_line};
use heapprof_format::{Alloc, Module, Record, Segment, Start};
use serde_json::Value;

const S: u64 = 1_000_000_000;
/// 2026-01-01 00:00:00 UTC.
const NEW_YEAR: u64 = 1_767_225_600;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn ok(args: &[&str]) -> String {
    let out = heapprof(args);
    assert!(out.status.success(), "{args:?}: {}", stderr(&out));
    stdout(&out)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> String {
    common::write(folder, name, bytes)
        .to_str()
        .unwrap()
        .to_owned()
}

fn begin(pid: u32, interval: u64) -> Start {
    Start {
        program: "/bin/server".into(),
        args: vec!["server".into()],
        pid,
        wall_ns: NEW_YEAR * S + u64::from(pid) * S,
        monotonic_ns: u64::from(pid) * S,
        interval,
        library: "0.1.0".into(),
        ..Start::default()
    }
}

/// Files of the tests: server, libc, plugin; each of 0x1000 bytes, told by its build-id.
fn load(log: &mut LogBuilder, file: u8, start: u64) {
    let path = ["/bin/server", "/lib/libc.so.6", "/opt/plugin.so"][file as usize];
    log.module_record(Module {
        number: 0,
        time_ns: 0,
        path: path.into(),
        build_id: vec![0xab, file, 1, 2],
        bias: start,
        segments: vec![Segment {
            start,
            len: 0x1000,
            file_offset: 0,
            flags: 5,
        }],
    });
}

/// A process whose files are at those addresses, with allocations from all of them that follow `seed`. Every third
/// block is freed, and a quarter of those at once.
fn process(pid: u32, interval: u64, at: &[(u8, u64)], seed: u64) -> Vec<u8> {
    let mut log = LogBuilder::new(interval);
    log.begins(begin(pid, interval));
    for &(file, start) in at {
        load(&mut log, file, start);
    }
    let address = |file: u8, offset: u64| {
        let place = at.iter().find(|(known, _)| *known == file);
        place.map(|(_, start)| start + offset)
    };
    let mut stacks = Vec::new();
    for caller in 0..4u64 {
        for leaf in [1, 2u8] {
            let frames = [
                address(leaf, 0x101 + 16 * caller),
                address(0, 0x201 + 16 * (caller % 2)),
                address(0, 0x301),
            ];
            if let [Some(a), Some(b), Some(c)] = frames {
                // The innermost is where malloc is, and nobody's site.
                stacks.push(log.stack(&[c, a, b, c]));
            }
        }
    }
    let mut state = seed;
    for i in 0..400u64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let stack = stacks[(state >> 33) as usize % stacks.len()];
        let id = log.alloc(stack, 16 + (state >> 40) % 5000);
        if i % 3 == 0 {
            if i % 4 != 0 {
                log.wait(20_000_000);
            }
            log.free(id);
        }
    }
    log.end()
}

/// What `top` says of all lines: by function and module, value and squared error of self and cumulative.
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

/// Three processes that have their files at different places, one of them where another has another, and one file
/// that not all have.
fn three(folder: &Path, intervals: [u64; 3]) -> [String; 3] {
    let places: [&[(u8, u64)]; 3] = [
        &[(0, 0x1000), (1, 0x5000)],
        &[(1, 0x1000), (0, 0x9000), (2, 0x5000)],
        &[(2, 0x1000), (1, 0x3000), (0, 0x5000)],
    ];
    [0, 1, 2].map(|i| {
        let log = process(10 + i as u32, intervals[i], places[i], i as u64 + 7);
        put(folder, &format!("{i}.heaplog"), &log)
    })
}

#[test]
fn every_metric_of_several_logs_is_the_sum_of_each() {
    let folder = folder();
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
    let folder = folder();
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
    let folder = folder();
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

/// Two processes made code at one address: it is not the same code. And no file of a third lies on it.
#[test]
fn code_outside_all_files_is_never_joined() {
    let folder = folder();
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

/// A file without a build-id is the same if path and layout are; with one, if that is, whatever its path.
#[test]
fn files_are_the_same_by_build_id_or_else_by_path_and_layout() {
    let folder = folder();
    let log = |pid, path: &str, build_id: &[u8], start, len| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid, 1));
        log.module_record(Module {
            number: 0,
            time_ns: 0,
            path: path.into(),
            build_id: build_id.into(),
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
    let folder = folder();
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

/// A server's log, `parent.heaplog`, and that of its child.
fn family(folder: &Path) -> [String; 2] {
    let mut parent = LogBuilder::new(1);
    parent.begins(begin(30, 1));
    load(&mut parent, 0, 0x1000);
    let stack = parent.stack(&[0x1101, 0x1201]);
    let config = parent.alloc(stack, 5000);
    parent.alloc(stack, 70);
    parent.wait(S);
    let parent = put(folder, "parent.heaplog", &parent.end());
    let mut child = LogBuilder::new(1);
    child.begins(Start {
        forked_from: 30,
        // 10 ms after the parent's start.
        monotonic_ns: 30 * S + 10_000_000,
        settings: vec![
            (
                heapprof_format::FORKED_AT.into(),
                (30 * S + 10_000_000).to_string(),
            ),
            (heapprof_format::PARENT_LOG.into(), parent.clone()),
        ],
        ..begin(31, 1)
    });
    load(&mut child, 0, 0x1000);
    // What it had is put behind its first frame.
    child.flush();
    let own = child.stack(&[0x1101, 0x1301]);
    child.free(config);
    child.record(|time_ns| {
        Record::Alloc(Alloc {
            time_ns,
            thread: 0,
            id: 1000,
            size: 9,
            slack: 0,
            stack: own,
            interval: 1,
        })
    });
    [parent, put(folder, "child.heaplog", &child.end())]
}

/// Another's log at the place of the parent's is not taken for it, be it older, and a child's own, moved there, is not looked into for
/// what it had for ever.
#[test]
fn a_parent_is_told_by_who_it_was() {
    let (folder, elsewhere) = (folder(), folder());
    let [parent, child] = family(folder.path());
    let bytes = |path: &str| std::fs::read(path).unwrap();
    let moved = put(elsewhere.path(), "child.heaplog", &bytes(&child));
    put(elsewhere.path(), "parent.heaplog", &bytes(&parent));
    // Older than the child, and with the id of a sample that the child frees.
    let mut other = LogBuilder::new(1);
    other.begins(begin(20, 1));
    load(&mut other, 0, 0x1000);
    let stack = other.stack(&[0x1101, 0x1401]);
    other.alloc(stack, 3);
    std::fs::write(&parent, other.end()).unwrap();
    // The parent's own lies beside the child's.
    assert_eq!(totals_line(&ok(&["top", &moved])), [2, 79, 3, 5079]);
    assert_eq!(totals_line(&ok(&["top", &child])), [1, 9, 1, 9]);
    let info = ok(&["info", &child]);
    assert!(info.contains("parent.heaplog is not here"), "{info}");

    std::fs::write(&parent, bytes(&child)).unwrap();
    assert_eq!(totals_line(&ok(&["top", &parent])), [1, 9, 1, 9]);
    assert_eq!(totals_line(&ok(&["top", &child])), [1, 9, 1, 9]);
}

/// What is of no thread that a log tells of stays apart from the threads of the others.
#[test]
fn threads_without_a_record_are_nobody_else_s() {
    let folder = folder();
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

/// Of a server and its child, what the child had from it is the server's.
#[test]
fn what_a_child_had_from_its_parent_counts_once() {
    let folder = folder();
    let [parent, child] = family(folder.path());
    assert_eq!(totals_line(&ok(&["top", &parent])), [2, 5070, 2, 5070]);
    assert_eq!(totals_line(&ok(&["top", &child])), [2, 79, 3, 5079]);
    let text = ok(&["top", &child, &parent]);
    assert_eq!(totals_line(&text), [3, 5079, 3, 5079], "{text}");
    assert!(
        text.contains("2 samples from before forks are counted in the parent's log alone"),
        "{text}"
    );
    // Its free of a block that is left out is no riddle.
    assert!(!ok(&["info", &child, &parent]).contains("whose allocation is not in the file"));
    // Without the parent's log, it is the child's.
    let [a, _, _] = three(folder.path(), [1, 1, 1]);
    let sum = totals_line(&ok(&["top", &child, &a]));
    assert_eq!(sum[3], 5079 + totals_line(&ok(&["top", &a]))[3]);
}

/// Three processes that start at 00:00:10, :11 and :15 and allocate 100 bytes each second from then on, for 3, 10 and
/// 3 s; the second never says that it ended.
fn clocks(folder: &Path) -> [String; 3] {
    [(10, 3), (11, 10), (15, 3)].map(|(pid, seconds)| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid, 1));
        load(&mut log, 0, 0x1000 * u64::from(pid));
        let stack = log.stack(&[0x1000 * u64::from(pid) + 0x11]);
        for _ in 0..seconds {
            log.wait(S - 1_000_000);
            log.alloc(stack, 100);
        }
        log.record(|time_ns| Record::Marker {
            time_ns,
            name: format!("end of {pid}"),
        });
        let log = if pid == 11 { log.cut() } else { log.end() };
        put(folder, &format!("{pid}.heaplog"), &log)
    })
}

#[test]
fn times_since_the_start_are_each_process_s_own_and_clock_times_are_one() {
    let folder = folder();
    let [a, b, c] = clocks(folder.path());
    let bytes = |args: &[&str]| {
        let text = ok(&[&["top", &a, &b, &c], args].concat());
        let [_, in_use, _, allocated] = totals_line(&text);
        ((in_use, allocated), text)
    };
    // 2 s after the start of each.
    assert_eq!(bytes(&["--at", "2s"]).0, (600, 600));
    assert_eq!(bytes(&["--from", "1s", "--to", "2s"]).0, (300, 300));
    // All of each, by percent and by name.
    assert_eq!(bytes(&["--at", "100%"]).0, (1600, 1600));
    // 00:00:12.5: the first ran for 2.5 s, the second for 1.5, the third had not begun.
    let (numbers, text) = bytes(&["--at", "00:00:12.5"]);
    assert_eq!(numbers, (300, 300));
    assert!(
        text.contains("1 of the processes had not begun then"),
        "{text}"
    );
    // 00:00:16.5: the first had ended: nothing of it is in use, all was allocated.
    let (numbers, text) = bytes(&["--at", "2026-01-01T00:00:16.5Z"]);
    assert_eq!(numbers, (500 + 100, 300 + 500 + 100));
    assert!(
        text.contains("1 of the processes had ended before"),
        "{text}"
    );
    // 00:00:12.5 to 00:00:16.5: the third second of the first, four of the second, one of the third.
    assert_eq!(
        bytes(&["--from", "00:00:12.5", "--to", "00:00:16.5"]).0,
        (600, 600)
    );
    // 00:00:21.5: the second has no record so late, and may still run.
    let late = ok(&["top", &b, &c, "--at", "00:00:17.5"]);
    assert_eq!(totals_line(&late)[1], 600 + 200);
    let out = heapprof(&["top", &a, &b, "--at", "00:00:30"]);
    assert_eq!(totals_line(&stdout(&out))[1], 1000);
    assert!(
        stdout(&out).contains("have no record so late"),
        "{}",
        stdout(&out)
    );
    // Nor is it said to have ended before a window.
    let out = ok(&["top", &a, &b, "--from", "00:00:25", "--to", "00:00:30"]);
    assert_eq!(totals_line(&out), [0; 4]);
    assert!(out.contains("1 of the processes have no record"), "{out}");
    assert!(out.contains("1 of the processes had ended"), "{out}");
    // When none ran.
    for args in [
        &["--at", "2025-12-31T23:00:00Z"][..],
        &[
            "--from",
            "2026-01-01T00:00:01Z",
            "--to",
            "2026-01-01T00:00:02Z",
        ],
    ] {
        let out = heapprof(&[&["top", &a, &b, &c], args].concat());
        assert!(!out.status.success());
        assert!(
            stderr(&out).contains("none of the processes ran then"),
            "{}",
            stderr(&out)
        );
    }
    // A moment that is not in each of them is an error that says in which.
    let out = heapprof(&["top", &a, &b, "--at", "end of 11"]);
    assert!(!out.status.success());
    assert!(stderr(&out).contains("10.heaplog"), "{}", stderr(&out));
    let out = heapprof(&["top", &a, &b, "--at", "5s"]);
    assert!(
        stderr(&out).contains("10.heaplog: 5 s is after"),
        "{}",
        stderr(&out)
    );
}

#[test]
fn what_makes_no_sense_of_several_is_refused() {
    let folder = folder();
    let [a, b, _] = three(folder.path(), [1, 1, 1]);
    let refused = |args: &[&str], why: &str| {
        let out = heapprof(args);
        assert!(!out.status.success(), "{args:?}");
        assert!(stderr(&out).contains(why), "{}", stderr(&out));
    };
    refused(
        &["export", "-f", "firefox", &a, &b],
        "export each by itself",
    );
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
    let folder = folder();
    let [a, b, c] = three(folder.path(), [512, 512, 512]);
    let dump = |log: &str, name: &str| {
        let out = folder.path().join(name);
        let out = out.to_str().unwrap().to_owned();
        ok(&["export", "-f", "gperftools", log, "-o", &out]);
        out
    };
    let (x, y, z) = (dump(&a, "x.heap"), dump(&b, "y.heap"), dump(&c, "z.heap"));
    // `in use     2.0 MiB ± 15.8 KiB in 1,101 ± 113 blocks`: a dump's blocks are rounded line by line.
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
