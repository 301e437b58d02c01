//! Extras: what a profile keeps of a log beyond its rows, if a reader asks for it.
//!
//! Glossary: extras.
//!
//! Rows by thread need a row for each thread that allocated by a stack. Events need one entry for
//! each sampled block. Spikes need a look at the bytes in use behind each event. Few readers want
//! any of these, so all are off by default.

use std::collections::HashSet;

use heapprof_core::Row;

use crate::history::spikes::Spike;

/// The extras that are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WantedExtras {
    /// The rows by thread.
    pub threads: bool,
    /// Each sampled block's beginning and end.
    pub events: bool,
    /// The spikes of bytes in use.
    pub spikes: bool,
}

impl WantedExtras {
    /// All of it.
    pub const ALL: WantedExtras = WantedExtras {
        threads: true,
        events: true,
        spikes: true,
    };
}

/// The extras that were kept; `None` if they were not asked for, or if the input does not have
/// them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras {
    /// The rows by the thread that allocated.
    pub threads: Option<Vec<ThreadRow>>,
    /// Sampled blocks, in the order of the log.
    pub events: Option<Vec<Event>>,
    /// The spikes of bytes in use, in the order of time.
    pub spikes: Option<Vec<Spike>>,
}

impl Extras {
    /// Leaves the rows of which that is so, and of the sampled blocks those that did not go.
    pub(crate) fn keep_survivors(&mut self, mut survives: impl FnMut(&mut Row) -> bool) {
        if let Some(threads) = &mut self.threads {
            threads.retain_mut(|thread| survives(&mut thread.row));
        }
        if let Some(events) = &mut self.events {
            let freed = events.iter().filter(|event| event.allocated.is_none());
            let freed: HashSet<u64> = freed.map(|event| event.id).collect();
            events.retain(|event| !freed.contains(&event.id));
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

/// The allocation or the free of a sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time_ns: u64,
    /// The thread that did it.
    pub thread: u32,
    /// The block.
    pub id: u64,
    /// The block if it was allocated; `None` if it was freed.
    pub allocated: Option<Block>,
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
