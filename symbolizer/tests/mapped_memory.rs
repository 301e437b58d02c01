//! Mappings of a log: exact at any moment, by stack and by name.

use heapprof_format::{MappedMemory, MappedPart, MappingChange, Record};
use serde_json::Value;
use std::collections::BTreeMap;

use crate::common::{LogBuilder, heapprof, json, stderr, stdout, write};

const MIB: u64 = 1 << 20;

/// ```text
///   address, MiB   100              120     130
///   pool           ├────────────────────────┤   maps 30
///   hole                    ├───────┤           unmaps 10 to 20
///   fixed          ├───┤                        maps 0 to 5
/// ```
///
/// The reading comes behind the hole. The last change comes behind the reading.
pub(crate) fn log() -> Vec<u8> {
    log_of(77, 0)
}

/// The log of another process, which goes on for so long.
fn log_of(pid: u32, goes_on_ns: u64) -> Vec<u8> {
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", pid, 1);
    for (path, start) in [("/lib/pool.so", 0x10_0000), ("/lib/fixed.so", 0x20_0000)] {
        log.module(path, start, 0x1000);
    }
    let [pool, fixed] = [0x10_0011, 0x20_0022].map(|address| log.stack(&[1, address]));
    let change = |log: &mut LogBuilder, start: u64, len: u64, stack| {
        log.wait(1_000_000);
        log.record(|time_ns| {
            Record::MappingChange(MappingChange {
                time_ns,
                thread: 0,
                start: (100 + start) * MIB,
                len: len * MIB,
                stack,
            })
        });
    };
    let marker = |log: &mut LogBuilder, name: &str| {
        let name = name.to_owned();
        log.record(|time_ns| Record::Marker { time_ns, name });
    };
    change(&mut log, 0, 30, Some(pool));
    marker(&mut log, "whole");
    change(&mut log, 10, 10, None);
    let part = |stack, name: &str, mapped: u64, resident: u64| MappedPart {
        stack,
        name: name.into(),
        mapped: mapped * MIB,
        resident: resident * MIB,
    };
    log.record(|time_ns| {
        Record::MappedMemory(MappedMemory {
            time_ns,
            parts: vec![
                part(Some(pool), "[anonymous]", 20, 12),
                part(None, "[heap]", 4, 3),
                part(None, "[anonymous]", 2, 1),
            ],
        })
    });
    marker(&mut log, "hole");
    change(&mut log, 0, 5, Some(fixed));
    marker(&mut log, "fixed");
    log.wait(goes_on_ns);
    marker(&mut log, "all");
    log.end()
}

fn lines(log: &str, options: &[&str]) -> BTreeMap<String, f64> {
    lines_of(&[log], options)
}

fn lines_of(logs: &[&str], options: &[&str]) -> BTreeMap<String, f64> {
    let words = [&["top", "--json", "-n", "0"], options, logs].concat();
    let document: Value = json(&words);
    let lines = document["groups"].as_array().expect("groups").iter();
    lines
        .map(|line| {
            let name = line["name"].as_str().expect("a name").to_owned();
            (name, line["self"].as_f64().expect("bytes") / MIB as f64)
        })
        .collect()
}

#[test]
fn mappings_are_exact_at_any_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "m.heaplog", &log())
        .display()
        .to_string();
    let at = |metric: &str, moment: &str| {
        let lines = lines(&log, &["-m", metric, "--by", "module", "--at", moment]);
        let of = |end: &str| {
            let found = lines.iter().filter(|(name, _)| name.ends_with(end));
            found.map(|(_, mib)| mib).sum::<f64>() + 0.0
        };
        [of("pool.so"), of("fixed.so"), lines.values().sum()]
    };
    // The reading behind "whole" is the nearest one, and its parts without a stack count.
    assert_eq!(at("mapped", "whole"), [30.0, 0.0, 36.0]);
    assert_eq!(at("mapped", "hole"), [20.0, 0.0, 26.0]);
    assert_eq!(at("mapped", "fixed"), [15.0, 5.0, 26.0]);
    assert_eq!(at("mapped-resident", "hole"), [12.0, 0.0, 16.0]);
    let names = lines(&log, &["--by", "mapping", "--at", "hole"]);
    let expected = [("[anonymous]", 13.0), ("[heap]", 3.0)];
    let expected = expected.map(|(name, mib)| (name.to_owned(), mib));
    assert_eq!(names, BTreeMap::from(expected));
}

#[test]
fn two_moments_of_one_log_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "m.heaplog", &log())
        .display()
        .to_string();
    let compared = |metric: &str| {
        let moments = ["--at", "whole", "--at", "fixed"];
        let words = [&["diff", "--json", "-m", metric], &moments[..], &[&log]].concat();
        let document: Value = json(&words);
        let lines = document["sites"].as_array().expect("sites").iter();
        let of = |end: &str| {
            let is_it = |line: &&Value| line["module"].as_str().is_some_and(|it| it.ends_with(end));
            let line = lines.clone().find(is_it).expect("a line");
            line["difference"].as_f64().expect("bytes") / MIB as f64
        };
        (of("pool.so"), of("fixed.so"))
    };
    assert_eq!(compared("mapped"), (-15.0, 5.0));
    let words = [
        "diff",
        "-m",
        "mapped-resident",
        "--at",
        "whole",
        "--at",
        "fixed",
    ];
    let shown = heapprof(&[&words[..], &[&log]].concat());
    let shown = stdout(&shown);
    assert_eq!(
        shown.matches("resident bytes as of 0.006 s").count(),
        2,
        "{shown}"
    );
    let windows = [
        "--from", "0", "--to", "whole", "--from", "whole", "--to", "end",
    ];
    let output = heapprof(&[&["diff", "-m", "mapped"], &windows[..], &[&log]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--at twice"));
}

/// The only reading tells of the first moment, and is a second older than the other one.
#[test]
fn resident_bytes_of_another_time_are_not_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_of(77, 1_000_000_000);
    let log = write(folder.path(), "m.heaplog", &log)
        .display()
        .to_string();
    let verdict = |metric: &str, after: &str| {
        let moments = ["--at", "hole", "--at", after];
        let words = [&["diff", "--json", "-m", metric], &moments[..], &[&log]].concat();
        let document: Value = json(&words);
        document["total"]["verdict"].as_str().map(str::to_owned)
    };
    assert_eq!(verdict("mapped", "all").as_deref(), Some("exact"));
    assert_eq!(
        verdict("mapped-resident", "fixed").as_deref(),
        Some("exact")
    );
    assert_eq!(verdict("mapped-resident", "all").as_deref(), Some("noise"));
}

/// Both processes have the same addresses. The mappings of one that ends first are gone.
#[test]
fn joined_logs_have_the_mappings_of_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str, log: &[u8]| {
        let path = write(folder.path(), name, log);
        path.display().to_string()
    };
    let [first, equal, longer] = [
        path("a.heaplog", &log_of(77, 0)),
        path("b.heaplog", &log_of(78, 0)),
        path("c.heaplog", &log_of(79, 9_000_000)),
    ];
    let by_module = |logs: &[&str], options: &[&str]| {
        let options = [&["--joined", "--by", "module"], options].concat();
        let lines = lines_of(logs, &options);
        let of = |end: &str| {
            let found = lines.iter().filter(|(name, _)| name.ends_with(end));
            found.map(|(_, mib)| mib).sum::<f64>() + 0.0
        };
        [of("pool.so"), of("fixed.so"), lines.values().sum()]
    };
    let both = [&*first, &*equal];
    assert_eq!(by_module(&both, &["-m", "mapped"]), [30.0, 10.0, 52.0]);
    assert_eq!(
        by_module(&both, &["-m", "mapped-resident"]),
        [24.0, 0.0, 32.0]
    );
    let names = lines_of(&both, &["--joined", "--by", "mapping"]);
    let expected = [("[anonymous]", 26.0), ("[heap]", 6.0)];
    let expected = expected.map(|(name, mib)| (name.to_owned(), mib));
    assert_eq!(names, BTreeMap::from(expected));
    let one_ends = [&*first, &*longer];
    let at_end = by_module(&one_ends, &["-m", "mapped", "--at", "end"]);
    assert_eq!(at_end, [15.0, 5.0, 26.0]);
}
