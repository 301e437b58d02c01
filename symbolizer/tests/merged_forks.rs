//! Several processes of one family, and what their clocks say: forks, and moments of each.

use crate::common::processes::{S, begin, load, put, three};
use crate::common::{LogBuilder, heapprof, ok, stderr, stdout, totals_line};
use heapprof_format::{Record, Start};
use std::path::Path;

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
        parent_log_number: 30,
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
    // The reader inserts the inherited blocks behind the first frame.
    child.flush();
    let own = child.stack(&[0x1101, 0x1301]);
    child.free(config);
    child.alloc_as(1000, own, 9);
    [parent, put(folder, "child.heaplog", &child.end())]
}

/// Another's log at the place of the parent's is not taken for it, be it older, and a child's own,
/// moved there, is not looked into for what it had for ever.
#[test]
fn a_parent_is_told_by_who_it_was() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
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
    assert!(info.contains("parent.heaplog is another log"), "{info}");

    std::fs::write(&parent, bytes(&child)).unwrap();
    assert_eq!(totals_line(&ok(&["top", &parent])), [1, 9, 1, 9]);
    assert_eq!(totals_line(&ok(&["top", &child])), [1, 9, 1, 9]);
}

/// Blocks of no recorded thread stay apart from the threads of other logs.
#[test]
fn what_a_child_had_from_its_parent_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let [parent, child] = family(folder.path());
    assert_eq!(totals_line(&ok(&["top", &parent])), [2, 5070, 2, 5070]);
    assert_eq!(totals_line(&ok(&["top", &child])), [2, 79, 3, 5079]);
    let text = ok(&["top", &child, &parent]);
    assert_eq!(totals_line(&text), [3, 5079, 3, 5079], "{text}");
    assert!(
        text.contains(
            "what 1 of them had from before their fork is counted in the parent's log alone"
        ),
        "{text}"
    );
    // Its free of a block that is left out is no riddle.
    assert!(!ok(&["info", &child, &parent]).contains("whose allocation is not in the file"));
    // Without the parent's log, it is the child's.
    let [a, _, _] = three(folder.path(), [1, 1, 1]);
    let sum = totals_line(&ok(&["top", &child, &a]));
    assert_eq!(sum[3], 5079 + totals_line(&ok(&["top", &a]))[3]);
}

/// Three processes that start at 00:00:10, :11 and :15 and allocate 100 bytes each second from then
/// on, for 3, 10 and 3 s; the second never says that it ended.
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
    let folder = tempfile::tempdir().unwrap();
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
    // 00:00:12.5 to 00:00:16.5: the third second of the first, four of the second, one of the
    // third.
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
    // 5 s after their starts one had ended; 11 s after, all that had an end.
    let (numbers, text) = bytes(&["--at", "5s"]);
    assert_eq!(numbers, (500, 300 + 500 + 300));
    assert!(
        text.contains("2 of the processes had ended before"),
        "{text}"
    );
    assert_eq!(bytes(&["--from", "2s", "--to", "5s"]).0, (500, 500));
    assert_eq!(bytes(&["--from", "4s", "--to", "5s"]).0, (100, 100));
    assert_eq!(bytes(&["--at", "11s"]).0, (1000, 1600));
    for args in [&["--at", "11s"][..], &["--from", "11s", "--to", "12s"]] {
        let out = heapprof(&[&["top", &a, &c], args].concat());
        assert!(!out.status.success());
        assert!(
            stderr(&out).contains("after the start: none of the processes ran so long"),
            "{}",
            stderr(&out)
        );
    }
    // With one log it is an error.
    let out = heapprof(&["top", &a, "--at", "5s"]);
    assert!(
        stderr(&out).contains("10.heaplog: 5 s is after"),
        "{}",
        stderr(&out)
    );
}

/// In containers every first process has the number 1. If the log of the parent is there, it tells
/// the parent from other processes of its number. A line for a process is about that process alone.
#[test]
fn another_process_of_the_parents_number_is_not_the_parent() {
    let folder = tempfile::tempdir().unwrap();
    let [parent, child] = family(folder.path());
    let mut other = LogBuilder::new(1);
    other.begins(Start {
        pid: 30,
        ..begin(20, 1)
    });
    load(&mut other, 0, 0x1000);
    let stack = other.stack(&[0x1101, 0x1401]);
    other.alloc(stack, 3);
    let other = put(folder.path(), "other.heaplog", &other.end());
    let totals = |files: [&str; 2]| totals_line(&ok(&["top", files[0], files[1]]));
    assert_eq!(totals([&parent, &child]), [3, 5079, 3, 5079]);
    assert_eq!(totals([&other, &child]), [3, 82, 4, 5082]);
    let top = ok(&["top", "--by", "process", &other, &parent]);
    for file in [&other, &parent] {
        assert!(top.contains(&format!("server, pid 30 ({file})")), "{top}");
    }
}
