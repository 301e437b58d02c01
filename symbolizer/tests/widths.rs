//! The width of tables: `--width`, `COLUMNS`, and neither.

use std::process::Command;

use crate::common::{LogBuilder, write};

/// Deep in folders, and with a long name.
fn log() -> Vec<u8> {
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", 77, 1_767_225_600_000_000_000);
    let path = format!("/{}/libserver.so", "folder/".repeat(20));
    log.module(&path, 0x1000, 0x1000);
    let stack = log.stack(&[0x1010, 0x1021, 0x9999]);
    for _ in 0..20 {
        log.alloc(stack, 50_000_000);
    }
    log.end()
}

#[test]
fn a_pipe_has_the_width_that_the_user_or_the_environment_gives() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "a.heaplog", &log());
    let widest = |command: &str, args: &[&str], columns: Option<&str>| {
        let mut ran = Command::new(env!("CARGO_BIN_EXE_heapprof"));
        ran.arg(command).args(args).arg(&log).env_remove("COLUMNS");
        ran.envs(columns.map(|columns| ("COLUMNS", columns)));
        let out = ran.output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        let rows = text.lines().filter(|line| line.contains(".so"));
        let widths = rows.map(|line| line.chars().count());
        widths.max().expect("a row with the module")
    };
    for command in ["top", "tree", "timeline"] {
        let args: &[&str] = match command {
            "timeline" => &["--top", "1"],
            _ => &[],
        };
        let free = widest(command, args, None);
        let with = |more: &[&str], columns| widest(command, &[args, more].concat(), columns);
        assert_eq!(with(&[], Some("nonsense")), free, "{command}");
        assert_eq!(with(&["--width", "0"], Some("80")), free, "{command}");
        assert!(with(&[], Some("80")) <= 80, "{command}");
        assert!(with(&["--width", "70"], Some("200")) <= 70, "{command}");
        // The others name the module without its folders.
        if command == "top" {
            assert!(free > 80, "{command}: {free}");
        }
    }
}

/// A name of C++, of code that a perf map names.
const LONG: &str = "store::Cache<std::pair<int, std::string> >::insert(unsigned long, char const*)";

/// No line is wider than it is asked to be, and the function's own name is the last thing to go.
#[test]
fn narrow_lines_keep_the_names_of_functions() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogBuilder::new(4096);
    let stack = log.stack(&[0x9010, 0x9021]);
    for _ in 0..20 {
        log.alloc(stack, 50_000_000);
    }
    let log = write(folder.path(), "a.heaplog", &log.end());
    let map = write(
        folder.path(),
        "a.map",
        format!("9000 100 {LONG}\n").as_bytes(),
    );
    for (command, args) in [
        ("top", &[][..]),
        ("top", &["-m", "peak"]),
        ("tree", &[]),
        ("diff", &["--at", "2ms", "--at", "end"]),
        ("timeline", &["--top", "1"]),
        ("info", &[]),
    ] {
        for width in [60, 80, 100, 120] {
            let mut ran = Command::new(env!("CARGO_BIN_EXE_heapprof"));
            ran.arg(command)
                .arg(&log)
                .args(args)
                .arg("--perf-map")
                .arg(&map);
            let out = ran.env("COLUMNS", width.to_string()).output().unwrap();
            assert!(out.status.success(), "{command}: {out:?}");
            let text = String::from_utf8(out.stdout).unwrap();
            for line in text.lines() {
                // A word alone, such as a path, is not cut, nor is a command to copy.
                let command_alone =
                    line.trim_start().starts_with('`') && line.matches('`').count() == 2;
                let is_cut = line.trim_start().contains(' ') && !command_alone;
                let wide = line.chars().count();
                assert!(wide <= width || !is_cut, "{command}, {width}: {line}");
            }
            if command != "info" {
                assert!(text.contains("insert("), "{command}, {width}: {text}");
            }
        }
    }
}
