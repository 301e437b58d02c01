//! Pages fold: the parts of readings of pages, put together.
//!
//! A reading counts if all of its parts are there. A segment of the log that is gone, or the end
//! of the process, may have the others.

use heapprof_format::PageReading;

use crate::model::page_reading::PagesRead;

/// Most readings that are kept: one a second for half a day.
const MOST: usize = 1 << 16;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(crate) struct PagesFold {
    /// The number of the part that is expected, and the blocks so far.
    next: Option<(u64, u32, u64)>,
    /// The reading whose blocks count.
    pub(super) wanted: Option<PagesRead>,
}

impl PagesFold {
    /// Takes a part, which is the record of that number. Returns the reading if it is complete.
    pub(crate) fn part(&mut self, part: &PageReading, record: u64) -> Option<PagesRead> {
        let before = match self.next {
            _ if part.part == 0 => 0,
            Some((time_ns, next, blocks)) if (time_ns, next) == (part.time_ns, part.part) => blocks,
            _ => {
                self.next = None;
                return None;
            }
        };
        let blocks = before + part.blocks.len() as u64;
        if !part.is_last {
            self.next = Some((part.time_ns, part.part.wrapping_add(1), blocks));
            return None;
        }
        self.next = None;
        Some(PagesRead {
            time_ns: part.time_ns,
            record,
            ran_ns: part.ran_ns,
            pages: part.pages,
            blocks,
            left_out: part.left_out,
            is_cut: part.is_cut,
            knows_slabs: part.knows_slabs,
        })
    }

    /// Returns true if the blocks of a part count.
    pub(super) fn counts(&self, part: &PageReading, record: u64) -> bool {
        let is_of = |it: PagesRead| it.time_ns == part.time_ns && record <= it.record;
        self.wanted.is_some_and(is_of)
    }
}

/// Keeps a reading, unless there are too many.
pub(super) fn keep(readings: &mut Vec<PagesRead>, reading: PagesRead) {
    if readings.len() < MOST {
        readings.push(reading);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(time_ns: u64, part: u32, is_last: bool) -> PageReading {
        PageReading {
            time_ns,
            part,
            is_last,
            ..PageReading::default()
        }
    }

    #[test]
    fn a_reading_without_one_of_its_parts_counts_for_nothing() {
        let mut fold = PagesFold::default();
        let parts = [
            part(1, 1, true), // the first part is gone
            part(2, 0, false),
            part(2, 1, true),
            part(3, 0, false), // the process ended, and another log follows
            part(4, 1, true),
            part(5, 0, true),
        ];
        let read = (1..)
            .zip(&parts)
            .map(|(record, part)| fold.part(part, record));
        let times: Vec<_> = read.flatten().map(|it| (it.time_ns, it.record)).collect();
        assert_eq!(times, [(2, 3), (5, 6)]);
    }
}
