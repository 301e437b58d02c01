//! `heapprof top --by type` of programs whose allocations are known by type (`fixtures/types.*`):
//! every type has as many blocks and bytes as the program prints, in C++ and Rust, optimised or
//! not, in both manglings.

use std::path::Path;
use std::process::Command;

use heapprof_tests::{Build, Finished, Json, Run, repository};
use serde_json::Value;

/// Runs it and hands log and name of the case to the check.
fn run_of(compiler: &str, flags: &[&str], source: &str, also: impl Fn(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("types");
    let source = repository().join("tests/fixtures").join(source);
    let compiled = Command::new(compiler)
        .args(flags)
        .arg("-g")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; run scripts/install-deps"));
    assert!(
        compiled.status.success(),
        "{compiler} {flags:?}: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let finished = Run::program(&program).interval(1).prefix("t").run().well();
    // Before the folder is removed: names are searched where the program was.
    check(&finished, &format!("{compiler} {flags:?}"));
    also(&finished.log_path());
}

fn top(log: &Path, args: &[&str]) -> Value {
    let ran = Command::new(&Build::get().heapprof)
        .args(["top", "--json", "-n", "0"])
        .args(args)
        .arg(log)
        .output()
        .expect("heapprof runs");
    assert!(ran.status.success());
    Json::parse(&String::from_utf8_lossy(&ran.stdout)).0
}

/// Returns the blocks and bytes that a group ever allocated.
fn of<'a>(groups: &'a Value, name: &str) -> Option<[&'a Value; 2]> {
    let groups = groups["groups"].as_array().expect("groups");
    let group = groups.iter().find(|group| group["name"] == name)?;
    let own = &group["self"];
    Some([&own["allocated-objects"], &own["allocated-bytes"]])
}

fn check(finished: &Finished, case: &str) {
    let log = finished.log_path();
    let types = top(&log, &["--by", "type", "--metric", "allocated-bytes"]);
    let mut lines = 0;
    for line in finished.stderr.lines() {
        let mut words = line.splitn(3, ' ');
        let Some((blocks, bytes, name)) =
            (|| Some((words.next()?, words.next()?, words.next()?)))()
        else {
            continue;
        };
        let Ok(blocks) = blocks.parse::<u64>() else {
            continue;
        };
        let found = of(&types, name).unwrap_or_else(|| panic!("{case}: no {name} in {types:#}"));
        assert_eq!(*found[0], blocks, "{case}: blocks of {name}");
        if bytes != "-" {
            let bytes: u64 = bytes.parse().expect("a number");
            assert_eq!(*found[1], bytes, "{case}: bytes of {name}");
        }
        lines += 1;
    }
    assert!(lines >= 9, "{case} said: {}", finished.stderr);
    // The groups are a partition of the whole, and every metric has them.
    let groups = types["groups"].as_array().expect("groups");
    let sum: u64 = groups
        .iter()
        .map(|group| group["self"]["allocated-bytes"].as_u64().expect("a number"))
        .sum();
    assert_eq!(types["totals"]["allocated-bytes"], sum, "{case}");
    let heaptime = top(&log, &["--by", "type", "--metric", "heaptime"]);
    assert_eq!(
        (&heaptime["by"], &heaptime["metric"]),
        (&"type".into(), &"heaptime".into())
    );
}

#[test]
fn types_of_cpp_are_counted_right() {
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-std=c++20"]] {
        run_of("g++", flags, "types.cpp", |_| {});
    }
}

#[test]
fn types_of_rust_are_counted_right() {
    let name = ["--crate-name", "types", "--edition", "2021"];
    for flags in [
        &[][..],
        &["-O"],
        &["-O", "-C", "symbol-mangling-version=v0"],
    ] {
        // Allocations of the standard library for the program are the program's.
        run_of("rustc", &[&name, flags].concat(), "types.rs", |log| {
            let crates = top(log, &["--by", "crate", "--metric", "allocated-bytes"]);
            let [blocks, bytes] = of(&crates, "types").expect("the crate");
            assert!(
                blocks.as_u64() >= Some(1655) && bytes.as_u64() >= Some(222_000),
                "{crates:#}"
            );
        });
    }
}
