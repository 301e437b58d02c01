//! Page reading: a moment at which the pages of the sampled blocks were read.

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

/// Returns the reading that is nearest to a time.
pub(crate) fn nearest(readings: &[PagesRead], time_ns: u64) -> Option<&PagesRead> {
    let distance = |reading: &&PagesRead| reading.time_ns.abs_diff(time_ns);
    readings.iter().min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(time_ns: u64, record: u64) -> PagesRead {
        PagesRead {
            time_ns,
            record,
            ran_ns: 2_500_000,
            pages: 12_345,
            blocks: 678,
            left_out: 0,
            is_cut: false,
            knows_slabs: true,
        }
    }

    #[test]
    fn the_nearest_reading_is_before_or_behind() {
        let readings = [reading(10, 1), reading(20, 2), reading(40, 3)];
        let at = |time_ns| nearest(&readings, time_ns).map(|it| it.time_ns);
        assert_eq!([0, 14, 16, 31, 99].map(at), [10, 10, 20, 40, 40].map(Some));
        assert_eq!(nearest(&[], 5), None);
    }
}
