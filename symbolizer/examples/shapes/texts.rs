//! Profiles that are text: dumps, jemalloc's own, and perf maps.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::builder::{Builder, alone, write};

type Files = io::Result<Vec<PathBuf>>;

fn alone_text(folder: &Path, text: &str) -> Files {
    Ok(vec![write(folder, "input.heap", text.as_bytes())?])
}

/// The head and the lines of a dump, a stack each.
fn account(count: u64, frame: impl Fn(u64) -> u64) -> String {
    let (bytes, more) = (count * 100, count * 100 + 1);
    let mut text = format!("heap profile: {count}: {bytes} [{count}: {more}] @ heapprofile\n");
    for i in 0..count {
        let _ = writeln!(text, "1: 100 [1: 100] @ 0x1000 0x{:x}", frame(i));
    }
    text
}

pub(crate) fn lines(count: u64, folder: &Path) -> Files {
    let mut text = account(count, |i| 0x10_0000 + i * 16);
    text.push_str("\nMAPPED_LIBRARIES:\n10000-7fffffffffff r-xp 00000000 08:01 7 /srv/server\n");
    alone_text(folder, &text)
}

pub(crate) fn mappings(count: u64, folder: &Path) -> Files {
    let mut text = account(count, |i| 0x100_0000 + i * 16);
    text.push_str("\nMAPPED_LIBRARIES:\n");
    for i in 0..count {
        let end = 0x200_0000 + i * 0x1000;
        let _ = writeln!(text, "10000-{end:x} r-xp 00000000 08:01 {i} /srv/lib{i}.so");
    }
    alone_text(folder, &text)
}

/// Half of them have only the short form, half of the others only the path in common.
pub(crate) fn identified(count: u64, folder: &Path) -> Files {
    let mut text = account(count, |i| 0x100_0000 + i * 0x1000);
    text.push_str("\nMAPPED_LIBRARIES:\n");
    for i in 0..count {
        let start = 0x100_0000 + i * 0x1000;
        let end = start + 0x1000;
        let _ = writeln!(
            text,
            "0x{start:x}-0x{end:x}: /srv/lib{i}.so (@00000000) {i:016x}"
        );
        match i % 4 {
            0 => {
                _ = writeln!(
                    text,
                    "{start:x}-{end:x} r-xp 00000000 08:01 {i} /srv/lib{i}.so"
                )
            }
            1 => {
                _ = writeln!(
                    text,
                    "{start:x}-{:x} r-xp 00000000 08:01 {i} /srv/lib{i}.so",
                    end - 16
                )
            }
            _ => {}
        }
    }
    alone_text(folder, &text)
}

pub(crate) fn symbols(count: u64, folder: &Path) -> Files {
    let mut text = String::from("--- symbol\nbinary=/srv/server\n");
    for i in 0..count {
        let _ = writeln!(text, "0x{:x} function_{i}--inlined_{i}", 0x10_0000 + i * 16);
    }
    text.push_str("---\n");
    text.push_str(&account(count, |i| 0x10_0000 + i * 16));
    text.push_str("\nMAPPED_LIBRARIES:\n10000-7fffffffffff r-xp 00000000 08:01 7 /srv/server\n");
    alone_text(folder, &text)
}

pub(crate) fn dashes(count: u64, folder: &Path) -> Files {
    // Read back, ` -` is what a dash that was kept apart from the one before it looks like.
    let name = "- ".repeat(count as usize / 2);
    let mut text = format!("--- symbol\nbinary=/srv/server\n0x100000 operator{name}\n---\n");
    text.push_str(&account(1, |_| 0x10_0000));
    text.push_str("\nMAPPED_LIBRARIES:\n10000-7fffffffffff r-xp 00000000 08:01 7 /srv/server\n");
    alone_text(folder, &text)
}

pub(crate) fn jemalloc_threads(count: u64, folder: &Path) -> Files {
    let mut text = format!("heap_v2/524288\n  t*: {count}: {} [0: 0]\n", count * 100);
    for i in 0..count {
        let _ = writeln!(text, "  t{i}: 1: 100 [0: 0] worker {i}");
    }
    let _ = writeln!(
        text,
        "@ 0x1000 0x2000\n  t*: {count}: {} [0: 0]",
        count * 100
    );
    for i in 0..count {
        let _ = writeln!(text, "  t{i}: 1: 100 [0: 0]");
    }
    text.push_str("\nMAPPED_LIBRARIES:\n");
    alone_text(folder, &text)
}

pub(crate) fn jemalloc_stacks(count: u64, folder: &Path) -> Files {
    let mut text = format!("heap_v2/524288\n  t*: {count}: {} [0: 0]\n", count * 100);
    let _ = writeln!(text, "  t0: {count}: {} [0: 0] main", count * 100);
    for i in 0..count {
        let _ = writeln!(
            text,
            "@ 0x1000 0x{:x}\n  t*: 1: 100 [0: 0]\n  t0: 1: 100 [0: 0]",
            0x2000 + i
        );
    }
    text.push_str("\nMAPPED_LIBRARIES:\n");
    alone_text(folder, &text)
}

/// The map is given by an option: `--perf-map FOLDER/perf.map`.
pub(crate) fn perf_map(count: u64, folder: &Path) -> Files {
    let mut map = String::new();
    for i in 0..count {
        let _ = writeln!(
            map,
            "{:x} {:x} function_{i}",
            0x10_0000 + i * 16,
            16 + i % 64 * 1000
        );
    }
    write(folder, "perf.map", map.as_bytes())?;
    let mut log = Builder::new();
    for i in 0..count {
        log.stack(i as u32, vec![0x1000, 0x10_0005 + i * 16]);
        log.alloc(0, i as u32, 16);
    }
    alone(log, folder)
}
