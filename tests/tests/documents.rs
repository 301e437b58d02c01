//! What documents name is there.

use std::fs;
use std::process::Command;

use heapprof_tests::{Build, repository};

/// All that the folder's files with this ending hold.
fn text_of(folder: &str, ending: &str) -> String {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// Whether there is a fixture, a test, a file of tests or any other file of that name.
fn exists(name: &str, tests: &str) -> bool {
    let root = repository();
    let is_fixture = ["c", "cpp"]
        .iter()
        .any(|end| root.join(format!("c-fixtures/{name}.{end}")).exists());
    is_fixture
        || tests.contains(&format!("fn {name}()"))
        || root.join("tests/tests").join(name).exists()
        || root.join(name).exists()
}

/// The last column of docs/hosts.md: what shows that a trap is met.
#[test]
fn what_shows_how_traps_are_met_is_there() {
    let tests = text_of("tests/tests", "rs");
    let hosts = fs::read_to_string(repository().join("docs/hosts.md")).unwrap();
    let rows = hosts.lines().filter(|line| line.starts_with("| "));
    let mut names = 0;
    let mut missing = Vec::new();
    for row in rows.skip(2) {
        let columns: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let shown = columns.last().expect("a column");
        for quoted in shown.split('`').skip(1).step_by(2) {
            // `file.rs: test`, `fixture argument`.
            let words = quoted
                .split([' ', ':', ','])
                .filter(|word| !word.is_empty());
            let mut words = words.take_while(|word| !word.starts_with('…'));
            let Some(first) = words.next() else { continue };
            names += 1;
            if !exists(first, &tests) {
                missing.push(first);
            }
            if let Some((file, test)) = quoted.split_once(": ") {
                let path = repository().join("tests/tests").join(file);
                let holds = fs::read_to_string(path).unwrap_or_default();
                if !holds.contains(&format!("fn {test}()")) {
                    missing.push(quoted);
                }
            }
        }
    }
    assert!(names > 80, "{names}");
    assert_eq!(missing, [""; 0]);
}

/// Every variable that the library reads is where people look for it.
#[test]
fn every_setting_is_in_the_readme_and_in_the_help() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let readme = read("README.md");
    let help = read("symbolizer/src/cli/run/mod.rs");
    let source = read("preload/src/settings.rs");
    let quoted = source.split('"').filter(|text| {
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        text.starts_with("HEAP") && !text.ends_with('_') && text.chars().all(is_part)
    });
    let names: std::collections::BTreeSet<&str> = quoted.collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in names {
        assert!(
            readme.contains(&format!("| `{name}` |")),
            "README.md: {name}"
        );
        assert!(
            help.contains(&format!("\n  {name} ")),
            "heapprof run --help: {name}"
        );
    }
}

/// Every name that the library gives to others, but for C++'s operators, is in docs/exports.md.
#[test]
fn every_export_is_listed() {
    let listed = fs::read_to_string(repository().join("docs/exports.md")).unwrap();
    let names = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(&Build::get().library)
        .output()
        .expect("nm runs (scripts/install-deps installs it)");
    let names = String::from_utf8(names.stdout).unwrap();
    let names = names
        .lines()
        .filter_map(|line| line.split([' ', '@']).next())
        .filter(|name| !name.starts_with("_Z"));
    let missing: Vec<&str> = names
        .filter(|name| !listed.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(missing, [""; 0]);
}
