//! Join: the logs of several processes, written as one log, as if all were one process with one
//! heap.
//!
//! ```text
//!  log of process 1  ─┐                                  clock: the wall's, from the first start
//!  log of process 2  ─┼─> records in the order of time   addresses: moved, each file lies once
//!  log of process 3  ─┘                                  stacks, threads, ids: numbered anew
//! ```
//!
//! So every question about one log can be asked about all of them together: what was in use at a
//! moment, when the most was. A process that ends frees its blocks at that moment, by a thread of
//! that name. The blocks of the processes that end last stay in use, as they do in their own logs.
//! So do those of a process whose log has no end, because it may still run.
//!
//! A log that rotated begins with a checkpoint. Before the last of these checkpoints not everything
//! is known of each process, so the joined log begins with a checkpoint of all of them there. Its
//! coarse history is joined from those of the logs (`past`).
//!
//! Each log is read twice: once for its stacks, modules and end, once for its events. Memory is
//! needed for blocks in use and for stacks.
//!
//! Imports: `resolve`, `model`, `read`, `analysis` (merging stacks and modules).
//!
//! Circle: `writing`, `mappings`, `pages`: the latter two keep what they add to the written log.
//!
//! Not here: choosing which logs are joined (`cli::inputs`).

mod before;
mod mappings;
mod member;
mod pages;
mod past;
mod writing;

use std::io::{self, Write};

use heapprof_core::{BlockMap, NumberMap};
use heapprof_format::{ReadError, Reader, Record};

use crate::analysis::merge::Merge;
use crate::model::profile::LogAccount;
use crate::model::special_threads::BEFORE_THE_FORK;
use crate::read::fold::Fold;
use crate::read::log::{Records, each_record};
use crate::read::parent_log::start_of;
use before::BeforeDetail;
use member::Member;
use writing::Writing;

/// Why a log cannot be joined with others.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its first record is lost.
    #[error("its beginning is damaged, and with it when the process began")]
    NoStart,
    /// It is a join itself.
    #[error("it was joined from several logs already; name these instead")]
    Joined,
}

/// Returns true if a log was joined from several.
pub(crate) fn is_join(log: &[u8]) -> bool {
    let second = Reader::new(log).ok().and_then(|mut reader| {
        reader.next_record().ok()??;
        reader.next_record().ok()?
    });
    matches!(second, Some(Record::Process(_)))
}

/// The logs that are to be joined. See the module's text.
#[derive(Default)]
pub struct Join<'a> {
    members: Vec<Member<'a>>,
    merge: Merge,
    /// Threads that have a number so far.
    threads: u32,
    /// Further logs, of which each has no record.
    empty_logs: u64,
}

impl<'a> Join<'a> {
    /// No log so far.
    pub fn new() -> Join<'a> {
        Join::default()
    }

    /// Adds the log of a process, by that name. `without_inherited`: what it had from its parent is
    /// left out, because the parent's log is added as well. Returns what is wrong with it.
    /// `progress` is told, now and then, how far reading is.
    ///
    /// # Errors
    /// When it cannot be joined; the others can still be.
    pub fn add(
        &mut self,
        name: String,
        bytes: &'a [u8],
        without_inherited: bool,
        mut progress: impl FnMut(u64),
    ) -> Result<LogAccount, JoinError> {
        let mut fold = Fold::new().without_inherited(without_inherited);
        each_record(bytes, &mut progress, &mut fold)?;
        let start = start_of(bytes).ok_or(JoinError::NoStart)?;
        let stack_numbers = fold.stack_numbers().clone();
        let mut profile = fold.finish();
        if profile.run.is_joined {
            return Err(JoinError::Joined);
        }
        let (duration_ns, checkpoint) = (profile.run.duration_ns, profile.run.checkpoint);
        let mut coarse = std::mem::take(&mut profile.coarse);
        let account = profile.account.clone();
        let numbered = profile.threads.iter().map(|thread| thread.number);
        let numbered = numbered.filter(|&number| number != BEFORE_THE_FORK);
        let threads: NumberMap<u32, u32> = numbered.zip(self.threads..).collect();
        let numbers = (self.threads, threads.len() as u32 + 1);
        self.threads += numbers.1;
        let merged = self.merge.add(name, profile);
        for moment in &mut coarse {
            let known = |&(index, bytes): &(u32, u64)| Some((*merged.get(index as usize)?, bytes));
            moment.largest = moment.largest.iter().filter_map(known).collect();
        }
        let merged = |(number, index): (u32, u32)| Some((number, *merged.get(index as usize)?));
        self.members.push(Member {
            records: Records::of(bytes)?,
            given_back: None,
            length: bytes.len() as u64,
            start,
            offset_ns: 0,
            duration_ns,
            checkpoint,
            coarse,
            without_inherited,
            stacks: stack_numbers.into_iter().filter_map(merged).collect(),
            threads,
            numbers,
            live: BlockMap::default(),
            reached_ns: 0,
            has_ended: false,
            read: 0,
        });
        Ok(account)
    }

    /// Notes that so many further logs have no record. The joined log says so.
    pub fn beside_empty(&mut self, empty_logs: u64) {
        self.empty_logs = empty_logs;
    }

    /// Bytes of the logs.
    pub fn len(&self) -> u64 {
        self.members.iter().map(|member| member.length).sum()
    }

    /// How many logs there are.
    pub fn processes(&self) -> usize {
        self.members.len()
    }

    /// Returns true if there is no log.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Writes the joined log. `progress` is told, now and then, how many of the logs' bytes are
    /// done.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn write(mut self, out: &mut impl Write, mut progress: impl FnMut(u64)) -> io::Result<()> {
        let mut whole = self.merge.finish();
        whole.account.empty_logs = self.empty_logs;
        let starts = self.members.iter().map(|member| member.start.wall_ns);
        let first_ns = starts.min().unwrap_or(0);
        for member in &mut self.members {
            member.offset_ns = member.start.wall_ns - first_ns;
        }
        let before = BeforeDetail::of(&self.members);
        let mut writing = Writing::new(self.members, before, &whole, out);
        writing.begin(first_ns)?;
        writing.events(&mut progress)?;
        writing.end()
    }
}
