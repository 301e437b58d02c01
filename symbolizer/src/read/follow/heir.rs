//! Heir: the fold of a followed log, with the blocks that its process has from its parent.
//!
//! ```text
//!   Start ── modules, threads … ── first event ──────────────>
//!            held back             what was inherited, then these
//! ```
//!
//! The inherited stacks depend on the modules that the log begins with. A log that is being written
//! may not have these yet. So records are held back until the first event.

use std::path::{Path, PathBuf};

use heapprof_format::{Event, Module, Record, Start};

use crate::model::profile::LogAccount;
use crate::read::fold::Fold;
use crate::read::log::RecordSink;
use crate::read::parent_log::growing::inherited;
use crate::read::parent_log::is_remark_of_join;

/// Records that are held back at most.
const MOST_HELD: usize = 1 << 14;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Heir {
    path: PathBuf,
    /// The user whose log it is.
    owner: u32,
    fold: Fold,
    state: State,
    /// The stacks of inherited blocks, which are the first ones.
    inherited_stacks: u32,
}

#[derive(Debug)]
enum State {
    /// Nothing came yet.
    Begin,
    /// The process was forked.
    Held(Box<Start>, Vec<Record>),
    /// All is handed on.
    Open,
}

impl Heir {
    /// `finds_inherited`: false if the parent's log is followed, too.
    pub(super) fn of(path: &Path, owner: u32, fold: Fold, finds_inherited: bool) -> Heir {
        Heir {
            path: path.to_owned(),
            owner,
            fold,
            state: match finds_inherited {
                true => State::Begin,
                false => State::Open,
            },
            inherited_stacks: 0,
        }
    }

    /// Bytes in use that were inherited.
    pub(super) fn inherited_bytes(&self) -> u64 {
        let rows = self.fold.ledger().rows();
        let inherited = rows.filter(|row| row.stack < self.inherited_stacks);
        inherited.map(|row| row.totals.in_use.bytes()).sum()
    }

    pub(super) fn fold(&self) -> &Fold {
        &self.fold
    }

    pub(super) fn fold_mut(&mut self) -> &mut Fold {
        &mut self.fold
    }

    /// Hands on what was inherited, and what was held back.
    fn open(&mut self) {
        let State::Held(start, held) = std::mem::replace(&mut self.state, State::Open) else {
            return;
        };
        let is_joined = held.first().is_some_and(is_remark_of_join);
        let modules: Vec<Module> = (held.iter())
            .filter_map(|record| match record {
                Record::Module(module) if module.time_ns == 0 => Some(module.clone()),
                _ => None,
            })
            .collect();
        let found = match is_joined {
            true => None,
            false => inherited(*start, modules, &self.path, self.owner),
        };
        for record in found.into_iter().flatten() {
            self.fold.record(record);
        }
        self.inherited_stacks = self.fold.stacks();
        for record in held {
            self.fold.record(record);
        }
    }
}

impl RecordSink for Heir {
    fn take(&mut self, record: Record) {
        let is_event = matches!(
            record,
            Record::Alloc(_)
                | Record::Free(_)
                | Record::Passed(_)
                | Record::CheckpointEnd { .. }
                | Record::End { .. }
        );
        match &mut self.state {
            State::Open => {}
            State::Begin => {
                self.state = match &record {
                    Record::Start(start) if start.forked_from != 0 => {
                        State::Held(Box::new(start.clone()), Vec::new())
                    }
                    _ => State::Open,
                };
            }
            State::Held(_, held) if !is_event && held.len() < MOST_HELD => {
                held.push(record);
                return;
            }
            State::Held(..) => self.open(),
        }
        self.fold.record(record);
    }

    #[inline]
    fn take_event(&mut self, event: Event) {
        if !matches!(self.state, State::Open) {
            self.open();
            self.state = State::Open;
        }
        self.fold.event(event);
    }

    fn account(&mut self, _: LogAccount) {}
}
