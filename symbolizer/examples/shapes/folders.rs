//! Several files: of processes that belong together, or of one that was dumped again and again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heapprof_format::{Checkpoint, FORKED_AT, PARENT_LOG, Record, Start};

use crate::builder::{Builder, module, start, write};

type Files = io::Result<Vec<PathBuf>>;

/// The start of a process that was forked from that one, whose log has that name.
fn forked(child: Start, parent: &Start, log: &Path) -> Start {
    let at = child.monotonic_ns - 1;
    Start {
        forked_from: parent.pid,
        parent_log_number: parent.log_number,
        settings: vec![
            (FORKED_AT.into(), at.to_string()),
            (PARENT_LOG.into(), log.display().to_string()),
        ],
        ..child
    }
}

/// A log of one stack and one block.
fn small(start: Start, id: u64) -> Builder {
    let mut log = Builder::of(start);
    log.stack(0, vec![0x1000, 0x2000 + id * 16]);
    log.alloc_as(id, 0, 0, 16);
    log
}

/// The last of them, which has a block of each.
pub(crate) fn chain(count: u64, folder: &Path) -> Files {
    let mut last = PathBuf::new();
    for i in 0..count {
        let pid = 1000 + i as u32;
        let own = start(pid, 1000 + i);
        let own = match i {
            0 => own,
            _ => forked(own, &start(pid - 1, 1000 + i - 1), &last),
        };
        last = small(own, 1 + i).write(folder, &format!("{i}.heaplog"))?;
    }
    Ok(vec![last])
}

/// The parent's log, and those of its children.
pub(crate) fn children(count: u64, folder: &Path) -> Files {
    let mut files = Vec::new();
    let parent = folder.join("server.heaplog");
    files.push(small(start(77, 1000), 1).write(folder, "server.heaplog")?);
    for i in 0..count {
        let own = forked(start(100 + i as u32, 2000 + i), &start(77, 1000), &parent);
        files.push(small(own, 2 + i).write(folder, &format!("server_{i}.heaplog"))?);
    }
    Ok(files)
}

/// In each container, process 1 forks process 7.
pub(crate) fn containers(count: u64, folder: &Path) -> Files {
    let mut files = Vec::new();
    for i in 0..count / 2 {
        let parent = folder.join(format!("{i}.heaplog"));
        files.push(small(start(1, 1000 + i * 3), 1).write(folder, &format!("{i}.heaplog"))?);
        let own = forked(start(7, 1001 + i * 3), &start(1, 1000 + i * 3), &parent);
        files.push(small(own, 2).write(folder, &format!("{i}_7.heaplog"))?);
    }
    Ok(files)
}

fn rotates(pid: u32, seconds: u64) -> Start {
    Start {
        settings: vec![("HEAPPROF_MAX_LOG".into(), "1M".into())],
        ..start(pid, seconds)
    }
}

pub(crate) fn rotating(count: u64, folder: &Path) -> Files {
    let of = |i: u64| {
        let log = small(rotates(1 + i as u32, 1000 + i), 1);
        log.write(folder, &format!("server_{i}.heaplog"))
    };
    (0..count).map(of).collect()
}

/// The newest segment; the others lie beside it.
pub(crate) fn newest(count: u64, folder: &Path) -> Files {
    let (mut time_ns, mut last) = (0, PathBuf::new());
    for segment in 1..=count as u32 {
        let mut log = Builder::bare(rotates(77, 1000));
        log.time_ns = time_ns;
        if segment > 1 {
            log.record(&Record::Checkpoint(Checkpoint {
                segment,
                time_ns,
                intervals: (1, 1),
                ..Checkpoint::default()
            }));
            log.record(&Record::CheckpointEnd { time_ns });
        }
        log.stack(segment, vec![0x1000, 0x2000 + u64::from(segment)]);
        log.alloc_as(segment.into(), 0, segment, 100);
        time_ns = log.time_ns;
        last = log.write(folder, &format!("server.{segment:04}.heaplog"))?;
    }
    let newest = folder.join("server.heaplog");
    fs::rename(last, &newest)?;
    Ok(vec![newest])
}

/// The child's log.
pub(crate) fn unloaded(count: u64, folder: &Path) -> Files {
    let mut log = Builder::of(start(77, 1000));
    for i in 0..count {
        let start = 0x10_0000 + i * 0x1000;
        log.module(module(i as u32, format!("/srv/lib{i}.so"), start, 0x1000));
        log.stack(i as u32, vec![0x100, start + 0x10, start + 0x20]);
        log.alloc(0, i as u32, 16);
    }
    for i in 0..count {
        log.module_gone(i as u32);
    }
    let parent = log.write(folder, "server.heaplog")?;
    let child = small(forked(start(100, 2000), &start(77, 1000), &parent), 1 << 40);
    Ok(vec![child.write(folder, "server_100.heaplog")?])
}

pub(crate) fn pair(count: u64, folder: &Path) -> Files {
    let of = |build: u64, name: &str| {
        let mut log = Builder::of(start(77, 1000 + build));
        for i in 0..count {
            log.interval = 4096 + i;
            let (time_ns, interval, by_budget) = (log.time_ns, log.interval, true);
            log.record(&Record::Regime {
                time_ns,
                interval,
                by_budget,
            });
            let at = 0x10_0000 + i * 0x1000;
            let mut one = module(i as u32, format!("/srv/lib{i}.so"), at, 0x1000);
            one.build_id.push(build as u8);
            log.module(one);
            log.stack(i as u32, vec![0x100, at + 0x10, at + 0x20]);
            log.alloc(0, i as u32, 16);
        }
        log.write(folder, name)
    };
    Ok(vec![of(1, "input.heaplog")?, of(2, "other.heaplog")?])
}

/// Ten processes, so that what is many are the modules.
pub(crate) fn machines(count: u64, folder: &Path) -> Files {
    let of = |pid: u64| {
        let mut log = Builder::of(start(pid as u32, 1000 + pid));
        for i in 0..count / 10 {
            let at = 0x10_0000 + pid * 0x400 + (i * 7919 + pid * 31) % (count / 10) * 0x2000;
            let mut one = module(i as u32, format!("/srv/lib{i}.so"), at, 0x1000);
            if i % 2 == 0 {
                one.build_id.clear();
            }
            log.module(one);
            log.stack(i as u32, vec![0x100, at + 0x10, at + 0x20]);
            log.alloc(0, i as u32, 16);
        }
        log.write(folder, &format!("server_{pid}.heaplog"))
    };
    (1..=10).map(of).collect()
}

pub(crate) fn dumps(count: u64, folder: &Path) -> Files {
    let of = |i: u64| {
        let text = format!(
            "heap profile: 1: 100 [1: 101] @ heapprofile\n# program: /srv/server\n# pid: {}\n1: 100 [1: 100] @ 0x1000 0x{:x}\n\n\
             MAPPED_LIBRARIES:\n",
            1 + i,
            0x2000 + i
        );
        write(folder, &format!("server.{i:06}.heap"), text.as_bytes())
    };
    (0..count).map(of).collect()
}
