//! `heapprof dump`: from the log of a run, the very dumps that the library wrote during it, on each
//! of gperftools' occasions. At interval 1 and sampled, because both fold the same events.

use std::fs;
use std::path::Path;

use heapprof_format::{Dump, DumpLine};
use heapprof_tests::{Finished, Lives, Named, Run, by_site};

/// The four numbers and the addresses of a line.
type Line = ([u64; 4], Vec<u64>);

/// Returns the lines with numbers, sorted, and the reason.
fn content(path: &Path) -> (Vec<Line>, String) {
    let bytes = fs::read(path).unwrap();
    let dump = Dump::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let numbers = |line: &DumpLine| {
        [
            line.in_use_objects,
            line.in_use_bytes,
            line.allocated_objects,
            line.allocated_bytes,
        ]
    };
    let lines = dump
        .lines
        .iter()
        .map(|line| (numbers(line), line.frames.clone()));
    let mut lines: Vec<_> = lines.filter(|(numbers, _)| *numbers != [0; 4]).collect();
    lines.sort();
    let reason = dump
        .comments
        .iter()
        .find_map(|c| c.strip_prefix("reason: "));
    (lines, reason.expect("a reason").to_owned())
}

/// Runs a fixture with that occasion for dumps, and no other.
fn ran(fixture: &str, args: &[&str], interval: u64, occasions: &[(&str, &str)]) -> Finished {
    let mut run = Run::fixture(fixture)
        .args(args)
        .interval(interval)
        .prefix("t");
    for other in ["ALLOCATION", "DEALLOCATION", "INUSE", "TIME"] {
        run = run.env(&format!("HEAP_PROFILE_{other}_INTERVAL"), "0");
    }
    for (name, value) in occasions {
        run = run.env(&format!("HEAP_PROFILE_{name}_INTERVAL"), value);
    }
    run.run().well()
}

/// Returns the dumps that `heapprof dump` makes of it, without those of the run.
fn afterwards(ran: &Finished, args: &[&str]) -> Vec<String> {
    let said = Run::heapprof()
        .in_folder_of(ran)
        .args(["dump", "t.heaplog", "-o", "x"])
        .args(args)
        .run()
        .well();
    let names = said.stdout.lines().filter_map(|line| line.split_once(": "));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Asserts that all dumps of the run but the last equal those made afterwards, one by one.
#[track_caller]
fn assert_same(ran: &Finished, args: &[&str], least: usize) {
    let then = ran.dumps();
    let now = afterwards(ran, args);
    assert_eq!(now.len() + 1, then.len(), "{args:?}: {now:?}, {then:?}");
    assert!(now.len() >= least, "{args:?}: {now:?}");
    for (then, now) in then.iter().zip(&now) {
        let (then, now) = (content(then), content(&ran.folder().join(now)));
        assert_eq!(then, now, "{args:?}");
    }
}

#[test]
fn dumps_afterwards_are_those_of_the_run() {
    for interval in [1, 4096] {
        for (occasions, args, least) in [
            (
                &[("ALLOCATION", "1048576")][..],
                &["--every", "1MiB"][..],
                10,
            ),
            (
                &[("DEALLOCATION", "524288")],
                &["--every-freed", "512KiB"],
                10,
            ),
            (&[("INUSE", "300000")], &["--every-in-use", "300000"], 5),
            (
                &[("ALLOCATION", "700000"), ("INUSE", "200000")],
                &["--every", "700000", "--every-in-use", "200000"],
                15,
            ),
        ] {
            let ran = ran("known_history", &["1"], interval, occasions);
            assert_same(&ran, args, least);
        }
    }
}

/// Timed dumps are taken when the writer wakes, so they may be some events later than the second.
/// For a program that sleeps they are the same.
#[test]
fn timed_dumps_afterwards_are_those_of_the_run() {
    let ran = ran("idle", &["2.5"], 1, &[("TIME", "1")]);
    let now = afterwards(&ran, &["--every", "1s"]);
    let then = ran.dumps();
    assert!(
        !now.is_empty() && now.len() < then.len(),
        "{now:?} {then:?}"
    );
    for (then, now) in then.iter().zip(&now) {
        assert_eq!(content(then).0, content(&ran.folder().join(now)).0);
    }
}

#[test]
fn the_dump_of_the_peak_is_the_truth_at_the_peak() {
    let ran = ran("known_history", &["1"], 1, &[]);
    let names = afterwards(&ran, &["--every", "peak"]);
    assert_eq!(names.len(), 1);
    let dump = Named::read(&ran.folder().join(&names[0]));
    let mut found = by_site(&dump);
    found.retain(|_, account| account.in_use_objects > 0);
    let both = found
        .into_iter()
        .map(|(s, n)| (s, (n.in_use_objects, n.in_use_bytes)));
    assert_eq!(
        both.collect::<std::collections::BTreeMap<_, _>>(),
        Lives::parse(&ran.stdout).peak()
    );
}
