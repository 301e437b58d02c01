//! Detail: what a profile keeps of a log beyond its rows, when a reader asks for it.
//!
//! Rows need memory for stacks; numbers by thread need a row for each thread that allocated there, and
//! events need one for each sampled block. Few readers want them, so nobody else pays.

use std::collections::{HashMap, HashSet};

use heapprof_core::{Estimate, Ledger, Row, SizeClass};
use heapprof_format::{Alloc, Free};

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Detail {
    /// The rows by thread.
    pub threads: bool,
    /// Each sampled block's beginning and end.
    pub events: bool,
}

impl Detail {
    /// All of it.
    pub const ALL: Detail = Detail {
        threads: true,
        events: true,
    };
}

/// What was kept; `None` where it was not asked for, or where the input does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Detailed {
    /// The rows by the thread that allocated.
    pub threads: Option<Vec<ThreadRow>>,
    /// Sampled blocks, in the order of the log.
    pub events: Option<Vec<Event>>,
}

impl Detailed {
    /// Leaves the rows of which that is so, and of the sampled blocks those that did not go.
    pub(crate) fn keep_survivors(&mut self, mut survives: impl FnMut(&mut Row) -> bool) {
        if let Some(threads) = &mut self.threads {
            threads.retain_mut(|thread| survives(&mut thread.row));
        }
        if let Some(events) = &mut self.events {
            let went = events.iter().filter(|event| event.came.is_none());
            let went: HashSet<u64> = went.map(|event| event.id).collect();
            events.retain(|event| !went.contains(&event.id));
        }
    }
}

/// A row of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadRow {
    /// The thread's number in the log.
    pub thread: u32,
    /// Its numbers.
    pub row: Row,
}

/// A sampled block came, or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time_ns: u64,
    /// The thread that did it.
    pub thread: u32,
    /// The block.
    pub id: u64,
    /// What came; `None`: it went.
    pub came: Option<Block>,
}

/// A sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Index of the stack that allocated it.
    pub stack: u32,
    /// Bytes requested.
    pub size: u64,
    /// The interval it was sampled under.
    pub interval: u64,
}

/// Number of the threads that allocated before the oldest segment that is kept.
const NOT_KEPT: u32 = u32::MAX - 1;

/// What a thread is called of which a log has nothing but a number.
pub(crate) fn name_of_unknown_thread(number: u32) -> String {
    match number {
        NOT_KEPT => "(before what is kept)".into(),
        _ => format!("thread {number}"),
    }
}

/// The part of a fold that keeps detail.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    wanted: Detail,
    ledger: Ledger,
    /// (stack, thread) -> the number that the ledger knows it by, and back.
    number_of: HashMap<(u32, u32), u32>,
    pairs: Vec<(u32, u32)>,
    events: Vec<Event>,
}

impl Keeper {
    pub(crate) fn of(wanted: Detail) -> Self {
        Keeper {
            wanted,
            ..Keeper::default()
        }
    }

    /// The account by thread. Its rows are in the order of [`Detailed::threads`].
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A block came from the stack of that index.
    pub(crate) fn alloc(&mut self, alloc: &Alloc, stack: u32) {
        if self.wanted.threads {
            let number = self.number(stack, alloc.thread);
            self.ledger
                .alloc(alloc.id, number, alloc.size, alloc.interval);
        }
        if self.wanted.events {
            self.events.push(Event {
                time_ns: alloc.time_ns,
                thread: alloc.thread,
                id: alloc.id,
                came: Some(Block {
                    stack,
                    size: alloc.size,
                    interval: alloc.interval,
                }),
            });
        }
    }

    /// Blocks came and went before what is known begins; of which threads is not known.
    pub(crate) fn passed(&mut self, stack: u32, class: SizeClass, freed: &Estimate) {
        if self.wanted.threads && !freed.is_empty() {
            let number = self.number(stack, NOT_KEPT);
            self.ledger.passed(number, class, freed);
        }
    }

    fn number(&mut self, stack: u32, thread: u32) -> u32 {
        let pairs = &mut self.pairs;
        *self
            .number_of
            .entry((stack, thread))
            .or_insert_with_key(|&pair| {
                pairs.push(pair);
                pairs.len() as u32 - 1
            })
    }

    /// A block that is known went.
    pub(crate) fn free(&mut self, free: &Free) {
        if self.wanted.threads {
            self.ledger.free(free.id);
        }
        if self.wanted.events {
            self.events.push(Event {
                time_ns: free.time_ns,
                thread: free.thread,
                id: free.id,
                came: None,
            });
        }
    }

    pub(crate) fn finish(self) -> Detailed {
        let threads = self.ledger.rows().map(|row| {
            let (stack, thread) = self.pairs[row.stack as usize];
            ThreadRow {
                thread,
                row: Row { stack, ..row },
            }
        });
        Detailed {
            threads: self.wanted.threads.then(|| threads.collect()),
            events: self.wanted.events.then_some(self.events),
        }
    }
}
