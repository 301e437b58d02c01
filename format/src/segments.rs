//! Segments of a rotated log that stand behind each other, as one log: what each further one
//! repeats at its beginning, up to the end of its checkpoint, is passed over.
//!
//! A further segment continues the log if its start is that of the same run, and its number the
//! next. Anything else is another log, and not to be read as part of this one.

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
pub(crate) enum Met {
    /// To be read.
    New,
    /// Part of the beginning of a further segment: the segments before have all of it.
    Repeated,
    /// Part of another log, which begins at that offset.
    Foreign { begin: usize },
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    current: SegmentOf,
    /// Those whose checkpoints were met.
    met: Vec<SegmentStart>,
    joint: Option<Joint>,
}

/// The identity of a segment: its run, and its number in the run.
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

/// The beginning of a further segment, while it is passed over.
#[derive(Debug, Clone, Copy)]
struct Joint {
    /// Offset at which the segment begins.
    begin: usize,
    /// Time of its checkpoint, when that has begun.
    checkpoint_ns: Option<u64>,
}

impl Segments {
    /// At the beginning of a log, before its start is known.
    pub(crate) fn first() -> Segments {
        Segments {
            current: SegmentOf {
                number: 1,
                ..SegmentOf::default()
            },
            met: Vec::new(),
            joint: None,
        }
    }

    /// A further segment begins at that offset.
    pub(crate) fn enter(&mut self, begin: usize) {
        self.joint = Some(Joint {
            begin,
            checkpoint_ns: None,
        });
    }

    /// Whether the beginning of a further segment is being passed over: each record is to be shown
    /// to [`meet`](Self::meet).
    #[inline]
    pub(crate) fn are_at_a_joint(&self) -> bool {
        self.joint.is_some()
    }

    /// The segments whose checkpoints were met so far, in order.
    pub(crate) fn met(&self) -> &[SegmentStart] {
        &self.met
    }

    /// Returns the role of the next record. Allocations and frees are asked about only at a joint.
    pub(crate) fn meet(&mut self, record: &Record) -> Met {
        let Some(joint) = &mut self.joint else {
            self.see(record);
            return Met::New;
        };
        let mut seen = self.current;
        seen.see(record);
        let continues = match record {
            Record::Start(_) => seen == self.current,
            Record::Checkpoint(checkpoint) => {
                joint.checkpoint_ns = Some(checkpoint.time_ns);
                self.current.number.checked_add(1) == Some(seen.number)
            }
            // All that is before the checkpoint is the start; without it, this is a first segment.
            _ => joint.checkpoint_ns.is_some(),
        };
        let Joint {
            begin,
            checkpoint_ns,
        } = *joint;
        if !continues {
            self.joint = None;
            return Met::Foreign { begin };
        }
        self.see(record);
        match record {
            Record::CheckpointEnd { .. } => {
                self.joint = None;
                Met::Repeated
            }
            // Later than the checkpoint: its end was in a part that is damaged.
            Record::Alloc(Alloc { time_ns, .. }) | Record::Free(Free { time_ns, .. })
                if checkpoint_ns < Some(*time_ns) =>
            {
                self.joint = None;
                Met::New
            }
            _ => Met::Repeated,
        }
    }

    fn see(&mut self, record: &Record) {
        self.current.see(record);
        if let Record::Checkpoint(checkpoint) = record {
            self.met.push(SegmentStart {
                number: checkpoint.segment,
                time_ns: checkpoint.time_ns,
            });
        }
    }
}
