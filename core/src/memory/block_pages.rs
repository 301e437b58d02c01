//! Block pages: the part of each block that lies on resident pages, on swapped ones, and on pages
//! that were never touched.
//!
//! ```text
//!   pages     │ resident │ swapped  │          │ resident │
//!   blocks       ├─ a ─┤├──── b ────┤   ├──────── c ────┤
//! ```
//!
//! The blocks come in ascending order of their addresses. The states of pages are read in windows.
//! A window goes on over the blocks that follow, up to a gap that is cheaper to skip than to read.

use std::ops::Range;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages without a block that are read, because another read costs more.
const GAP: u64 = 32;
/// Most pages of a window.
const WINDOW: usize = 512;

/// The state of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageState {
    /// Never touched, given back, or not mapped.
    #[default]
    Untouched,
    /// In memory.
    Resident,
    /// Swapped out.
    Swapped,
}

/// A block in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacedBlock {
    /// First address.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Id of its sample.
    pub id: u64,
    /// True if a pool of the program gave it out, inside of another block.
    pub is_of_pool: bool,
}

impl PlacedBlock {
    fn pages(&self) -> Range<u64> {
        let end = self.address.saturating_add(self.size);
        self.address / PAGE..end.div_ceil(PAGE)
    }
}

/// The states of pages, read as they are needed.
#[derive(Debug)]
pub struct BlockPages {
    /// Number of the first page of the window.
    first: u64,
    window: Vec<PageState>,
    read: u64,
}

impl Default for BlockPages {
    fn default() -> Self {
        BlockPages {
            first: 0,
            window: Vec::with_capacity(WINDOW),
            read: 0,
        }
    }
}

impl BlockPages {
    /// Returns the number of pages that were read.
    #[must_use]
    pub fn pages_read(&self) -> u64 {
        self.read
    }

    /// Returns the resident and the swapped bytes of the first one of `blocks`, which are in
    /// ascending order. `read` gets the number of a page, and sets the states from this page on.
    /// It returns false to end the reading of a large block; the result is `None` then.
    pub fn touched(
        &mut self,
        blocks: &[PlacedBlock],
        read: &mut dyn FnMut(u64, &mut [PageState]) -> bool,
    ) -> Option<[u64; 2]> {
        let Some(block) = blocks.first() else {
            return Some([0, 0]);
        };
        let (start, end) = (block.address, block.address.saturating_add(block.size));
        let mut bytes = [0, 0];
        for page in block.pages() {
            let part = (page * PAGE).max(start)..((page + 1) * PAGE).min(end);
            let place = match self.state(page, blocks, read)? {
                PageState::Untouched => continue,
                PageState::Resident => 0,
                PageState::Swapped => 1,
            };
            bytes[place] += part.end - part.start;
        }
        Some(bytes)
    }

    fn state(
        &mut self,
        page: u64,
        blocks: &[PlacedBlock],
        read: &mut dyn FnMut(u64, &mut [PageState]) -> bool,
    ) -> Option<PageState> {
        let place = page.wrapping_sub(self.first) as usize;
        if let Some(&state) = self.window.get(place) {
            return Some(state);
        }
        self.first = page;
        self.window.clear();
        let count = window_end(page, blocks) - page;
        self.window.resize(count as usize, PageState::Untouched);
        self.read += count;
        let may_continue = read(page, &mut self.window);
        may_continue.then(|| self.window[0])
    }
}

/// Returns the end of the window that begins at a page of the first block.
fn window_end(page: u64, blocks: &[PlacedBlock]) -> u64 {
    let most = page + WINDOW as u64;
    let mut end = page + 1;
    for block in blocks {
        let pages = block.pages();
        if pages.start > end.saturating_add(GAP) || end >= most {
            break;
        }
        end = end.max(pages.end);
    }
    end.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(address: u64, size: u64) -> PlacedBlock {
        PlacedBlock {
            address,
            size,
            id: 0,
            is_of_pool: false,
        }
    }

    /// The states of the world: pages 10 and 13 are resident, page 11 is swapped out.
    fn world(page: u64, states: &mut [PageState]) -> bool {
        for (number, state) in (page..).zip(states) {
            *state = match number {
                10 | 13 => PageState::Resident,
                11 => PageState::Swapped,
                _ => PageState::Untouched,
            };
        }
        true
    }

    #[test]
    fn bytes_belong_to_the_pages_that_they_lie_on() {
        let blocks = [
            block(10 * PAGE + 100, 200),
            block(11 * PAGE - 1, 3),
            block(11 * PAGE + 4000, 2 * PAGE),
            block(20 * PAGE, 0),
            block(20 * PAGE, 9 * PAGE),
        ];
        let mut pages = BlockPages::default();
        let touched = (0..blocks.len()).map(|at| pages.touched(&blocks[at..], &mut world));
        assert_eq!(
            touched.collect::<Vec<_>>(),
            [[200, 0], [1, 2], [4000, 96], [0, 0], [0, 0]].map(Some)
        );
        // The blocks are near each other: one window.
        assert_eq!(pages.pages_read(), 29 - 10);
        assert_eq!(pages.touched(&[], &mut world), Some([0, 0]));
    }

    #[test]
    fn a_gap_is_not_read_and_a_large_block_is_many_windows() {
        let blocks = [block(10 * PAGE, 1), block((12 + GAP) * PAGE, 5000 * PAGE)];
        let mut pages = BlockPages::default();
        assert_eq!(pages.touched(&blocks, &mut world), Some([1, 0]));
        assert_eq!(pages.pages_read(), 1);
        let mut windows = 0;
        let touched = pages.touched(&blocks[1..], &mut |page, states| {
            windows += 1;
            world(page, states)
        });
        assert_eq!(touched, Some([0, 0]));
        assert_eq!(
            (pages.pages_read(), windows),
            (5001, 5000 / WINDOW as u64 + 1)
        );
        // A reading that is ended has no result.
        let mut left = 3;
        let ended = BlockPages::default().touched(&blocks[1..], &mut |_, _| {
            left -= 1;
            left > 0
        });
        assert_eq!((ended, left), (None, 0));
    }

    proptest! {
        /// Against a byte by byte count.
        #[test]
        fn it_agrees_with_a_count_of_bytes(
            states in prop::collection::vec(0u8..3, 1..40),
            sizes in prop::collection::vec((0u64..3 * PAGE, 0u64..2 * PAGE), 1..20),
        ) {
            let state = |page: u64| match states.get(page as usize) {
                Some(1) => PageState::Resident,
                Some(2) => PageState::Swapped,
                _ => PageState::Untouched,
            };
            let mut address = 0;
            let mut blocks = Vec::new();
            for (gap, size) in sizes {
                blocks.push(block(address + gap, size));
                address += gap + size;
            }
            let mut pages = BlockPages::default();
            for at in 0..blocks.len() {
                let touched = pages.touched(&blocks[at..], &mut |page, window| {
                    window.iter_mut().zip(page..).for_each(|(it, page)| *it = state(page));
                    true
                });
                let it = blocks[at];
                let count = |wanted| {
                    let bytes = it.address..it.address + it.size;
                    bytes.filter(|byte| state(byte / PAGE) == wanted).count() as u64
                };
                let expected = [count(PageState::Resident), count(PageState::Swapped)];
                prop_assert_eq!(touched, Some(expected));
            }
        }
    }
}
