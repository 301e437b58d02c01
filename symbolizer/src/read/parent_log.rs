//! Parent log: the blocks that a forked process has from its parent, read from the parent's log.
//!
//! A forked process has all blocks of its parent, but its log begins at the fork. Sample ids are
//! the same in both logs, so a free in the child finds the allocation in the parent. The reader
//! inserts the parent's stacks and allocations of the moment of the fork behind the first frame of
//! the child's log. They look as if the child had made them at its start, so other readers need no
//! special case.
//!
//! Not here: opening the parent's log (`input`).

use std::path::{Path, PathBuf};

use heapprof_core::NumberMap;
use heapprof_format::{
    Alloc, Encoder, FILE_HEADER_LEN, FORKED_AT, FRAME_HEADER_LEN, Module, PARENT_LOG, Reader,
    Record, Stack, Start, Thread,
};

use crate::model::fork_remark::AT_LEAST;
use crate::model::fork_remark::MISSING;
use crate::model::fork_remark::REMARK;
use crate::model::special_threads::BEFORE_THE_FORK;

/// Inherited stacks are numbered from here: a writer never comes so far.
const FIRST_STACK: u32 = 1 << 31;

/// And modules that were unloaded before the fork.
const FIRST_MODULE: u32 = 1 << 31;

/// These lie from here on, above all that a process may map: at their place there may be another by
/// now.
const SHELF: u64 = 1 << 47;
const PAGE: u64 = 4096;
/// No module is larger: what claims more is damage.
const LARGEST_MODULE: u64 = 1 << 40;

/// Bytes of a frame; it has a largest length, and a record of a deep stack takes kilobytes.
const FRAME_BYTES: usize = 1 << 20;

/// The log with what it inherited, or with a remark that this could not be found. `None`: it is not
/// the log of a forked process.
///
/// `open` opens the log at a path if it is that of the process that forked `start`'s.
pub(crate) fn joined<Log: AsRef<[u8]>>(
    child: &[u8],
    path: &Path,
    open: impl Fn(&Path, &Start) -> Option<Log>,
) -> Option<Vec<u8>> {
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
        let log = open(&place, &start)?;
        Some((place, log))
    });
    let remark = match &parent {
        Some((place, log)) => {
            let (mut past, live, is_complete) = in_use_at(log.as_ref(), forked_at);
            past.unload_all_but(&modules_at_start(child));
            let remark = format!(
                "{REMARK}{}{} samples in use then, from {}",
                if is_complete { "" } else { AT_LEAST },
                live.len(),
                place.display()
            );
            records.extend(inherited(&past, live));
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
    insert(child, &records)
}

/// Returns true if a log is the one that the log of `child` names by its number: another log may
/// stand at its place by now, or be planted there. A parent is older, so no log leads to itself.
pub(crate) fn is_parent(log: &[u8], child: &Start) -> bool {
    child.parent_log_number != 0
        && start_of(log).is_some_and(|start| {
            start.log_number == child.parent_log_number && start.monotonic_ns < child.monotonic_ns
        })
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

/// The state of the parent at the fork: its stacks and modules.
#[derive(Default)]
struct ParentState {
    stacks: NumberMap<u32, Stack>,
    /// When the first sample with a stack was taken.
    first_ns: NumberMap<u32, u64>,
    /// Modules, and when each was unloaded.
    modules: Vec<(Module, Option<u64>)>,
}

impl ParentState {
    fn took(&mut self, alloc: &Alloc) {
        self.first_ns.entry(alloc.stack).or_insert(alloc.time_ns);
    }

    fn unloaded(&mut self, number: u32, time_ns: u64) {
        let found = self.modules.iter_mut().rfind(|(m, _)| m.number == number);
        if let Some((_, gone)) = found {
            *gone = Some(time_ns);
        }
    }

    /// Modules that the child does not have at its start were unloaded before, though that may not
    /// have been noticed by then.
    fn unload_all_but(&mut self, there: &[Module]) {
        for (module, gone) in &mut self.modules {
            let is_there = there
                .iter()
                .any(|m| m.bias == module.bias && m.path == module.path);
            if !is_there && gone.is_none() {
                *gone = Some(u64::MAX);
            }
        }
    }

    /// The module that an address was in at a time, if the child does not have it: its index. (As
    /// `Profile::place` has it.)
    fn gone_module(&self, address: u64, time_ns: u64) -> Option<usize> {
        let contains = |module: &Module| {
            let mut segments = module.segments.iter();
            segments.any(|s| address.checked_sub(s.start).is_some_and(|at| at < s.len))
        };
        let all = self.modules.iter().enumerate();
        let mut candidates = all.filter(|(_, (module, _))| contains(module));
        let then = candidates.clone().rfind(|(_, (module, gone))| {
            module.time_ns <= time_ns && gone.is_none_or(|gone| time_ns <= gone)
        });
        let (index, _) = then.or_else(|| candidates.next_back())?;
        (!Self::is_there(&self.modules[index])).then_some(index)
    }

    /// Whether the child has that module where it is: it was neither unloaded, nor had by an
    /// ancestor alone.
    fn is_there((module, gone): &(Module, Option<u64>)) -> bool {
        gone.is_none() && module.number < FIRST_MODULE
    }
}

/// Modules of the parent that the child does not have, on their shelf.
struct Shelf {
    /// By how much each was moved, by its index.
    moved: NumberMap<usize, u64>,
    end: u64,
}

impl Shelf {
    /// By how much that module is moved. `records` gets it when it is new.
    fn place(&mut self, index: usize, module: &Module, records: &mut Vec<Record>) -> u64 {
        if let Some(&by) = self.moved.get(&index) {
            return by;
        }
        let start = module.segments.iter().map(|s| s.start).min().unwrap_or(0) & !(PAGE - 1);
        let ends = module
            .segments
            .iter()
            .map(|s| s.start.saturating_add(s.len));
        let length = ends.max().unwrap_or(0).saturating_sub(start);
        let has_room = length < LARGEST_MODULE && self.end < 2 * SHELF - LARGEST_MODULE;
        // None, too, where an ancestor's shelf has it at the same place.
        let by = if has_room {
            self.end.wrapping_sub(start)
        } else {
            0
        };
        if has_room {
            self.end += length.next_multiple_of(PAGE) + PAGE;
            let mut module = module.clone();
            module.number = FIRST_MODULE + self.moved.len() as u32;
            module.time_ns = 0;
            module.bias = module.bias.wrapping_add(by);
            for segment in &mut module.segments {
                segment.start = segment.start.wrapping_add(by);
            }
            records.push(Record::Module(module));
        }
        self.moved.insert(index, by);
        by
    }
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

/// The past of a log, its samples in use at a moment of the monotonic clock, and whether these are
/// all: of a log whose segments of that time are gone, only those are known that were in use later
/// as well.
fn in_use_at(log: &[u8], moment_ns: u64) -> (ParentState, Vec<Alloc>, bool) {
    let mut past = ParentState::default();
    let mut live: NumberMap<u64, Alloc> = NumberMap::default();
    let mut began = 0;
    let mut is_complete = true;
    let mut in_checkpoint = false;
    let Ok(mut reader) = Reader::new(log) else {
        return (past, Vec::new(), true);
    };
    loop {
        match reader.next_record() {
            Ok(Some(Record::Start(start))) => began = start.monotonic_ns,
            Ok(Some(Record::Stack(stack))) => {
                past.stacks.insert(stack.number, stack);
            }
            Ok(Some(Record::Module(module))) => {
                if began.saturating_add(module.time_ns) <= moment_ns {
                    past.modules.push((module, None));
                }
            }
            Ok(Some(Record::ModuleGone { module, time_ns })) => {
                if began.saturating_add(time_ns) <= moment_ns {
                    past.unloaded(module, time_ns);
                }
            }
            Ok(Some(Record::Checkpoint(checkpoint))) => {
                is_complete = began.saturating_add(checkpoint.time_ns) <= moment_ns;
                in_checkpoint = true;
            }
            Ok(Some(Record::CheckpointEnd { .. })) => in_checkpoint = false,
            Ok(Some(Record::Alloc(alloc))) if in_checkpoint => {
                if began.saturating_add(alloc.time_ns) <= moment_ns {
                    past.took(&alloc);
                    live.insert(alloc.id, alloc);
                }
            }
            Ok(Some(Record::Alloc(alloc))) => {
                if began.saturating_add(alloc.time_ns) > moment_ns {
                    break;
                }
                past.took(&alloc);
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
    (past, live, is_complete)
}

/// The records by which a child has those samples from its start on.
fn inherited(past: &ParentState, live: Vec<Alloc>) -> Vec<Record> {
    let mut records = Vec::new();
    let all_are_there = past.modules.iter().all(ParentState::is_there);
    let mut shelf = Shelf {
        moved: NumberMap::default(),
        end: SHELF,
    };
    let mut numbers: NumberMap<u32, u32> = NumberMap::default();
    for alloc in live {
        let next = FIRST_STACK + numbers.len() as u32;
        let number = *numbers.entry(alloc.stack).or_insert_with(|| {
            if let Some(stack) = past.stacks.get(&alloc.stack) {
                let mut stack = Stack {
                    number: next,
                    ..stack.clone()
                };
                let then = past.first_ns.get(&alloc.stack).copied().unwrap_or(0);
                let frames = stack.frames.iter_mut().filter(|_| !all_are_there);
                for (i, address) in frames.enumerate() {
                    // A call may be the last instruction of its module.
                    let call = address.saturating_sub(u64::from(i > 0));
                    if let Some(index) = past.gone_module(call, then) {
                        let by = shelf.place(index, &past.modules[index].0, &mut records);
                        *address = address.wrapping_add(by);
                    }
                }
                records.push(Record::Stack(stack));
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
