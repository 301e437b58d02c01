//! The examples of gates (`docs/examples/`): each test runner passes a usual load. It fails a
//! heavy load with heapprof's sentence.

use std::path::Path;
use std::process::{Command, Output};

use heapprof_tests::{Build, repository};

/// A copy of an example, and a command in it that finds the `heapprof` under test.
struct Example {
    folder: tempfile::TempDir,
}

impl Example {
    fn of(name: &str) -> Example {
        let folder = tempfile::tempdir().unwrap();
        let from = repository().join("docs/examples").join(name);
        let copied = Command::new("cp")
            .arg("-r")
            .arg(from.join("."))
            .arg(folder.path())
            .status();
        assert!(copied.unwrap().success());
        Example { folder }
    }

    fn run(&self, program: &str, args: &[&str], env: &[(&str, &str)]) -> (bool, String) {
        let build = Build::get();
        let place = build.heapprof.parent().unwrap_or(Path::new("."));
        let path = std::env::var("PATH").unwrap();
        let output = Command::new(program)
            .args(args)
            .envs(env.iter().copied())
            .env("PATH", format!("{}:{path}", place.display()))
            .env("HEAPPROF_LIBRARY", build.library())
            .env("HEAPPROF_EXIT_WAIT_MS", "10000")
            .env("CARGO_TARGET_DIR", self.folder.path().join("target"))
            .current_dir(self.folder.path())
            .output();
        let missing = format!("{program}: run scripts/install-deps");
        let Output {
            status,
            stdout,
            stderr,
        } = output.expect(&missing);
        let text = [stdout, stderr].concat();
        (
            status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}

#[track_caller]
fn assert_told(text: &str) {
    assert!(text.contains("above the limit of"), "{text}");
}

#[test]
fn cargo_runs_its_tests_within_a_limit() {
    let example = Example::of("cargo");
    let run = |pages: &str| example.run("cargo", &["test", "--offline"], &[("PAGES", pages)]);
    let (passed, text) = run("16");
    assert!(passed && text.contains("a_usual_load ... ok"), "{text}");
    let (passed, text) = run("256");
    assert!(!passed, "{text}");
    assert_told(&text);
}

#[test]
fn ctest_runs_its_tests_within_a_limit() {
    let example = Example::of("ctest");
    let (made, text) = example.run("cmake", &["-B", "build", "."], &[]);
    assert!(made, "{text}");
    let (built, text) = example.run("cmake", &["--build", "build"], &[]);
    assert!(built, "{text}");
    // ctest has an option for the folder from CMake 3.20 on.
    let test = ["-E", "chdir", "build", "ctest", "--output-on-failure"];
    let (passed, text) = example.run("cmake", &test, &[]);
    assert!(!passed, "{text}");
    assert!(text.contains("1 tests failed out of 2"), "{text}");
    let of = |name: &str| {
        text.lines()
            .find(|line| line.contains(name) && line.contains("Test #"))
    };
    assert!(
        of("usual_load").unwrap_or_default().contains("Passed"),
        "{text}"
    );
    assert_told(&text);
}

#[test]
fn a_script_judges_by_a_budget() {
    let example = Example::of("budget");
    let fixture = Build::get().fixture("exit_ways").display().to_string();
    // The program's own status is that of the script.
    let (passed, text) = example.run("./ci.sh", &[&fixture, "return"], &[]);
    assert!(passed, "{text}");
    assert!(text.contains("pass          peak is "), "{text}");
    let (passed, text) = example.run("sed", &["-i", "s/200MiB/1KiB/", "heapprof.toml"], &[]);
    assert!(passed, "{text}");
    let (passed, text) = example.run("./ci.sh", &[&fixture, "return"], &[]);
    assert!(!passed, "{text}");
    assert_told(&text);
}

#[test]
fn pytest_runs_its_tests_within_a_limit() {
    let example = Example::of("pytest");
    let (passed, text) = example.run("/usr/bin/python3", &["-m", "pytest", "-q"], &[]);
    assert!(!passed, "{text}");
    assert!(text.contains("1 failed, 1 passed"), "{text}");
    assert_told(&text);
    // The failure shows whose the memory is.
    assert!(text.contains("total: in use "), "{text}");
}
