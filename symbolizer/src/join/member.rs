//! Member: one of the joined logs, during its second reading.

use heapprof_core::{BlockMap, NumberMap};
use heapprof_format::{Checkpoint, CoarseMoment, Event, Record, Start};

use crate::model::special_threads::BEFORE_THE_FORK;
use crate::read::log::Records;

/// See the module's text.
pub(super) struct Member<'a> {
    pub(super) records: Records<'a>,
    /// A record that was given back.
    pub(super) given_back: Option<Record>,
    /// Bytes of the log.
    pub(super) length: u64,
    pub(super) start: Start,
    /// From the joined log's start to its own.
    pub(super) offset_ns: u64,
    /// Duration by its own clock.
    pub(super) duration_ns: u64,
    pub(super) checkpoint: Option<Checkpoint>,
    /// Its coarse history, with the joined log's numbers of stacks.
    pub(super) coarse: Vec<CoarseMoment>,
    /// True if what it had from its parent is left out.
    pub(super) without_inherited: bool,
    /// The joined log's number of each of its stacks, by the log's own number.
    pub(super) stacks: NumberMap<u32, u32>,
    /// The joined log's number of each of its threads, by the log's own number.
    pub(super) threads: NumberMap<u32, u32>,
    /// The joined log's number of the first of these, and how many have the numbers behind that.
    /// The last is that of all threads of which the log has no more than a number: what it had is
    /// damaged.
    pub(super) numbers: (u32, u32),
    /// The blocks in use: ids in the joined log, by the log's own ids.
    pub(super) live: BlockMap<u64>,
    /// Time of the newest record, of its own clock.
    pub(super) reached_ns: u64,
    pub(super) has_ended: bool,
    /// Where reading was when that was last added up.
    pub(super) read: u64,
}

impl Member<'_> {
    /// A time of its own on the joined log's clock.
    pub(super) fn joined(&self, time_ns: u64) -> u64 {
        self.offset_ns.saturating_add(time_ns)
    }

    /// When its log ends, on the joined log's clock.
    pub(super) fn end_ns(&self) -> u64 {
        self.joined(self.duration_ns)
    }

    /// The number of a thread of its own in the joined log.
    pub(super) fn thread(&self, number: u32) -> u32 {
        let (first, count) = self.numbers;
        let known = match number {
            BEFORE_THE_FORK => Some(&BEFORE_THE_FORK),
            number => self.threads.get(&number),
        };
        known.copied().unwrap_or(first + count - 1)
    }

    /// The next record; `None`: there is none. It was read before, so no error is new.
    pub(super) fn next(&mut self) -> Option<Record> {
        if let Some(record) = self.given_back.take() {
            return Some(record);
        }
        match self.records.next_event() {
            Some(Event::Alloc(alloc)) => Some(Record::Alloc(alloc)),
            Some(Event::Free(free)) => Some(Record::Free(free)),
            None => self.records.next_record().ok().flatten(),
        }
    }
}
