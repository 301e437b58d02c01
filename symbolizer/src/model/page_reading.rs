//! Page reading: a moment at which the pages of the sampled blocks were read.

use crate::model::quantity::Count;
use crate::model::run::Run;
use crate::model::span::Cut;

/// Longest time between a marker and the reading that is taken for it.
const NEAR_NS: u64 = 1_000_000_000;

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

    /// In words, for the head of a table.
    pub fn describe(&self, run: &Run) -> String {
        let is_before = |time_ns: u64| time_ns <= self.time_ns && self.time_ns - time_ns <= NEAR_NS;
        let mut markers = run.markers.iter().rev();
        let marker =
            markers.find(|marker| marker.record <= self.record && is_before(marker.time_ns));
        let at = marker.map_or_else(String::new, |marker| {
            format!(", at marker {:?}", marker.name)
        });
        let lacking = match (self.left_out, self.is_cut) {
            (0, _) => String::new(),
            (n, true) => format!("; {} blocks are left out, for want of time", Count(n)),
            (n, false) => format!("; {} blocks from before the fork are left out", Count(n)),
        };
        format!(
            "pages: as of {:.3} s{at}; {} pages of {} sampled blocks, read in {:.1} ms{lacking}",
            self.time_ns as f64 / 1e9,
            Count(self.pages),
            Count(self.blocks),
            self.ran_ns as f64 / 1e6,
        )
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
    use crate::model::run::Marker;

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

    #[test]
    fn the_words_name_the_marker_before_and_what_is_missing() {
        let marker = |time_ns, record, name: &str| Marker {
            time_ns,
            record,
            name: name.into(),
        };
        let run = Run {
            markers: vec![marker(1_000_000_000, 4, "loaded"), marker(3, 9, "late")],
            ..Run::default()
        };
        let read = reading(1_500_000_000, 7);
        assert_eq!(
            read.describe(&run),
            "pages: as of 1.500 s, at marker \"loaded\"; 12,345 pages of 678 sampled blocks, read \
             in 2.5 ms"
        );
        let cut = PagesRead {
            time_ns: 5_000_000_000,
            left_out: 9,
            is_cut: true,
            ..read
        };
        let words = cut.describe(&run);
        assert!(
            !words.contains("marker")
                && words.ends_with("; 9 blocks are left out, for want of time"),
            "{words}"
        );
    }
}
