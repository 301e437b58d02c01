//! Page map: which pages of this process were touched, by `/proc/self/pagemap`.
//!
//! The kernel tells a word for each page. The bits below need no rights. A page that was only read
//! is mapped to the kernel's page of zeros: it is present, and no memory of the process. Its word
//! is that of a page that processes share, so the kernel is asked which of these it is (Linux 6.7;
//! an older one counts it as resident).

use std::cell::Cell;
use std::ops::Range;

use heapprof_core::PageState;

use crate::os::procfs;
use crate::os::seccomp::AvoidableCall;
use crate::os::sys::{File, PAGE};

/// Pages that are read at once.
const PIECE: usize = 512;
/// Bits of a page's word: the page is resident; it is swapped out; it belongs to a file or to
/// shared memory; this process alone has it.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// Numbers of pages, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TouchedBytes {
    /// Touched pages without a file: resident ones and swapped ones.
    pub(crate) anonymous: u64,
    /// Resident pages of all kinds.
    pub(crate) resident: u64,
}

impl TouchedBytes {
    fn add(&mut self, other: TouchedBytes) {
        self.anonymous += other.anonymous;
        self.resident += other.resident;
    }
}

/// The open page map. Held for one operation (Law 9).
pub(crate) struct Pagemap {
    file: File,
    /// True if the kernel may be asked for pages of zeros.
    can_scan: Cell<bool>,
}

impl Pagemap {
    pub(crate) fn open() -> Option<Pagemap> {
        let has_words = |file: &File| matches!(file.read_at(0, &mut [0; 8]), Ok(8));
        let map = procfs::in_file_of_process("pagemap", &mut |file| Some(file).filter(has_words));
        map.map(|file| Pagemap {
            file,
            can_scan: Cell::new(AvoidableCall::PageScan.is_allowed()),
        })
    }

    /// Returns the bytes of touched pages without a file in a range of addresses. Reads at most
    /// `most` pages of the map, from the end of the range.
    pub(crate) fn anonymous(&self, range: &Range<u64>, most: u64) -> u64 {
        self.pieces(range, most, &mut |_| true).anonymous
    }

    /// Passes each page of a range to `visit`: its address, and true if it was touched and belongs
    /// to no file.
    pub(crate) fn each(&self, range: &Range<u64>, visit: &mut dyn FnMut(u64, bool)) {
        let mut page = range.start / PAGE;
        let end = range.end.div_ceil(PAGE);
        while page < end {
            let count = (end - page).min(PIECE as u64) as usize;
            let mut read = 0;
            self.words(page, count, &mut |word| {
                visit((page + read) * PAGE, is_anonymous(word));
                read += 1;
            });
            page += count as u64;
        }
    }

    /// Returns the touched pages of a stack, which is touched from its end on. Stops at the first
    /// piece without a touched page.
    pub(crate) fn of_stack(&self, range: &Range<u64>, most: u64) -> TouchedBytes {
        self.pieces(range, most, &mut |touched| touched.anonymous > 0)
    }

    /// Returns the touched and the resident pages in a range. `left` is the number of pages that
    /// may be read. `None`: the range has more.
    pub(crate) fn touched(&self, range: &Range<u64>, left: &mut u64) -> Option<TouchedBytes> {
        let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        *left = left.checked_sub(end.checked_sub(first)?)?;
        let mut sum = TouchedBytes::default();
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
        may_continue: &mut dyn FnMut(TouchedBytes) -> bool,
    ) -> TouchedBytes {
        let first = range.start / PAGE;
        let first = first.max((range.end / PAGE).saturating_sub(most));
        let mut end = range.end.div_ceil(PAGE);
        let mut sum = TouchedBytes::default();
        while end > first {
            let begin = end.saturating_sub(PIECE as u64).max(first);
            let touched = self.piece(begin, (end - begin) as usize);
            sum.add(touched);
            if !may_continue(touched) {
                break;
            }
            end = begin;
        }
        sum
    }

    /// Returns the touched ones among up to [`PIECE`] pages.
    fn piece(&self, first: u64, count: usize) -> TouchedBytes {
        let mut sum = TouchedBytes::default();
        self.words(first, count, &mut |word| {
            sum.anonymous += PAGE * u64::from(is_anonymous(word));
            sum.resident += PAGE * u64::from(word & PRESENT != 0);
        });
        sum
    }

    /// Passes the words of up to [`PIECE`] pages to `visit`. Pages of zeros are not present.
    fn words(&self, first: u64, count: usize, visit: &mut dyn FnMut(u64)) {
        const WORD: usize = size_of::<u64>();
        let mut place = [0u8; PIECE * WORD];
        let place = &mut place[..count.min(PIECE) * WORD];
        let read = self.file.read_at(first * WORD as u64, place).unwrap_or(0);
        let mut words = [0; PIECE];
        let words = &mut words[..read / WORD];
        for (word, read) in words.iter_mut().zip(place.chunks_exact(WORD)) {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(read);
            *word = u64::from_ne_bytes(bytes);
        }
        // The kernel takes a huge page of zeros for one of a file.
        let may_be_zeros = |word: &u64| word & (PRESENT | EXCLUSIVE) == PRESENT;
        if self.can_scan.get() && words.iter().any(may_be_zeros) {
            self.clear_zeros(first, words);
        }
        words.iter().copied().for_each(visit);
    }

    /// Clears the words of pages of zeros.
    fn clear_zeros(&self, first: u64, words: &mut [u64]) {
        let range = first * PAGE..(first + words.len() as u64) * PAGE;
        let asked = self.file.each_zero_page(&range, &mut |zeros| {
            let index = |address: u64| (address / PAGE).saturating_sub(first) as usize;
            let zeros = index(zeros.start)..index(zeros.end).min(words.len());
            if let Some(words) = words.get_mut(zeros) {
                words.fill(0);
            }
        });
        if asked.is_err() {
            self.can_scan.set(false);
        }
    }
}

/// Returns true if that is the word of a touched page without a file.
fn is_anonymous(word: u64) -> bool {
    word & OF_FILE == 0 && word & (PRESENT | SWAPPED) != 0
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
        // A page that was only read is not touched, if the kernel tells it.
        let reads_zeros = map.file.each_zero_page(&range, &mut |_| {}).is_ok();
        for page in (5..PAGES).step_by(10) {
            // SAFETY: within the mapping.
            unsafe { memory.add((page * PAGE) as usize).read_volatile() };
        }
        if reads_zeros {
            assert_eq!(map.anonymous(&range, u64::MAX), PAGES / 10 * PAGE);
            map.states(range.start / PAGE, &mut states);
            assert_eq!(
                [states[5], states[10]],
                [PageState::Untouched, PageState::Resident]
            );
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
