//! Growing parents: logs of ancestors that are still written, read in chunks.
//!
//! A file that is mapped and then cut short kills its reader. A server must not be killed so by
//! somebody's log. Also, the log of a parent may be longer than the memory that a server may take.
//! So each ancestor's log is read by position, up to the fork.
//!
//! A log that rotates has one segment that was written at the time of the fork. The checkpoint of
//! that segment has all blocks from before it.

use std::path::Path;

use heapprof_format::{Module, Record, Start};

use super::heritage::HeritageSink;
use super::{Fork, Log, is_remark_of_join, is_start_of_parent};
use crate::access::Access;
use crate::model::profile::LogAccount;
use crate::read::log::RecordSink;
use crate::read::segments;
use crate::read::tail::Tail;

/// Records before the first event, at most.
const MOST_AT_START: usize = 1 << 14;

/// The records that belong behind the first one of a forked process's log, as
/// [`inherited`](super::inherited) has them. `owner` owns the log.
pub(crate) fn inherited(
    start: Start,
    modules: Vec<Module>,
    path: &Path,
    owner: u32,
) -> Option<Vec<Record>> {
    super::inherited(start, modules, path, |place, child| {
        open(place, child, owner)
    })
}

/// Opens the log at the path, if it is that of the process that forked `child`'s.
fn open(path: &Path, child: &Start, owner: u32) -> Option<Tail> {
    let moment_ns = Fork::of(child.clone())?.at_ns;
    let mut best: Option<(u64, Tail)> = None;
    for candidate in segments::candidates(path, None) {
        let Ok(mut tail) = Tail::open(&candidate, candidate == path) else {
            continue;
        };
        if !Access::is_believed(tail.owner(), owner) {
            continue;
        }
        let head = Head::of(&mut tail);
        let Some(start) = head.start.filter(|start| is_start_of_parent(start, child)) else {
            continue;
        };
        let began_ns = start.monotonic_ns.saturating_add(head.checkpoint_ns);
        // The newest of those that began before the fork; else the oldest.
        let is_better = best.as_ref().is_none_or(|(known, _)| {
            match (began_ns <= moment_ns, *known <= moment_ns) {
                (true, true) => began_ns > *known,
                (is_before, was_before) => is_before || (!was_before && began_ns < *known),
            }
        });
        if is_better {
            best = Some((began_ns, tail));
        }
    }
    best.map(|(_, tail)| tail)
}

/// The records of a log up to its first event.
#[derive(Default)]
struct Head {
    records: usize,
    start: Option<Start>,
    is_joined: bool,
    checkpoint_ns: u64,
    modules: Vec<Module>,
    is_over: bool,
}

impl Head {
    fn of(tail: &mut Tail) -> Head {
        let mut head = Head::default();
        tail.rewind();
        // A log that cannot be read has no head.
        let _ = tail.read_on(&mut head);
        tail.rewind();
        head
    }
}

impl RecordSink for Head {
    fn take(&mut self, record: Record) {
        if self.has_enough() {
            return;
        }
        self.records += 1;
        match record {
            Record::Start(start) if self.records == 1 => self.start = Some(start),
            Record::Module(module) if module.time_ns == 0 => self.modules.push(module),
            Record::Checkpoint(checkpoint) if self.records == 2 => {
                self.checkpoint_ns = checkpoint.time_ns;
            }
            Record::Alloc(_) | Record::Free(_) => self.is_over = true,
            other => self.is_joined |= self.records == 2 && is_remark_of_join(&other),
        }
    }

    fn account(&mut self, _: LogAccount) {}

    fn has_enough(&self) -> bool {
        self.is_over || self.records >= MOST_AT_START
    }
}

impl Log for Tail {
    fn start(&mut self) -> Option<Start> {
        Head::of(self).start
    }

    fn is_joined(&mut self) -> bool {
        Head::of(self).is_joined
    }

    fn modules_at_start(&mut self) -> Vec<Module> {
        Head::of(self).modules
    }

    fn read(&mut self, sink: &mut HeritageSink<'_>) {
        self.rewind();
        let _ = self.read_on(sink);
    }
}
