//! Every command, on a log in which every text is one that a terminal would obey, and on an archive
//! whose members are called as files that nobody wants written.

use std::path::Path;
use std::process::Command;

use crate::common::{LogBuilder, heapprof, stderr, stdout, write};
use heapprof_format::{PageReading, PagesOfBlock, Record, Touch, is_harmless};
use heapprof_symbolizer::By;
use heapprof_symbolizer::export::Format;

const ESCAPES: &str = "x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\u{8}\u{7f}\u{202e}\u{2066}\u{200b}\u{61c}\u{feff}\u{e0041}";

fn hostile_log() -> Vec<u8> {
    let mut log = LogBuilder::new(1);
    log.start_of(&format!("/bin/{ESCAPES}"), 77, 1_767_225_600_000_000_000);
    log.module(&format!("/bin/{ESCAPES}"), 0x1000, 0x1000);
    log.thread(1, ESCAPES);
    let stack = log.stack(&[0x1010, 0x1021, 0x9999]);
    for _ in 0..20 {
        let id = log.alloc_by(1, stack, 100);
        log.alloc(stack, 50);
        log.free(id);
    }
    let id = log.alloc_by(1, stack, 100);
    log.record(|time_ns| {
        Record::Pages(PageReading {
            time_ns,
            is_last: true,
            blocks: vec![PagesOfBlock {
                id,
                touch: Touch::Resident,
                slab: None,
            }],
            addresses: Some(vec![0x10_0000]),
            ..PageReading::default()
        })
    });
    log.end()
}

/// Also with a symbol section, whose names nothing has to be found for.
fn hostile_dump(folder: &Path, log: &str) -> String {
    let plain = folder.join("plain.heap").display().to_string();
    let output = heapprof(&["export", "-f", "gperftools", "-o", &plain, log]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(&plain).expect("a dump");
    let symbols = format!(
        "--- symbol\nbinary=/bin/{ESCAPES}\n0x1010 {ESCAPES}\n0x1021 f{ESCAPES}\n0x1020 f{ESCAPES}\n---\n"
    );
    let dump = write(
        folder,
        "named.heap",
        (symbols.replace('\r', "") + &text).as_bytes(),
    );
    dump.display().to_string()
}

#[track_caller]
fn assert_harmless(args: &[&str]) {
    let output = heapprof(args);
    for (what, text) in [("output", stdout(&output)), ("errors", stderr(&output))] {
        let is_bad = |c: char| c != '\n' && !is_harmless(c);
        let bad = text.chars().find(|&c| is_bad(c));
        assert_eq!(bad, None, "{what} of {args:?}: {text:?}");
    }
    assert!(
        !output.stdout.is_empty() || !output.stderr.is_empty(),
        "{args:?} says nothing"
    );
}

#[test]
fn no_command_lets_a_name_speak_to_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "h.heaplog", &hostile_log())
        .display()
        .to_string();
    let dump = hostile_dump(folder.path(), &log);
    // In a block, behind it, and in the module.
    for form in [&[][..], &["--json"]] {
        assert_harmless(&[&["at", "0x100000,0x100100,0x1000", &log], form].concat());
    }
    for file in [&log, &dump] {
        for command in ["top", "tree", "info", "symbolize", "timeline"] {
            assert_harmless(&[command, file]);
        }
        for json in ["top", "tree"] {
            assert_harmless(&[json, "--json", file]);
        }
        for by in By::ALL {
            assert_harmless(&["top", "--by", by.name(), file]);
            assert_harmless(&["tree", "--by", by.name(), file]);
            assert_harmless(&["top", "--json", "--by", by.name(), file]);
        }
        for metric in ["peak", "lifetime", "heaptime"] {
            assert_harmless(&["top", "--metric", metric, file]);
        }
        for format in Format::ALL {
            if !format.is_binary() {
                assert_harmless(&["export", "-f", format.name(), file]);
            }
        }
        assert_harmless(&["diff", "--force", file, file]);
        assert_harmless(&["top", "--focus", "nothing at all", file]);
    }
    assert_harmless(&["diff", "--at", "start", "--at", "end", &log]);
    assert_harmless(&["diff", "--json", "--at", "start", "--at", "end", &log]);
    // A file's own name is a name, too.
    let odd = folder.path().join(format!("{ESCAPES}.heaplog"));
    std::fs::copy(&log, &odd).expect("Linux takes such names");
    let damaged = folder.path().join(format!("{ESCAPES}.damaged"));
    std::fs::write(&damaged, &hostile_log()[..200]).expect("a file");
    let missing = folder.path().join(format!("{ESCAPES}.missing"));
    for file in [&odd, &damaged, &missing] {
        for command in ["top", "info", "tree", "timeline", "symbolize"] {
            assert_harmless(&[command, &file.display().to_string()]);
        }
    }
    // Words of the command line come back in messages.
    assert_harmless(&["top", "--at", ESCAPES, &log]);
    assert_harmless(&["man", ESCAPES]);
}

/// An archive with the log under a good name, and members that want to be elsewhere.
#[test]
fn nothing_is_written_where_an_archive_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("in/deep");
    std::fs::create_dir_all(&inner).expect("a folder");
    let log = hostile_log();
    let mut tar: Vec<u8> = Vec::new();
    let mut add = |name: &str, kind: u8, data: &[u8]| {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        header[148..156].copy_from_slice(b"        ");
        header[156] = kind;
        if kind == b'2' {
            header[157..169].copy_from_slice(b"../../target");
        }
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&header);
        tar.extend_from_slice(data);
        tar.resize(tar.len().div_ceil(512) * 512, 0);
    };
    let evil = folder.path().join("absolute").display().to_string();
    add("h.heaplog", b'0', &log);
    add("../../evil", b'0', b"evil");
    add(&evil, b'0', b"evil");
    add("link", b'2', b"");
    add("link/through", b'0', b"evil");
    add("../h.heaplog.out", b'0', &log);
    tar.resize(tar.len() + 1024, 0);
    let archive = write(&inner, "b.tar", &tar);
    let before = tree_of(folder.path());
    for args in [
        &["top"][..],
        &["info"],
        &["symbolize"],
        &["tree"],
        &["timeline"],
        &["export", "-f", "json"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .args(args)
            .arg(&archive)
            .current_dir(&inner)
            .output()
            .expect("heapprof runs");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(tree_of(folder.path()), before);
    assert!(!Path::new(&evil).exists());
}

fn tree_of(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            found.push(path.display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A remark that names a file is one line, whatever the file is called.
#[test]
fn a_line_break_in_a_name_breaks_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "a\nb.heaplog", &hostile_log());
    let log = log.display().to_string();
    for args in [&["top", &log, &log][..], &["top", "no\nwhere.heaplog"]] {
        let said = stderr(&heapprof(args));
        assert!(said.contains("\\x0a"), "{said}");
        assert!(
            said.lines().all(|line| line.starts_with("heapprof: ")),
            "{said}"
        );
    }
}
