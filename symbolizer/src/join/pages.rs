//! Joined readings of pages: the last reading of each member, as if it were one of all.
//!
//! The members' readings are of different moments. A joined reading has, for each member that has
//! not ended, the blocks of its last reading that are still in use. Blocks that came later are left
//! out, and counted. Addresses are left out: each process has its own. Joined readings are spaced,
//! because each has the blocks of all members.

use std::io::{self, Write};

use heapprof_format::{PageReading, PagesOfBlock, Record};

use super::member::Member;
use super::writing::Writing;

/// Most joined readings of a joined log, about.
const MOST_READINGS: u64 = 64;
/// Blocks of a part.
const PART: usize = 4096;

/// See the module's text.
pub(super) struct JoinedPages {
    members: Vec<MemberPages>,
    spacing_ns: u64,
    /// When the last joined reading was written.
    written_ns: Option<u64>,
    /// True if a reading came behind that.
    has_changed: bool,
}

/// The readings of one member, with its own ids of blocks.
#[derive(Clone, Default)]
struct MemberPages {
    /// The parts so far of a reading that is not complete.
    current: Option<PageReading>,
    /// The last complete reading, as one part.
    last: Option<PageReading>,
}

impl JoinedPages {
    /// Returns what that many members have, for a joined log of that duration: nothing yet.
    pub(super) fn new(members: usize, duration_ns: u64) -> JoinedPages {
        JoinedPages {
            members: vec![MemberPages::default(); members],
            spacing_ns: duration_ns / MOST_READINGS,
            written_ns: None,
            has_changed: false,
        }
    }

    /// Takes a part of a member's reading.
    pub(super) fn part(&mut self, member: usize, part: PageReading) {
        let pages = &mut self.members[member];
        let before = pages.current.take();
        let is_next = |it: &PageReading| {
            it.time_ns == part.time_ns && it.part.checked_add(1) == Some(part.part)
        };
        let before = match part.part {
            0 => Vec::new(),
            _ => match before.filter(is_next) {
                Some(before) => before.blocks,
                None => return, // a part before this one is gone
            },
        };
        let is_last = part.is_last;
        let mut blocks = before;
        blocks.extend_from_slice(&part.blocks);
        let whole = Some(PageReading {
            blocks,
            addresses: None,
            ..part
        });
        match is_last {
            true => {
                pages.last = whole;
                self.has_changed = true;
            }
            false => pages.current = whole,
        }
    }

    /// Takes the end of a member.
    pub(super) fn leave(&mut self, member: usize) {
        let pages = std::mem::take(&mut self.members[member]);
        self.has_changed |= pages.last.is_some();
    }

    /// Returns the joined reading, if one is due at that time, or at the log's end.
    pub(super) fn joined(
        &mut self,
        time_ns: u64,
        is_end: bool,
        members: &[Member<'_>],
    ) -> Option<PageReading> {
        let next_ns = self
            .written_ns
            .map_or(0, |it| it.saturating_add(self.spacing_ns));
        if !self.has_changed || time_ns < next_ns && !is_end {
            return None;
        }
        self.has_changed = false;
        self.written_ns = Some(time_ns);
        let mut joined = PageReading {
            time_ns,
            knows_slabs: true,
            ..PageReading::default()
        };
        for (pages, member) in self.members.iter().zip(members) {
            let before = joined.blocks.len();
            if let Some(last) = &pages.last {
                joined.knows_slabs &= last.knows_slabs;
                joined.is_cut |= last.is_cut;
                joined.ran_ns = joined.ran_ns.saturating_add(last.ran_ns);
                joined.pages = joined.pages.saturating_add(last.pages);
                let numbered = last.blocks.iter().filter_map(|block| {
                    let id = *member.live.get(block.id)?;
                    Some(PagesOfBlock { id, ..*block })
                });
                joined.blocks.extend(numbered);
            }
            let found = joined.blocks.len() - before;
            joined.left_out += member.live.len().saturating_sub(found) as u64;
        }
        Some(joined)
    }
}

impl<W: Write> Writing<'_, W> {
    /// Writes the joined reading, if one is due.
    pub(super) fn page_reading(&mut self, time_ns: u64, is_end: bool) -> io::Result<()> {
        if self.before.is_some() {
            return Ok(());
        }
        let Some(joined) = self.pages.joined(time_ns, is_end, &self.members) else {
            return Ok(());
        };
        let parts = joined.blocks.len().div_ceil(PART).max(1);
        for part in 0..parts {
            let end = joined.blocks.len().min((part + 1) * PART);
            self.put(&Record::Pages(PageReading {
                part: part as u32,
                is_last: part + 1 == parts,
                blocks: joined.blocks[part * PART..end].to_vec(),
                ..head(&joined)
            }))?;
        }
        Ok(())
    }
}

/// A reading without its blocks.
fn head(reading: &PageReading) -> PageReading {
    PageReading {
        time_ns: reading.time_ns,
        part: 0,
        is_last: false,
        knows_slabs: reading.knows_slabs,
        is_cut: reading.is_cut,
        ran_ns: reading.ran_ns,
        pages: reading.pages,
        left_out: reading.left_out,
        blocks: Vec::new(),
        addresses: None,
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::Touch;

    use super::*;

    fn part(time_ns: u64, part: u32, is_last: bool, ids: &[u64]) -> PageReading {
        let block = |&id| PagesOfBlock {
            id,
            touch: Touch::Resident,
            slab: None,
        };
        PageReading {
            time_ns,
            part,
            is_last,
            blocks: ids.iter().map(block).collect(),
            ..PageReading::default()
        }
    }

    fn ids(pages: &JoinedPages, member: usize) -> Vec<u64> {
        let last = pages.members[member].last.iter();
        last.flat_map(|it| it.blocks.iter().map(|block| block.id))
            .collect()
    }

    #[test]
    fn a_members_reading_counts_when_it_is_complete() {
        let mut pages = JoinedPages::new(2, 0);
        pages.part(0, part(5, 0, false, &[1, 2]));
        assert_eq!(ids(&pages, 0), [0; 0]);
        pages.part(1, part(5, 0, true, &[1]));
        pages.part(0, part(5, 1, true, &[3]));
        assert_eq!(ids(&pages, 0), [1, 2, 3]);
        assert_eq!(ids(&pages, 1), [1]);
        // Without a part, the reading before stays.
        pages.part(0, part(6, 1, true, &[9]));
        pages.part(0, part(7, 0, false, &[8]));
        pages.part(0, part(8, 1, true, &[9]));
        assert_eq!(ids(&pages, 0), [1, 2, 3]);
        pages.leave(0);
        assert_eq!(ids(&pages, 0), [0; 0]);
    }
}
