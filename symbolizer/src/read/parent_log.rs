//! Parent log: the blocks that a forked process has from its parent, read from the parent's log.
//!
//! Glossary: parent log.
//!
//! A forked process has all blocks of its parent, but its log begins at the fork. Sample ids are
//! the same in both logs, so a free in the child finds the allocation in the parent. The reader
//! inserts the parent's stacks and allocations of the moment of the fork behind the first frame of
//! the child's log. They look as if the child had made them at its start, so other readers need no
//! special case.
//!
//! Not here: opening the parent's log (`input`).

pub(crate) mod growing;
mod heritage;

use std::path::{Path, PathBuf};

use heapprof_format::{
    Encoder, FILE_HEADER_LEN, FORKED_AT, FRAME_HEADER_LEN, Module, PARENT_LOG, Reader, Record,
    Start, Thread,
};

use crate::model::fork_remark::AT_LEAST;
use crate::model::fork_remark::MISSING;
use crate::model::fork_remark::REMARK;
use crate::model::special_threads::BEFORE_THE_FORK;
use crate::read::log::RecordSink as _;
use heritage::{Heritage, HeritageSink};

/// Bytes of a frame; it has a largest length, and a record of a deep stack takes kilobytes.
const FRAME_BYTES: usize = 1 << 20;

/// The log of an ancestor: its bytes, or a file that is read in chunks.
pub(crate) trait Log {
    /// The first record.
    fn start(&mut self) -> Option<Start>;

    /// Whether the join with its own parent's log was made already.
    fn is_joined(&mut self) -> bool;

    /// The modules that it begins with.
    fn modules_at_start(&mut self) -> Vec<Module>;

    /// Hands on its records, until the sink has enough.
    fn read(&mut self, sink: &mut HeritageSink<'_>);
}

impl<Bytes: AsRef<[u8]>> Log for Bytes {
    fn start(&mut self) -> Option<Start> {
        start_of((*self).as_ref())
    }

    fn is_joined(&mut self) -> bool {
        is_joined((*self).as_ref())
    }

    fn modules_at_start(&mut self) -> Vec<Module> {
        modules_at_start((*self).as_ref())
    }

    fn read(&mut self, sink: &mut HeritageSink<'_>) {
        let Ok(mut reader) = Reader::new((*self).as_ref()) else {
            return;
        };
        while !sink.has_enough() {
            match reader.next_record() {
                Ok(Some(record)) => sink.take(record),
                Ok(None) => break,
                Err(_) if reader.skip_damage().is_some() || reader.enter_cut_frame() => {}
                Err(_) => break,
            }
        }
    }
}

/// The log with what it inherited, or with a remark that this could not be found. `None`: it is not
/// the log of a forked process.
///
/// `open` opens the log at a path if it is that of the process that forked `start`'s.
pub(crate) fn joined<L: Log>(
    child: &[u8],
    path: &Path,
    open: impl Fn(&Path, &Start) -> Option<L>,
) -> Option<Vec<u8>> {
    let start = start_of(child)?;
    if is_joined(child) {
        return None; // it comes from a bundle
    }
    let records = inherited(start, modules_at_start(child), path, open)?;
    insert(child, &records)
}

/// The records that belong behind the first one of a forked process's log: what it inherited, or a
/// remark that this could not be found. `None`: it is not a forked process.
///
/// `modules` are those that the log begins with; `open` as in [`joined`].
pub(crate) fn inherited<L: Log>(
    start: Start,
    modules: Vec<Module>,
    path: &Path,
    open: impl Fn(&Path, &Start) -> Option<L>,
) -> Option<Vec<Record>> {
    let fork = Fork::of(start)?;
    let named = fork.parent.clone();
    let mut records = vec![Record::Thread(Thread {
        number: BEFORE_THE_FORK,
        tid: 0,
        name: "(before the fork)".into(),
    })];
    let ancestors = ancestors(fork, path, &open);
    let remark = match ancestors.first().map(|(_, place)| place.display()) {
        Some(parent) => {
            let heritage = heritage(&ancestors, modules, &open);
            let remark = format!(
                "{REMARK}{}{} samples in use then, from {parent}",
                if heritage.is_complete() { "" } else { AT_LEAST },
                heritage.samples(),
            );
            records.extend(heritage.records());
            remark
        }
        None => {
            let there = places(&named, path).find(|place| place.exists());
            let (place, why) = match &there {
                None => (&named, "is not here"),
                Some(place) => (place, "is another log, or another user's"),
            };
            format!("{REMARK}{MISSING}, because {} {why}", place.display())
        }
    };
    records.insert(
        0,
        Record::Marker {
            time_ns: 0,
            name: remark,
        },
    );
    Some(records)
}

/// A fork, as the child's log states it.
struct Fork {
    child: Start,
    /// The moment, by the monotonic clock.
    at_ns: u64,
    /// The parent's log, by the name that it had.
    parent: PathBuf,
}

impl Fork {
    fn of(child: Start) -> Option<Fork> {
        let setting = |name: &str| {
            let found = child.settings.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        let at_ns = setting(FORKED_AT)?.parse().ok()?;
        let parent = PathBuf::from(setting(PARENT_LOG)?);
        Some(Fork {
            child,
            at_ns,
            parent,
        })
    }
}

/// The forks that led to a process, its own first, and the path of each parent's log, as far as the
/// logs are there.
fn ancestors<L: Log>(
    fork: Fork,
    path: &Path,
    open: &impl Fn(&Path, &Start) -> Option<L>,
) -> Vec<(Fork, PathBuf)> {
    let mut ancestors = Vec::new();
    let (mut next, mut child) = (Some(fork), path.to_owned());
    while let Some(fork) = next.take() {
        let found = places(&fork.parent, &child).find_map(|place| {
            let mut log = open(&place, &fork.child)?;
            // A log that is joined already has all blocks from before it.
            let is_last = log.is_joined();
            let start = log.start().filter(|_| !is_last);
            Some((start.and_then(Fork::of), place))
        });
        if let Some((further, place)) = found {
            next = further;
            child.clone_from(&place);
            ancestors.push((fork, place));
        }
    }
    ancestors
}

/// The blocks that a process has from its ancestors. Their logs are read one after the other, the
/// first ancestor's first, each once and up to the fork that led to the next.
fn heritage<L: Log>(
    ancestors: &[(Fork, PathBuf)],
    modules: Vec<Module>,
    open: &impl Fn(&Path, &Start) -> Option<L>,
) -> Heritage {
    let mut heritage = Heritage::default();
    let mut modules = Some(modules);
    let mut log: Option<L> = None;
    let mut all = ancestors.iter().rev().peekable();
    while let Some((fork, place)) = all.next() {
        let Some(mut parent) = log.take().or_else(|| open(place, &fork.child)) else {
            // It was there a moment ago.
            heritage = Heritage::default();
            continue;
        };
        parent.read(&mut heritage.sink(fork.at_ns));
        match all.peek() {
            Some((next, place)) => {
                log = open(place, &next.child);
                let modules = log.as_mut().map(Log::modules_at_start);
                heritage.fork(modules.unwrap_or_default(), false);
            }
            None => heritage.fork(modules.take().unwrap_or_default(), true),
        }
    }
    heritage
}

/// Returns true if a log is the one that the log of `child` names by its number: another log may
/// stand at its place by now, or be planted there. A parent is older, so no log leads to itself.
pub(crate) fn is_parent(log: &[u8], child: &Start) -> bool {
    start_of(log).is_some_and(|start| is_start_of_parent(&start, child))
}

/// The same, of the first record of a log.
fn is_start_of_parent(start: &Start, child: &Start) -> bool {
    child.parent_log_number != 0
        && start.log_number == child.parent_log_number
        && start.monotonic_ns < child.monotonic_ns
}

/// The first record of a log.
pub(crate) fn start_of(log: &[u8]) -> Option<Start> {
    match Reader::new(log).ok()?.next_record() {
        Ok(Some(Record::Start(start))) => Some(start),
        _ => None,
    }
}

/// Returns true if the join was made already.
fn is_joined(log: &[u8]) -> bool {
    let second = Reader::new(log).ok().and_then(|mut reader| {
        reader.next_record().ok()?;
        reader.next_record().ok()?
    });
    matches!(second, Some(record) if is_remark_of_join(&record))
}

/// Returns true for the second record of a log if the join was made already.
pub(crate) fn is_remark_of_join(second: &Record) -> bool {
    matches!(second, Record::Marker { name, .. } if name.starts_with(REMARK))
}

/// Where the parent's log may be: where it was, or beside the child's.
fn places(named: &Path, child: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let beside = named.file_name().map(|name| child.with_file_name(name));
    [Some(named.to_owned()), beside].into_iter().flatten()
}

/// The modules that a log begins with.
fn modules_at_start(log: &[u8]) -> Vec<Module> {
    let mut modules = Vec::new();
    let Ok(mut reader) = Reader::new(log) else {
        return modules;
    };
    loop {
        match reader.next_record() {
            Ok(Some(Record::Module(module))) if module.time_ns == 0 => modules.push(module),
            Ok(Some(Record::Alloc(_) | Record::Free(_)) | None) | Err(_) => return modules,
            Ok(Some(_)) => {}
        }
    }
}

/// The log with records behind its first frame.
fn insert(log: &[u8], records: &[Record]) -> Option<Vec<u8>> {
    let length = log.get(FILE_HEADER_LEN + 4..FILE_HEADER_LEN + 8)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let (first, rest) = log.split_at_checked(FILE_HEADER_LEN + FRAME_HEADER_LEN + length)?;
    let mut joined = first.to_vec();
    let mut records = records.iter().peekable();
    while records.peek().is_some() {
        // Each is numbered as the log's first frame, so that none seems to be missing before the
        // second.
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
