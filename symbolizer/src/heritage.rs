//! Heritage: what a forked process had from its parent.
//!
//! A child of fork has all that its parent had in use, but its log begins at the fork: the parent's log holds
//! the rest. Ids of samples are the same in both, so what the child later frees finds its allocation there. The two
//! are joined by putting, behind the child's first frame, the stacks and allocations that were in use in the parent at
//! the moment of the fork, as if the child had made them at its start. Whatever reads the log then need
//! not know of any of this.

use std::path::{Path, PathBuf};

use heapprof_core::NumberMap;
use heapprof_format::{
    Alloc, Encoder, FILE_HEADER_LEN, FORKED_AT, FRAME_HEADER_LEN, PARENT_LOG, Reader, Record,
    Stack, Start, Thread,
};

use crate::input::Input;
use crate::run::Run;

/// Number of the thread that inherited blocks are said to come from.
const BEFORE_THE_FORK: u32 = u32::MAX;

/// How the remark that is put before them begins.
const REMARK: &str = "forked: ";

/// How it goes on where they could not be found, and where not all of them could.
const MISSING: &str = "what was in use then is missing";
const AT_LEAST: &str = "at least ";

/// Inherited stacks are numbered from here: a writer never comes so far.
const FIRST_STACK: u32 = 1 << 31;

/// Bytes of a frame; it has a largest length, and a record of a deep stack takes kilobytes.
const FRAME_BYTES: usize = 1 << 20;

/// Whether a block is one that a forked process had from its parent.
pub(crate) fn is_inherited(alloc: &Alloc) -> bool {
    alloc.thread == BEFORE_THE_FORK
}

/// The log with what it inherited, or with a remark that this could not be found. `None`: it is not the log
/// of a forked process.
pub(crate) fn joined(child: &[u8], path: &Path) -> Option<Vec<u8>> {
    let start = start_of(child)?;
    if is_joined(child) {
        return None; // it comes from a bundle
    }
    let setting = |name: &str| {
        let found = start.settings.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    let forked_at: u64 = setting(FORKED_AT)?.parse().ok()?;
    let named = PathBuf::from(setting(PARENT_LOG)?);

    let mut records = vec![Record::Thread(Thread {
        number: BEFORE_THE_FORK,
        tid: 0,
        name: "(before the fork)".into(),
    })];
    let parent = places(&named, path).find_map(|place| {
        let input = Input::open_parent(&place, &start).ok().flatten()?;
        Some((place, input))
    });
    let remark = match &parent {
        Some((place, input)) => {
            let (stacks, live, is_complete) = in_use_at(input.bytes(), forked_at);
            let remark = format!(
                "{REMARK}{}{} samples in use then, from {}",
                if is_complete { "" } else { AT_LEAST },
                live.len(),
                place.display()
            );
            records.extend(inherited(&stacks, live));
            remark
        }
        None => format!("{REMARK}{MISSING}, because {} is not here", named.display()),
    };
    records.insert(
        0,
        Record::Marker {
            time_ns: 0,
            name: remark,
        },
    );
    insert(child, &records)
}

/// What of it a run's numbers lack, in words; `None`: nothing, or it was not forked.
pub(crate) fn missing_from(run: &Run) -> Option<String> {
    let first = run.markers.first().filter(|_| run.forked_from != 0)?;
    let remark = first.name.strip_prefix(REMARK)?;
    let parent = run.forked_from;
    if remark.starts_with(MISSING) {
        Some(format!("forked from pid {parent}: {remark}"))
    } else if remark.starts_with(AT_LEAST) {
        Some(format!(
            "forked from pid {parent}: {remark}; it no longer has the segments of that time, so what was freed since is missing"
        ))
    } else {
        None
    }
}

/// Whether a run begins with blocks that the process had from its parent, all of them at time 0.
pub(crate) fn begins_with_heritage(run: &Run) -> bool {
    let first = run.markers.first().filter(|_| run.forked_from != 0);
    first.is_some_and(|first| first.name.starts_with(REMARK)) && run.checkpoint.is_none()
}

/// Whether a log is that of the process which `child` was forked from. Another's may stand at its place by now; and as a parent is the
/// older of the two, no log leads to itself.
pub(crate) fn is_parent(log: &[u8], child: &Start) -> bool {
    start_of(log).is_some_and(|start| {
        start.pid == child.forked_from
            && start.monotonic_ns < child.monotonic_ns
            && file_of(&start.program) == file_of(&child.program)
    })
}

/// The name of a program's file, which may have been replaced, or be elsewhere under another root.
fn file_of(program: &str) -> &str {
    let path = program.strip_suffix(" (deleted)").unwrap_or(program);
    path.rsplit('/').next().unwrap_or(path)
}

/// The first record of a log.
pub(crate) fn start_of(log: &[u8]) -> Option<Start> {
    match Reader::new(log).ok()?.next_record() {
        Ok(Some(Record::Start(start))) => Some(start),
        _ => None,
    }
}

/// Whether the join was made already.
fn is_joined(log: &[u8]) -> bool {
    let second = Reader::new(log).ok().and_then(|mut reader| {
        reader.next_record().ok()?;
        reader.next_record().ok()?
    });
    matches!(second, Some(Record::Marker { name, .. }) if name.starts_with(REMARK))
}

/// Where the parent's log may be: where it was, or beside the child's.
fn places(named: &Path, child: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = named.file_name().map(|name| child.with_file_name(name));
    [Some(named.to_owned()), beside].into_iter().flatten()
}

/// The stacks of a log, its samples in use at a moment of the monotonic clock, and whether these are all: of a
/// log whose segments of that time are gone, only those are known that were in use later as well.
fn in_use_at(log: &[u8], moment_ns: u64) -> (NumberMap<u32, Stack>, Vec<Alloc>, bool) {
    let mut stacks = NumberMap::default();
    let mut live: NumberMap<u64, Alloc> = NumberMap::default();
    let mut began = 0;
    let mut is_complete = true;
    let mut in_checkpoint = false;
    let Ok(mut reader) = Reader::new(log) else {
        return (stacks, Vec::new(), true);
    };
    loop {
        match reader.next_record() {
            Ok(Some(Record::Start(start))) => began = start.monotonic_ns,
            Ok(Some(Record::Stack(stack))) => {
                stacks.insert(stack.number, stack);
            }
            Ok(Some(Record::Checkpoint(checkpoint))) => {
                is_complete = began.saturating_add(checkpoint.time_ns) <= moment_ns;
                in_checkpoint = true;
            }
            Ok(Some(Record::CheckpointEnd { .. })) => in_checkpoint = false,
            Ok(Some(Record::Alloc(alloc))) if in_checkpoint => {
                if began.saturating_add(alloc.time_ns) <= moment_ns {
                    live.insert(alloc.id, alloc);
                }
            }
            Ok(Some(Record::Alloc(alloc))) => {
                if began.saturating_add(alloc.time_ns) > moment_ns {
                    break;
                }
                live.insert(alloc.id, alloc);
            }
            Ok(Some(Record::Free(free))) if in_checkpoint => {
                if began.saturating_add(free.time_ns) <= moment_ns {
                    live.remove(&free.id);
                }
            }
            Ok(Some(Record::Free(free))) => {
                if began.saturating_add(free.time_ns) > moment_ns {
                    break;
                }
                live.remove(&free.id);
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) if reader.skip_damage().is_some() => {}
            Err(_) => break,
        }
    }
    let mut live: Vec<Alloc> = live.into_values().collect();
    live.sort_by_key(|alloc| alloc.id);
    (stacks, live, is_complete)
}

/// The records by which a child has those samples from its start on.
fn inherited(stacks: &NumberMap<u32, Stack>, live: Vec<Alloc>) -> Vec<Record> {
    let mut records = Vec::new();
    let mut numbers: NumberMap<u32, u32> = NumberMap::default();
    for alloc in live {
        let next = FIRST_STACK + numbers.len() as u32;
        let number = *numbers.entry(alloc.stack).or_insert_with(|| {
            if let Some(stack) = stacks.get(&alloc.stack) {
                records.push(Record::Stack(Stack {
                    number: next,
                    ..stack.clone()
                }));
            }
            next
        });
        records.push(Record::Alloc(Alloc {
            time_ns: 0,
            thread: BEFORE_THE_FORK,
            stack: number,
            ..alloc
        }));
    }
    records
}

/// The log with records behind its first frame.
fn insert(log: &[u8], records: &[Record]) -> Option<Vec<u8>> {
    let length = log.get(FILE_HEADER_LEN + 4..FILE_HEADER_LEN + 8)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let (first, rest) = log.split_at_checked(FILE_HEADER_LEN + FRAME_HEADER_LEN + length)?;
    let mut joined = first.to_vec();
    let mut records = records.iter().peekable();
    while records.peek().is_some() {
        // Each is numbered as the log's first frame, so that none seems to be missing before the second.
        let mut encoder = Encoder::new();
        while encoder.pending() < FRAME_BYTES
            && let Some(record) = records.next()
        {
            encoder.record(record);
        }
        joined.extend_from_slice(encoder.finish());
    }
    joined.extend_from_slice(rest);
    Some(joined)
}
