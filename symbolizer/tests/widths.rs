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
