//! Segments: the concatenated files of a rotated log, read as one log. The beginning of each
//! further segment, up to the end of its checkpoint, repeats the segments before and is skipped.
//!
//! A further segment continues the log if its start is that of the same run, and its number the
//! next. Any other segment is another log, and no part of this one.

use crate::record::{Alloc, Free, Record};

/// A segment of a rotated log; see [`Checkpoint`](crate::Checkpoint).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentStart {
    /// Its number.
    pub number: u32,
    /// Time of its checkpoint.
    pub time_ns: u64,
}

/// The role of a record in a log of several segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A record to be read.
    New,
    /// A record at the beginning of a further segment, which is known from the segments before.
    Repeated,
    /// A record of another log, which begins at that offset.
    Foreign { begin: usize },
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    current: SegmentOf,
    /// Segments whose checkpoints were read.
    seen: Vec<SegmentStart>,
    repetition: Option<Repetition>,
}

/// The run and the number of the current segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SegmentOf {
    pid: u32,
    wall_ns: u64,
    monotonic_ns: u64,
    /// Number of the segment.
    number: u32,
}

impl SegmentOf {
    fn see(&mut self, record: &Record) {
        match record {
            Record::Start(start) => {
                self.pid = start.pid;
                self.wall_ns = start.wall_ns;
                self.monotonic_ns = start.monotonic_ns;
            }
            Record::Checkpoint(checkpoint) => self.number = checkpoint.segment,
            _ => {}
        }
    }
}

/// The beginning of a further segment, while it is skipped.
#[derive(Debug, Clone, Copy)]
struct Repetition {
    /// Offset at which the segment begins.
    begin: usize,
    /// Time of its checkpoint, once that has begun.
    checkpoint_ns: Option<u64>,
}

impl Segments {
    /// Returns the state at the beginning of a log, before its start is known.
    pub(crate) fn first() -> Segments {
        Segments {
            current: SegmentOf {
                number: 1,
                ..SegmentOf::default()
            },
            seen: Vec::new(),
            repetition: None,
        }
    }

    /// Enters a further segment that begins at that offset.
    pub(crate) fn enter(&mut self, begin: usize) {
        self.repetition = Some(Repetition {
            begin,
            checkpoint_ns: None,
        });
    }

    /// Returns true while the beginning of a further segment is skipped: each record must then be
    /// passed to [`role_of`](Self::role_of).
    #[inline]
    pub(crate) fn is_skipping(&self) -> bool {
        self.repetition.is_some()
    }

    /// Returns the segments whose checkpoints were read so far, in order.
    pub(crate) fn seen(&self) -> &[SegmentStart] {
        &self.seen
    }

    /// Returns the role of the next record. Outside a segment's beginning it is not called for
    /// allocations and frees.
    pub(crate) fn role_of(&mut self, record: &Record) -> Role {
        let Some(repetition) = &mut self.repetition else {
            self.see(record);
            return Role::New;
        };
        let mut seen = self.current;
        seen.see(record);
        let continues = match record {
            Record::Start(_) => seen == self.current,
            Record::Checkpoint(checkpoint) => {
                repetition.checkpoint_ns = Some(checkpoint.time_ns);
                self.current.number.checked_add(1) == Some(seen.number)
            }
            // Records before the checkpoint are the start. Without a checkpoint, this is a first
            // segment.
            _ => repetition.checkpoint_ns.is_some(),
        };
        let Repetition {
            begin,
            checkpoint_ns,
        } = *repetition;
        if !continues {
            self.repetition = None;
            return Role::Foreign { begin };
        }
        self.see(record);
        match record {
            Record::CheckpointEnd { .. } => {
                self.repetition = None;
                Role::Repeated
            }
            // Later than the checkpoint: its end was in a damaged part.
            Record::Alloc(Alloc { time_ns, .. }) | Record::Free(Free { time_ns, .. })
                if checkpoint_ns < Some(*time_ns) =>
            {
                self.repetition = None;
                Role::New
            }
            _ => Role::Repeated,
        }
    }

    fn see(&mut self, record: &Record) {
        self.current.see(record);
        if let Record::Checkpoint(checkpoint) = record {
            self.seen.push(SegmentStart {
                number: checkpoint.segment,
                time_ns: checkpoint.time_ns,
            });
        }
    }
}
