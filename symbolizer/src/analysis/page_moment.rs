//! Page moment: the moment of a reading of pages, in words.

use crate::model::page_reading::PagesRead;
use crate::model::quantity::Count;
use crate::model::run::Run;

/// Longest time between a marker and the reading that is taken for it.
const NEAR_NS: u64 = 1_000_000_000;

impl PagesRead {
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
            (n, _) if run.is_joined => {
                format!("; {} blocks without a reading are left out", Count(n))
            }
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
