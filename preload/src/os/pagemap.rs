//! Page map: which pages of this process were touched, by `/proc/self/pagemap`.
//!
//! The kernel tells a word for each page. The bits below need no rights.

use std::ops::Range;

use heapprof_core::PageState;

use crate::os::procfs;
use crate::os::sys::File;

const PAGE: u64 = 4096;
/// Pages that are read at once.
const PIECE: usize = 512;
/// Bits of a page's word: the page is resident; it is swapped out; it belongs to a file or to
/// shared memory.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Numbers of pages, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Touched pages without a file: resident ones and swapped ones.
    pub(crate) anonymous: u64,
    /// Resident pages of all kinds.
    pub(crate) resident: u64,
}

impl Touched {
    fn add(&mut self, other: Touched) {
        self.anonymous += other.anonymous;
        self.resident += other.resident;
    }
}

/// The open page map. Held for one operation (Law 9).
pub(crate) struct Pagemap(File);

impl Pagemap {
    pub(crate) fn open() -> Option<Pagemap> {
        let has_words = |file: &File| matches!(file.read_at(0, &mut [0; 8]), Ok(8));
        let map = procfs::in_file_of_process("pagemap", &mut |file| Some(file).filter(has_words));
        map.map(Pagemap)
    }

    /// Returns the bytes of touched pages without a file in a range of addresses. Reads at most
    /// `most` pages of the map, from the end of the range.
    pub(crate) fn anonymous(&self, range: &Range<u64>, most: u64) -> u64 {
        self.pieces(range, most, &mut |_| true).anonymous
    }

    /// Returns the touched pages of a stack, which is touched from its end on. Stops at the first
    /// piece without a touched page.
    pub(crate) fn of_stack(&self, range: &Range<u64>, most: u64) -> Touched {
        self.pieces(range, most, &mut |touched| touched.anonymous > 0)
    }

    /// Returns the touched and the resident pages in a range. `left` is the number of pages that
    /// may be read. `None`: the range has more.
    pub(crate) fn touched(&self, range: &Range<u64>, left: &mut u64) -> Option<Touched> {
        let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        *left = left.checked_sub(end.checked_sub(first)?)?;
        let mut sum = Touched::default();
        let mut at = first;
        while at < end {
            let count = (end - at).min(PIECE as u64);
            sum.add(self.piece(at, count as usize));
            at += count;
        }
        Some(sum)
    }

    /// Sets the states of the pages from that number on.
    pub(crate) fn states(&self, first: u64, states: &mut [PageState]) {
        for (first, piece) in (first..).step_by(PIECE).zip(states.chunks_mut(PIECE)) {
            let mut piece = piece.iter_mut();
            self.words(first, piece.len(), &mut |word| {
                if let Some(state) = piece.next() {
                    *state = match word {
                        _ if word & PRESENT != 0 => PageState::Resident,
                        _ if word & SWAPPED != 0 => PageState::Swapped,
                        _ => PageState::Untouched,
                    };
                }
            });
        }
    }

    fn pieces(
        &self,
        range: &Range<u64>,
        most: u64,
        goes_on: &mut dyn FnMut(Touched) -> bool,
    ) -> Touched {
        let first = range.start / PAGE;
        let first = first.max((range.end / PAGE).saturating_sub(most));
        let mut end = range.end.div_ceil(PAGE);
        let mut sum = Touched::default();
        while end > first {
            let begin = end.saturating_sub(PIECE as u64).max(first);
            let touched = self.piece(begin, (end - begin) as usize);
            sum.add(touched);
            if !goes_on(touched) {
                break;
            }
            end = begin;
        }
        sum
    }

    /// Returns the touched ones among up to [`PIECE`] pages.
    fn piece(&self, first: u64, count: usize) -> Touched {
        let mut sum = Touched::default();
        self.words(first, count, &mut |word| {
            let is_anonymous = word & OF_FILE == 0 && word & (PRESENT | SWAPPED) != 0;
            sum.anonymous += PAGE * u64::from(is_anonymous);
            sum.resident += PAGE * u64::from(word & PRESENT != 0);
        });
        sum
    }

    /// Passes the words of up to [`PIECE`] pages to `visit`.
    fn words(&self, first: u64, count: usize, visit: &mut dyn FnMut(u64)) {
        const WORD: usize = size_of::<u64>();
        let mut place = [0u8; PIECE * WORD];
        let place = &mut place[..count.min(PIECE) * WORD];
        let read = self.0.read_at(first * WORD as u64, place).unwrap_or(0);
        for word in place[..read].chunks_exact(WORD) {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            visit(u64::from_ne_bytes(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_count_and_the_others_do_not() {
        const PAGES: u64 = 3000;
        let memory = crate::os::sys::map_zeroed((PAGES * PAGE) as usize).unwrap();
        // SAFETY: pages of this test alone. A huge page would be resident after one touch.
        unsafe {
            let len = (PAGES * PAGE) as usize;
            libc::madvise(memory.cast(), len, libc::MADV_NOHUGEPAGE)
        };
        let range = memory as u64..memory as u64 + PAGES * PAGE;
        let map = Pagemap::open().unwrap();
        assert_eq!(map.anonymous(&range, u64::MAX), 0);
        for page in (0..PAGES).step_by(10) {
            // SAFETY: within the mapping.
            unsafe { memory.add((page * PAGE) as usize).write_volatile(1) };
        }
        assert_eq!(map.anonymous(&range, u64::MAX), PAGES / 10 * PAGE);
        assert_eq!(map.anonymous(&range, 500), 50 * PAGE);
        let mut states = [PageState::Swapped; PAGES as usize];
        map.states(range.start / PAGE, &mut states);
        for (page, state) in states.into_iter().enumerate() {
            assert_eq!(state == PageState::Resident, page % 10 == 0, "{page}");
            assert_ne!(state, PageState::Swapped);
        }
        // The last thousand pages are a stack in use.
        let stack = range.start + 2000 * PAGE..range.end;
        let touched = map.of_stack(&stack, u64::MAX);
        assert_eq!([touched.anonymous, touched.resident], [100 * PAGE; 2]);
        // A piece without a touched page ends a stack.
        // SAFETY: within the mapping.
        let gap = unsafe { memory.add((1000 * PAGE) as usize) };
        // SAFETY: pages of this test alone.
        unsafe { libc::madvise(gap.cast(), (1000 * PAGE) as usize, libc::MADV_DONTNEED) };
        assert!(map.of_stack(&range, u64::MAX).anonymous < 200 * PAGE);
    }
}
