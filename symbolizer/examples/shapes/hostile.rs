//! Logs that no program writes.

use std::io;
use std::path::{Path, PathBuf};

use heapprof_format::{Record, Segment, Stack, WalkEnd};

use crate::builder::{Builder, alone, module, write};

type Files = io::Result<Vec<PathBuf>>;

/// A log with a stack and a block.
fn small() -> Builder {
    let mut log = Builder::new();
    log.stack(0, vec![0x1000, 0x2000]);
    log.alloc(0, 0, 100);
    log
}

/// The header of a frame that is not whole: its checksum is none.
fn header(length: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&[0xf8, b'h', b'p', 0xff]);
    bytes[4..8].copy_from_slice(&(length.min(64 << 20) as u32).to_le_bytes());
    bytes[12] = 5;
    bytes
}

/// Each claims half of all.
pub(crate) fn damage(count: u64, folder: &Path) -> Files {
    let mut bytes = small().end();
    for _ in 0..count {
        bytes.extend_from_slice(&header(count * 8));
    }
    Ok(vec![write(folder, "input.heaplog", &bytes)?])
}

pub(crate) fn gaps(count: u64, folder: &Path) -> Files {
    let mut log = small();
    for _ in 0..count {
        log.alloc(0, 0, 100);
        log.flush();
        log.bytes.extend_from_slice(&header(count * 30));
    }
    Ok(vec![write(folder, "input.heaplog", &log.end())?])
}

pub(crate) fn holes(count: u64, folder: &Path) -> Files {
    let mut log = small();
    for _ in 0..count {
        log.alloc(0, 0, 100);
        log.flush();
        log.bytes.extend_from_slice(&[0; 300]);
    }
    Ok(vec![write(folder, "input.heaplog", &log.end())?])
}

fn one_stack(count: u64, folder: &Path, interrupted: Vec<u32>) -> Files {
    let mut log = Builder::new();
    log.record(&Record::Stack(Stack {
        number: 0,
        end: WalkEnd::Root,
        frames: (0..count).map(|frame| 0x1000 + frame).collect(),
        interrupted,
        labels: Vec::new(),
    }));
    log.alloc(0, 0, 100);
    alone(log, folder)
}

pub(crate) fn frames(count: u64, folder: &Path) -> Files {
    one_stack(count, folder, Vec::new())
}

pub(crate) fn interrupted(count: u64, folder: &Path) -> Files {
    one_stack(count, folder, (0..count as u32).rev().collect())
}

pub(crate) fn nested(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..count {
        let (start, len) = (0x10_0000 + i * 16, (2 * count - 2 * i) * 16);
        log.module(module(i as u32, format!("/srv/lib{i}.so"), start, len));
    }
    for i in 0..count {
        log.stack(i as u32, vec![0x100, 0x10_0000 + i * 32 + 1]);
        log.alloc(0, i as u32, 16);
    }
    alone(log, folder)
}

pub(crate) fn segments(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    let segment = |i: u64| Segment {
        start: 0x10_0000 + i * 0x1000,
        len: 0x800,
        file_offset: i * 0x1000,
        flags: 5,
    };
    let mut one = module(0, "/srv/server".into(), 0x10_0000, 0x800);
    one.segments = (0..count).map(segment).collect();
    log.module(one);
    for i in 0..count {
        log.stack(i as u32, vec![0x100, 0x10_0000 + i * 0x1000 + 16]);
        log.alloc(0, i as u32, 16);
    }
    // Twice: what is merged has the segments of both.
    let bytes = log.end();
    let names = ["input.heaplog", "other.heaplog"];
    names
        .map(|name| write(folder, name, &bytes))
        .into_iter()
        .collect()
}

/// The multiplier of `heapprof_core::NumberHasher`. Multiples of its inverse have hashes that are
/// small numbers, with equal upper bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn inverse(odd: u64) -> u64 {
    // By Newton: each turn doubles the bits that are right.
    (0..6).fold(odd, |found, _| {
        found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)))
    })
}

pub(crate) fn colliding(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    log.stack(0, vec![0x1000, 0x2000]);
    let step = inverse(MULTIPLIER);
    for i in 1..=count {
        log.alloc_as(i.wrapping_mul(step), 0, 0, 16);
    }
    alone(log, folder)
}
