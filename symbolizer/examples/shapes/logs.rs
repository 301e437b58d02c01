//! Logs of honest programs, larger than most.

use std::io;
use std::path::{Path, PathBuf};

use heapprof_format::{Alloc, Checkpoint, Counter, Passed, Process, Record, Start, Sums};

use crate::builder::{Builder, alone, module, start};

type Files = io::Result<Vec<PathBuf>>;

/// As deep as the library records stacks.
const DEEPEST: u64 = 2048;

pub(crate) fn blocks(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for stack in 0..100 {
        log.stack(stack, vec![0x1000, 0x2000 + u64::from(stack)]);
    }
    for i in 0..count {
        let id = log.alloc(0, (i % 100) as u32, 16 + i % 1000);
        if i % 2 == 0 {
            log.free(id);
        }
    }
    alone(log, folder)
}

/// A stack through some of 200 modules of 1 MiB: all begin alike and end apart.
fn through_modules(number: u64, frames: u64) -> Vec<u64> {
    let address = |frame: u64| match frame {
        0 => 0x10_0000,
        frame if frame > frames / 2 => ((1 + frame % 200) << 20) | (0x100 + frame * 16),
        frame => ((1 + (number + frame) % 200) << 20) | ((number * 31 + frame * 7919) % 0xf_0000),
    };
    (0..frames).map(address).collect()
}

pub(crate) fn stacks(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..200 {
        log.module(module(
            i,
            format!("/srv/lib{i}.so"),
            u64::from(1 + i) << 20,
            1 << 20,
        ));
    }
    for i in 0..count {
        log.stack(i as u32, through_modules(i, 20));
        log.alloc(0, i as u32, 16 + i % 1000);
    }
    alone(log, folder)
}

pub(crate) fn deep(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..count {
        let frames = (0..DEEPEST)
            .map(|frame| 0x1000 + frame * 16 + i % 7)
            .collect();
        log.stack(i as u32, frames);
        log.alloc(0, i as u32, 16 + i % 1000);
    }
    alone(log, folder)
}

pub(crate) fn sizes(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..count {
        let stack = (i / 50) as u32;
        if i % 50 == 0 {
            log.stack(stack, vec![0x1000, 0x2000 + i]);
        }
        log.alloc(0, stack, 1 << (i % 40));
    }
    alone(log, folder)
}

pub(crate) fn threads(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    log.stack(0, vec![0x1000, 0x2000]);
    for i in 0..count as u32 {
        log.thread(i, 100 + i, &format!("worker {i}"));
        log.alloc(i, 0, 16);
    }
    alone(log, folder)
}

/// Threads come and go, and the counters are read again and again.
pub(crate) fn counters(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    log.stack(0, vec![0x1000, 0x2000]);
    for i in 0..count as u32 {
        log.thread(i, 100 + i, "worker");
        log.alloc(i, 0, 16);
        log.record(&Record::Counters {
            time_ns: log.time_ns,
            values: vec![
                (Counter::CountedThreads, u64::from(i) + 1),
                (Counter::CountedBytes, 16 * (u64::from(i) + 1)),
            ],
        });
    }
    alone(log, folder)
}

pub(crate) fn modules(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..count {
        let start = 0x10_0000 + i * 0x1000;
        log.module(module(i as u32, format!("/srv/lib{i}.so"), start, 0x1000));
        log.stack(i as u32, vec![0x100, start + 0x10, start + 0x20]);
        log.alloc(0, i as u32, 16);
    }
    alone(log, folder)
}

pub(crate) fn generations(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..count as u32 {
        log.module(module(i, "/srv/plugin.so".into(), 0x10_0000, 0x1_0000));
        log.stack(i, vec![0x100, 0x10_0010 + u64::from(i % 4096) * 8]);
        let id = log.alloc(0, i, 16);
        log.module_gone(i);
        // Nobody has the addresses now, and a walk met them all the same.
        log.stack(
            i + count as u32,
            vec![0x100, 0x10_0014 + u64::from(i % 4096) * 8],
        );
        log.free(id);
        log.alloc(0, i + count as u32, 16);
    }
    alone(log, folder)
}

pub(crate) fn movers(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..count {
        let start = 0x10_0000 + i % 64 * 0x1000 + i / 64 % 64 * 16;
        let path = format!("/srv/lib{i}.so");
        log.module(module(i as u32, path, start, 0x10_0000 + i % 1000 * 16));
        log.stack(i as u32, vec![0x100, start + 0x8_0000, start + 0x20]);
        log.alloc(0, i as u32, 16);
        log.module_gone(i as u32);
    }
    alone(log, folder)
}

pub(crate) fn markers(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    log.stack(0, vec![0x1000, 0x2000]);
    for i in 0..count {
        log.alloc(0, 0, 16);
        let time_ns = log.time_ns;
        let name = format!("request {i}");
        log.record(&Record::Marker { time_ns, name });
    }
    alone(log, folder)
}

pub(crate) fn regimes(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    for i in 0..count {
        log.interval = 4096 + i;
        let (time_ns, interval, by_budget) = (log.time_ns, log.interval, true);
        log.record(&Record::Regime {
            time_ns,
            interval,
            by_budget,
        });
        log.stack(i as u32, vec![0x1000, 0x2000 + i * 8]);
        log.alloc(0, i as u32, 100);
    }
    alone(log, folder)
}

pub(crate) fn stops(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    log.stack(0, vec![0x1000, 0x2000]);
    for _ in 0..count {
        log.alloc(0, 0, 100);
        for interval in [0, 1] {
            let (time_ns, by_budget) = (log.time_ns, false);
            log.record(&Record::Regime {
                time_ns,
                interval,
                by_budget,
            });
            log.time_ns += 1000;
        }
    }
    alone(log, folder)
}

/// Two logs: what they have in common is told of both.
pub(crate) fn settings(count: u64, folder: &Path) -> Files {
    let of = |pid: u32| {
        let settings = (0..count).map(|i| (format!("SETTING_{i}"), "1".into()));
        let mut log = Builder::of(Start {
            settings: settings.collect(),
            ..start(pid, 1000 + u64::from(pid))
        });
        log.stack(0, vec![0x1000, 0x2000]);
        log.alloc(0, 0, 100);
        log
    };
    let names = [(1, "input.heaplog"), (2, "other.heaplog")];
    names
        .map(|(pid, name)| of(pid).write(folder, name))
        .into_iter()
        .collect()
}

pub(crate) fn checkpoint(count: u64, folder: &Path) -> Files {
    let mut log = Builder::bare(start(77, 1000));
    log.record(&Record::Checkpoint(Checkpoint {
        segment: 9,
        time_ns: 1_000_000,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    for stack in 0..count as u32 {
        log.stack(stack, vec![0x1000, 0x2000 + u64::from(stack) * 8]);
    }
    for stack in 0..count as u32 {
        log.record(&Record::Passed(Passed {
            stack,
            class: 5,
            first_ns: 1000,
            sums: Sums {
                samples: 1,
                fixed: [1 << 32, 100 << 32, 0, 0],
            },
        }));
    }
    for id in 0..count {
        log.record(&Record::Alloc(Alloc {
            time_ns: 1000 + id,
            thread: 0,
            id,
            size: 100,
            slack: 0,
            stack: id as u32,
            interval: 1,
        }));
    }
    log.flush();
    log.record(&Record::CheckpointEnd { time_ns: 1_000_000 });
    log.time_ns = 2_000_000;
    alone(log, folder)
}

pub(crate) fn rotations(count: u64, folder: &Path) -> Files {
    let mut all = Builder::new();
    all.stack(0, vec![0x1000, 0x2000]);
    let mut bytes = Vec::new();
    for segment in 2..=count as u32 + 1 {
        all.alloc(0, 0, 100);
        all.flush();
        bytes.append(&mut all.bytes);
        // A further segment: the start of the same run, and a checkpoint of the next number.
        let time_ns = all.time_ns;
        all = Builder::bare(start(77, 1000));
        all.time_ns = time_ns;
        all.record(&Record::Checkpoint(Checkpoint {
            segment,
            time_ns,
            intervals: (1, 1),
            ..Checkpoint::default()
        }));
        all.record(&Record::CheckpointEnd { time_ns });
    }
    bytes.append(&mut all.bytes);
    all.bytes = bytes;
    alone(all, folder)
}

fn joined(count: u64, folder: &Path, of: impl Fn(u32) -> Process) -> Files {
    let mut log = Builder::bare(start(0, 1000));
    for i in 0..count as u32 {
        log.record(&Record::Process(Process {
            file: format!("server.{i}.heaplog"),
            duration_ns: 1_000_000,
            is_whole: true,
            intervals: (1, 1),
            threads: (i, 1),
            ..of(i)
        }));
    }
    log.stack(0, vec![0x1000, 0x2000]);
    for i in 0..count as u32 {
        log.thread(i, 100 + i, "main");
        log.alloc(i, 0, 16);
    }
    alone(log, folder)
}

pub(crate) fn processes(count: u64, folder: &Path) -> Files {
    joined(count, folder, |i| Process {
        // Numbers of processes are used again.
        start: start(1 + i % 1000, 1000 + u64::from(i)),
        ..Process::default()
    })
}

pub(crate) fn orphans(count: u64, folder: &Path) -> Files {
    joined(count, folder, |i| Process {
        start: Start {
            forked_from: 1_000_000 + i,
            ..start(1 + i, 1000 + u64::from(i))
        },
        fork_remark: "forked: what was in use then is missing, because parent.heaplog is not here"
            .into(),
        ..Process::default()
    })
}
