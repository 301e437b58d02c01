//! Several processes of one server: their starts, the files they load, and where their logs are
//! put.

use std::path::Path;

use heapprof_format::{Module, Segment, Start};

use super::LogBuilder;

pub(crate) const S: u64 = 1_000_000_000;
/// 2026-01-01 00:00:00 UTC.
pub(crate) const NEW_YEAR: u64 = 1_767_225_600;

pub(crate) fn put(folder: &Path, name: &str, bytes: &[u8]) -> String {
    super::write(folder, name, bytes)
        .to_str()
        .unwrap()
        .to_owned()
}

/// The start of a process: of as many seconds after the new year as its pid, by either clock.
pub(crate) fn begin(pid: u32, interval: u64) -> Start {
    Start {
        program: "/bin/server".into(),
        args: vec!["server".into()],
        pid,
        log_number: pid.into(),
        wall_ns: NEW_YEAR * S + u64::from(pid) * S,
        monotonic_ns: u64::from(pid) * S,
        interval,
        library: "0.1.0".into(),
        ..Start::default()
    }
}

/// Files of the tests: server, libc, plugin; each of 0x1000 bytes, told by its build-id.
pub(crate) fn load(log: &mut LogBuilder, file: u8, start: u64) {
    let path = ["/bin/server", "/lib/libc.so.6", "/opt/plugin.so"][file as usize];
    log.module_record(Module {
        number: 0,
        time_ns: 0,
        path: path.into(),
        build_id: vec![0xab, file, 1, 2],
        stamp: None,
        bias: start,
        segments: vec![Segment {
            start,
            len: 0x1000,
            file_offset: 0,
            flags: 5,
        }],
    });
}

/// A process whose files are at those addresses, with allocations from all of them that follow
/// `seed`. Every third block is freed, and a quarter of those at once.
pub(crate) fn process(pid: u32, interval: u64, at: &[(u8, u64)], seed: u64) -> Vec<u8> {
    let mut log = LogBuilder::new(interval);
    log.begins(begin(pid, interval));
    for &(file, start) in at {
        load(&mut log, file, start);
    }
    let address = |file: u8, offset: u64| {
        let place = at.iter().find(|(known, _)| *known == file);
        place.map(|(_, start)| start + offset)
    };
    let mut stacks = Vec::new();
    for caller in 0..4u64 {
        for leaf in [1, 2u8] {
            let frames = [
                address(leaf, 0x101 + 16 * caller),
                address(0, 0x201 + 16 * (caller % 2)),
                address(0, 0x301),
            ];
            if let [Some(a), Some(b), Some(c)] = frames {
                // The innermost is where malloc is, and nobody's site.
                stacks.push(log.stack(&[c, a, b, c]));
            }
        }
    }
    let mut state = seed;
    for i in 0..400u64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let stack = stacks[(state >> 33) as usize % stacks.len()];
        let id = log.alloc(stack, 16 + (state >> 40) % 5000);
        if i % 3 == 0 {
            if i % 4 != 0 {
                log.wait(20_000_000);
            }
            log.free(id);
        }
    }
    log.end()
}

/// Three processes that have their files at different places, one of them where another has
/// another, and one file that not all have.
pub(crate) fn three(folder: &Path, intervals: [u64; 3]) -> [String; 3] {
    let places: [&[(u8, u64)]; 3] = [
        &[(0, 0x1000), (1, 0x5000)],
        &[(1, 0x1000), (0, 0x9000), (2, 0x5000)],
        &[(2, 0x1000), (1, 0x3000), (0, 0x5000)],
    ];
    [0, 1, 2].map(|i| {
        let log = process(10 + i as u32, intervals[i], places[i], i as u64 + 7);
        put(folder, &format!("{i}.heaplog"), &log)
    })
}
