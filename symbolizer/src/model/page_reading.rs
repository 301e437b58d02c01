//! Page reading: a moment at which the pages of the sampled blocks were read.

use crate::model::nearest::Nearest;
use crate::model::span::Cut;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagesRead {
    /// When it began.
    pub time_ns: u64,
    /// Number of the record with its last part.
    pub record: u64,
    /// Time of a processor that it took.
    pub ran_ns: u64,
    /// Pages that were read.
    pub pages: u64,
    /// Sampled blocks that it has.
    pub blocks: u64,
    /// Live sampled blocks that it lacks.
    pub left_out: u64,
    /// True if it ended early.
    pub is_cut: bool,
    /// True if the slabs of blocks are known.
    pub knows_slabs: bool,
}

impl PagesRead {
    /// The cut of the moment, behind the last part.
    pub(crate) fn cut(&self) -> Cut {
        Cut::Record {
            number: self.record,
            time_ns: self.time_ns,
        }
    }
}

/// Returns the [nearest](Nearest) reading to a time, of a process that ended or was last seen at
/// `end_ns`.
pub(crate) fn nearest(readings: &[PagesRead], time_ns: u64, end_ns: u64) -> Option<PagesRead> {
    let mut nearest = Nearest::default();
    for reading in readings {
        nearest.take(reading.time_ns, *reading, time_ns);
    }
    nearest.end(end_ns, time_ns);
    nearest.get().copied()
}
