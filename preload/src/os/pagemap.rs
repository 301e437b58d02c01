//! Page map: which pages of this process were touched, by `/proc/self/pagemap`.
//!
//! The kernel tells a word for each page. The bits below need no rights. A page that was only read
//! is mapped to the kernel's page of zeros: it is present, and no memory of the process. Its word
//! is that of a page that processes share, so the kernel is asked which of these it is (Linux 6.7;
//! an older one counts it as resident). Where no page belongs to a file, the kernel is asked for
//! ranges of touched pages in place of words, which costs a quarter.

use std::cell::Cell;
use std::ops::Range;

use heapprof_core::PageState;

use crate::os::procfs;
use crate::os::seccomp::AvoidableCall;
use crate::os::sys::{File, PAGE};

/// Pages that are read at once.
const CHUNK: usize = 512;
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
    /// True if the kernel may be asked for ranges of pages of a kind.
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
        self.sum_chunks(range, most, &mut |_| true).anonymous
    }

    /// Returns the touched bytes in ranges of which no page belongs to a file. `None`: the kernel
    /// does not tell ranges of touched pages, and the words of the map cost more.
    pub(crate) fn scanned(&self, ranges: impl Iterator<Item = Range<u64>>) -> Option<u64> {
        let mut touched = 0;
        for range in ranges {
            let pages = range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE);
            let is_told = self.can_scan.get()
                && (self.file)
                    .each_touched_range(&pages, &mut |pages| {
                        touched += pages.range.end - pages.range.start;
                    })
                    .is_ok();
            if !is_told {
                return None;
            }
        }
        Some(touched)
    }

    /// Passes a range to `visit` part by part, in order: addresses, and the state of their pages.
    /// No page of the range may belong to a file.
    pub(crate) fn each_part(
        &self,
        range: &Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, PageState),
    ) {
        let mut at = range.start & !(PAGE - 1);
        let end = range.end.next_multiple_of(PAGE);
        if self.can_scan.get() {
            let scanned = self.file.each_touched_range(&(at..end), &mut |pages| {
                let range = pages.range;
                if at < range.start {
                    visit(at..range.start, PageState::Untouched);
                }
                at = range.end;
                match pages.is_resident {
                    // They may be pages of zeros.
                    true if pages.is_huge => self.each_page(range, visit),
                    true => visit(range, PageState::Resident),
                    false => visit(range, PageState::Swapped),
                }
            });
            if scanned.is_ok() {
                if at < end {
                    visit(at..end, PageState::Untouched);
                }
                return;
            }
            self.can_scan.set(false);
        }
        self.each_page(at..end, visit);
    }

    /// Passes the pages of a range to `visit`, of which none belongs to a file.
    fn each_page(&self, range: Range<u64>, visit: &mut dyn FnMut(Range<u64>, PageState)) {
        let mut page = range.start;
        while page < range.end {
            let count = ((range.end - page) / PAGE).min(CHUNK as u64);
            let end = page + count * PAGE;
            self.words(page / PAGE, count as usize, &mut |word| {
                let state = match word & OF_FILE {
                    0 => state_of(word),
                    _ => PageState::Untouched, // a huge page of zeros
                };
                visit(page..page + PAGE, state);
                page += PAGE;
            });
            page = end; // there may be fewer words
        }
    }

    /// Returns the touched pages of a stack, which is touched from its end on. Stops at the first
    /// chunk without a touched page.
    pub(crate) fn of_stack(&self, range: &Range<u64>, most: u64) -> TouchedBytes {
        self.sum_chunks(range, most, &mut |touched| touched.anonymous > 0)
    }

    /// Returns the touched and the resident pages in a range. `left` is the number of pages that
    /// may be read. `None`: the range has more. `has_file`: its pages may belong to a file.
    pub(crate) fn touched(
        &self,
        range: &Range<u64>,
        has_file: bool,
        left: &mut u64,
    ) -> Option<TouchedBytes> {
        let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        *left = left.checked_sub(end.checked_sub(first)?)?;
        let mut sum = TouchedBytes::default();
        if !has_file {
            self.each_part(range, &mut |part, state| {
                let bytes = part.end - part.start;
                let [is_touched, is_resident] =
                    [state != PageState::Untouched, state == PageState::Resident];
                sum.anonymous += bytes * u64::from(is_touched);
                sum.resident += bytes * u64::from(is_resident);
            });
            return Some(sum);
        }
        let mut at = first;
        while at < end {
            let count = (end - at).min(CHUNK as u64);
            sum.add(self.touched_in_chunk(at, count as usize));
            at += count;
        }
        Some(sum)
    }

    /// Sets the states of the pages from that number on.
    pub(crate) fn states(&self, first: u64, states: &mut [PageState]) {
        for (first, chunk) in (first..).step_by(CHUNK).zip(states.chunks_mut(CHUNK)) {
            let mut chunk = chunk.iter_mut();
            self.words(first, chunk.len(), &mut |word| {
                if let Some(state) = chunk.next() {
                    *state = state_of(word);
                }
            });
        }
    }

    fn sum_chunks(
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
            let begin = end.saturating_sub(CHUNK as u64).max(first);
            let touched = self.touched_in_chunk(begin, (end - begin) as usize);
            sum.add(touched);
            if !may_continue(touched) {
                break;
            }
            end = begin;
        }
        sum
    }

    /// Returns the touched ones among up to [`CHUNK`] pages.
    fn touched_in_chunk(&self, first: u64, count: usize) -> TouchedBytes {
        let mut sum = TouchedBytes::default();
        self.words(first, count, &mut |word| {
            sum.anonymous += PAGE * u64::from(is_anonymous(word));
            sum.resident += PAGE * u64::from(word & PRESENT != 0);
        });
        sum
    }

    /// Passes the words of up to [`CHUNK`] pages to `visit`. Pages of zeros are not present.
    fn words(&self, first: u64, count: usize, visit: &mut dyn FnMut(u64)) {
        const WORD: usize = size_of::<u64>();
        let mut place = [0u8; CHUNK * WORD];
        let place = &mut place[..count.min(CHUNK) * WORD];
        let read = self.file.read_at(first * WORD as u64, place).unwrap_or(0);
        let mut words = [0; CHUNK];
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
        let asked = self.file.each_zero_range(&range, &mut |zeros| {
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

/// Returns the state of the page that a word tells of.
fn state_of(word: u64) -> PageState {
    match word {
        _ if word & PRESENT != 0 => PageState::Resident,
        _ if word & SWAPPED != 0 => PageState::Swapped,
        _ => PageState::Untouched,
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
        let reads_zeros = map.file.each_zero_range(&range, &mut |_| {}).is_ok();
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
        // A chunk without a touched page ends a stack.
        // SAFETY: within the mapping.
        let gap = unsafe { memory.add((1000 * PAGE) as usize) };
        // SAFETY: pages of this test alone.
        unsafe { libc::madvise(gap.cast(), (1000 * PAGE) as usize, libc::MADV_DONTNEED) };
        assert!(map.of_stack(&range, u64::MAX).anonymous < 200 * PAGE);
    }

    /// Returns the bytes of a range in each state, untouched ones first.
    fn sums(map: &Pagemap, range: &Range<u64>) -> [u64; 3] {
        let (mut sums, mut at) = ([0; 3], range.start);
        map.each_part(range, &mut |part, state| {
            assert_eq!(part.start, at);
            at = part.end;
            sums[state as usize] += part.end - part.start;
        });
        assert_eq!(at, range.end);
        sums
    }

    #[test]
    fn parts_are_those_of_the_words() {
        const LEN: u64 = 16 << 20;
        let huge = 2 << 20;
        let memory = crate::os::sys::map_zeroed(LEN as usize).unwrap() as u64;
        let begin = memory.next_multiple_of(huge);
        let at =
            |offset: u64| std::ptr::with_exposed_provenance_mut::<u8>((begin + offset) as usize);
        // SAFETY: pages of this test alone.
        unsafe {
            libc::madvise(at(0).cast(), huge as usize, libc::MADV_NOHUGEPAGE);
            libc::madvise(at(huge).cast(), 2 * huge as usize, libc::MADV_HUGEPAGE);
        }
        for page in 0..huge / PAGE {
            // SAFETY: within the mapping. A page in four is written, one is read, two are neither.
            unsafe {
                match page % 4 {
                    0 => at(page * PAGE).write(1),
                    1 => drop(at(page * PAGE).read_volatile()),
                    _ => {}
                }
            }
        }
        // SAFETY: within the mapping. Perhaps huge pages: one is written, one is only read.
        unsafe {
            at(huge).write(1);
            at(2 * huge).read_volatile();
        }
        let map = Pagemap::open().unwrap();
        let resident = |range| sums(&map, range)[PageState::Resident as usize];
        let (small, all) = (begin..begin + huge, begin..begin + 4 * huge);
        if map.can_scan.get() {
            assert_eq!(resident(&small), huge / 4);
            let touched =
                [false, true].map(|has_file| map.touched(&all, has_file, &mut { u64::MAX }));
            assert_eq!(touched[0], touched[1]);
            assert_eq!(touched[0].unwrap().resident, resident(&all));
        }
        // Words alone do not tell a small page of zeros from others.
        map.can_scan.set(false);
        assert_eq!(resident(&small), huge / 2);
    }
}
