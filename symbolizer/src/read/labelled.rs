//! Log part: the records of a log that are about blocks under given labels, and of other stacks
//! than given ones.
//!
//! A block is under the labels of its stack. So a stack without these labels is left out, with its
//! blocks, their ends, and its numbers in a checkpoint. All else stays.

use std::collections::HashSet;

use heapprof_core::NumberMap;
use heapprof_format::{Alloc, Checkpoint, Event, Free, ReadError, Record};

use crate::model::extras::WantedExtras;
use crate::model::labels::Labels;
use crate::model::profile::{LogAccount, Profile};
use crate::read::fold::Fold;
use crate::read::log::{RecordSink, each_record};

/// A log, or the part of it that was allocated under some labels.
#[derive(Debug, Clone, Copy)]
pub struct LogPart<'a> {
    pub(super) bytes: &'a [u8],
    labels: &'a [(String, String)],
    /// Frames of the stacks that are left out.
    without: Option<&'a HashSet<Vec<u64>>>,
}

impl<'a> LogPart<'a> {
    /// The part of a log that is under these labels: keys and values.
    pub fn under(bytes: &'a [u8], labels: &'a [(String, String)]) -> LogPart<'a> {
        LogPart {
            bytes,
            labels,
            without: None,
        }
    }

    /// The part without the stacks that have these frames.
    #[must_use]
    pub fn without(self, frames: &'a HashSet<Vec<u64>>) -> LogPart<'a> {
        LogPart {
            without: Some(frames).filter(|frames| !frames.is_empty()),
            ..self
        }
    }

    /// The profile of the part.
    ///
    /// # Errors
    /// As [`profile_of_log`](crate::profile_of_log).
    pub fn profile(
        self,
        extras: WantedExtras,
        mut progress: impl FnMut(u64),
    ) -> Result<Profile, ReadError> {
        let mut part = self.to(Fold::keeping(extras));
        each_record(self.bytes, &mut progress, &mut part)?;
        Ok(part.finish())
    }

    /// Gives each record of the part to one who takes them, as [`each_record`] does.
    ///
    /// # Errors
    /// As [`profile_of_log`](crate::profile_of_log).
    pub(crate) fn each_record(
        self,
        progress: &mut impl FnMut(u64),
        sink: &mut impl RecordSink,
    ) -> Result<(), ReadError> {
        each_record(self.bytes, progress, &mut self.to(sink))
    }

    /// Hands on to that sink what is of the part.
    pub(super) fn to<T: RecordSink>(self, sink: T) -> Labelled<'a, T> {
        Labelled {
            without: self.without,
            ..Labelled::of(sink, self.labels)
        }
    }
}

impl<'a> From<&'a [u8]> for LogPart<'a> {
    fn from(bytes: &'a [u8]) -> LogPart<'a> {
        LogPart::under(bytes, &[])
    }
}

impl<'a> From<&'a Vec<u8>> for LogPart<'a> {
    fn from(bytes: &'a Vec<u8>) -> LogPart<'a> {
        LogPart::under(bytes, &[])
    }
}

/// A sink of what is under labels, which hands on to another one.
#[derive(Debug, Clone)]
pub(crate) struct Labelled<'a, T> {
    pub(super) sink: T,
    /// Keys and values.
    labels: &'a [(String, String)],
    /// Frames of stacks that are left out.
    without: Option<&'a HashSet<Vec<u64>>>,
    /// Stacks that are left out.
    stacks: HashSet<u32>,
    /// Blocks that are left out, as long as they are in use.
    blocks: NumberMap<u64, ()>,
}

impl<'a, T: RecordSink> Labelled<'a, T> {
    /// Hands on to `sink` what is under these labels.
    pub(crate) fn of(sink: T, labels: &'a [(String, String)]) -> Labelled<'a, T> {
        Labelled {
            sink,
            labels,
            without: None,
            stacks: HashSet::new(),
            blocks: NumberMap::default(),
        }
    }
}

impl<T> Labelled<'_, T> {
    /// Returns true if everything is handed on.
    #[inline]
    fn is_whole(&self) -> bool {
        self.labels.is_empty() && self.without.is_none()
    }
}

impl Labelled<'_, Fold> {
    /// Returns the profile of the part.
    pub(super) fn finish(self) -> Profile {
        let is_whole = self.is_whole();
        let mut profile = self.sink.finish();
        if !is_whole {
            // Threads counted the bytes of all stacks.
            profile.counted = None;
        }
        profile
    }
}

impl<T: RecordSink> RecordSink for Labelled<'_, T> {
    fn take(&mut self, record: Record) {
        if self.is_whole() {
            return self.sink.take(record);
        }
        match record {
            Record::Alloc(alloc) => self.take_event(Event::Alloc(alloc)),
            Record::Free(free) => self.take_event(Event::Free(free)),
            Record::Stack(stack) => {
                let labels = Labels::new(stack.labels.clone());
                // A later segment may use the number anew.
                let is_without = |frames: &HashSet<Vec<u64>>| frames.contains(&stack.frames);
                if labels.have(self.labels) && !self.without.is_some_and(is_without) {
                    self.stacks.remove(&stack.number);
                    self.sink.take(Record::Stack(stack));
                } else {
                    self.stacks.insert(stack.number);
                }
            }
            Record::Passed(passed) if self.stacks.contains(&passed.stack) => {}
            // What all had in use says nothing of a part.
            Record::CoarseMoment(_) => {}
            // The peak of all is none of a part.
            Record::Checkpoint(checkpoint) => self.sink.take(Record::Checkpoint(Checkpoint {
                peak_ns: checkpoint.time_ns,
                peak_bytes: 0,
                ..checkpoint
            })),
            other => self.sink.take(other),
        }
    }

    #[inline]
    fn take_event(&mut self, event: Event) {
        if self.is_whole() {
            return self.sink.take_event(event);
        }
        match event {
            Event::Alloc(Alloc { id, stack, .. }) if self.stacks.contains(&stack) => {
                self.blocks.insert(id, ());
            }
            Event::Free(Free { id, .. }) if self.blocks.remove(&id).is_some() => {}
            event => self.sink.take_event(event),
        }
    }

    fn account(&mut self, account: LogAccount) {
        self.sink.account(account);
    }

    fn has_enough(&self) -> bool {
        self.sink.has_enough()
    }
}
