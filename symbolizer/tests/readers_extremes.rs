//! The programs that people open dumps with, run for real on profiles at the edges: blocks of no
//! bytes and of a few, stacks that are not in the file. Whatever goes in, they open it, and state
//! the totals that `heapprof top` states.

use std::path::Path;
use std::process::Command;

use crate::common::{LogBuilder, heapprof, stderr, stdout, totals_line, write};
use tempfile::TempDir;

/// A file of a log in that form, and the totals of the log: in use and allocated, objects and bytes
/// of each.
fn exported(log: &[u8], format: &str) -> (TempDir, String, [u64; 4]) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "run.heaplog", log);
    let to = folder.path().join("run.export").display().to_string();
    let log = log.display().to_string();
    let output = heapprof(&["export", "--format", format, "-o", &to, &log]);
    assert!(output.status.success(), "{}", stderr(&output));
    let totals = totals_line(&stdout(&heapprof(&["top", &log])));
    (folder, to, totals)
}

fn run(reader: &str, args: &[&str], home: &Path) -> String {
    let output = Command::new(reader)
        .args(args)
        .env("HOME", home) // they keep caches there
        .env("PPROF_TMPDIR", home)
        .output()
        .unwrap_or_else(|error| panic!("{reader}: {error}; run scripts/install-deps"));
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{reader} {args:?}\n{out}{err}");
    out
}

/// Returns the total that a perl reader shows, in objects or bytes.
fn perl_total(reader: &str, which: &str, file: &str, home: &Path) -> f64 {
    // Where the names are in the file, a program is one argument too many.
    let has_names = std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"--- symbol"));
    let program = (!has_names).then_some("/bin/true");
    let mut args = vec!["--text", "--show_bytes", which];
    args.extend(program.into_iter().chain([file]));
    let text = run(reader, &args, home);
    let total = text.lines().find_map(|line| line.strip_prefix("Total: "));
    let total = total.unwrap_or_else(|| panic!("no total in {text}"));
    let number = total.split(' ').next().expect("a number");
    number.parse().expect("a number")
}

const COLUMNS: [&str; 4] = [
    "--inuse_objects",
    "--inuse_space",
    "--alloc_objects",
    "--alloc_space",
];

/// `malloc(0)` is a block. jeprof takes the average of each line, and divides by it.
#[test]
fn jeprof_opens_a_profile_with_blocks_of_no_bytes() {
    for interval in [1, 64, 524_288] {
        let mut log = LogBuilder::new(interval);
        let (empty, mixed) = (log.stack(&[0x1010, 0x1101]), log.stack(&[0x1010, 0x1201]));
        for _ in 0..3 {
            log.alloc(empty, 0);
            log.alloc(mixed, 1000);
        }
        log.alloc_by(1, mixed, 0);
        log.alloc_by(2, mixed, 8);
        let (folder, file, totals) = exported(&log.end(), "jemalloc");
        for (which, expected) in COLUMNS.into_iter().zip(totals) {
            let total = perl_total("jeprof", which, &file, folder.path());
            assert_eq!(total, expected as f64, "{which} at {interval}");
        }
    }
}

/// A damaged log may have samples whose stack it has not.
#[test]
fn readers_count_blocks_without_a_stack() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x1010, 0x1101]);
    log.alloc(stack, 1000);
    log.alloc(stack + 1, 70);
    let log = log.end();
    for (reader, format) in [
        ("google-pprof", "gperftools"),
        ("google-pprof", "symbolized"),
        ("jeprof", "symbolized"),
        ("jeprof", "jemalloc"),
    ] {
        let (folder, file, totals) = exported(&log, format);
        assert_eq!(totals, [2, 1070, 2, 1070]);
        for (which, expected) in COLUMNS.into_iter().zip(totals) {
            let total = perl_total(reader, which, &file, folder.path());
            assert_eq!(total, expected as f64, "{reader} {format} {which}");
        }
    }
    let (folder, file, _) = exported(&log, "gperftools");
    let text = run(
        "go",
        &["tool", "pprof", "-top", "-unit=B", &file],
        folder.path(),
    );
    assert!(
        text.contains("accounting for 1070B, 100% of 1070B"),
        "{text}"
    );
}

/// Up to 8 bytes are one class of sizes, and may be eight times each other: their average says
/// nothing of how many they are.
#[test]
fn jeprof_counts_blocks_of_a_few_bytes() {
    for interval in [4096, 524_288] {
        let mut log = LogBuilder::new(interval);
        let stack = log.stack(&[0x1010, 0x1101]);
        for size in 1..=8 {
            for _ in 0..10 {
                log.alloc(stack, size);
            }
        }
        let (folder, file, totals) = exported(&log.end(), "jemalloc");
        let text = std::fs::read_to_string(&file).expect("the export");
        assert!(text.starts_with(&format!("heap_v2/{interval}\n")), "{text}");
        for (which, expected) in COLUMNS.into_iter().zip(totals) {
            let total = perl_total("jeprof", which, &file, folder.path());
            let off = (total - expected as f64).abs() / expected as f64;
            assert!(off < 0.01, "{which} at {interval}: {total}, not {expected}");
        }
    }
}
