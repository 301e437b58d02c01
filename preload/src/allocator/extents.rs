//! Extents: what jemalloc uses pages for that were never touched.
//!
//! Danger: private memory of another library, read while other threads change it. The map of
//! addresses (`rtree`) has an entry for the first page of each extent, with its state. An extent
//! that changes meanwhile counts as what it was or as what it becomes. No lock is taken, and no
//! page is read.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::allocator::counts::UntouchedPages;
use crate::allocator::layout::{
    ARENA_BITS, DIRTY, EXTENT_BYTES_AT, MUZZY, PAGE, RETAINED, STATE_AT, STATE_BITS,
};
use crate::allocator::{own_arena, rtree};

/// The use of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageUse {
    /// It belongs to a block of the program, or to a slab.
    Active,
    /// It is free, and will be returned to the kernel.
    Dirty,
    /// It is free, and the kernel may take it.
    Muzzy,
    /// It belongs to this library's arena.
    Own,
    /// It is in no extent, or has been returned to the kernel.
    Other,
}

/// A walk over all pages of the heap, in the order of their addresses.
pub(crate) struct UntouchedWalk {
    /// The pages so far that were never touched.
    pub(crate) sums: UntouchedPages,
    /// The end of the current extent, and its use.
    end: u64,
    current: PageUse,
    own_arena: Option<u64>,
}

impl UntouchedWalk {
    /// Returns a walk. `None`: jemalloc's layout is not verified.
    pub(crate) fn new() -> Option<UntouchedWalk> {
        rtree::root()?;
        Some(UntouchedWalk {
            sums: UntouchedPages::default(),
            end: 0,
            current: PageUse::Other,
            own_arena: own_arena::number().and_then(|number| u64::try_from(number).ok()),
        })
    }

    /// Adds the next pages, which follow those before.
    pub(crate) fn add(&mut self, pages: Range<u64>, is_touched: bool) {
        let mut at = pages.start;
        while at < pages.end {
            // Only the first page of an extent tells its end, so touched pages are walked, too.
            let current = self.use_of(at);
            let end = self.end.min(pages.end);
            if let Some(sum) = self.sum_of(current)
                && !is_touched
            {
                *sum += end - at;
            }
            at = end;
        }
    }

    fn sum_of(&mut self, use_of_pages: PageUse) -> Option<&mut u64> {
        match use_of_pages {
            PageUse::Active => Some(&mut self.sums.active),
            PageUse::Dirty => Some(&mut self.sums.dirty),
            PageUse::Muzzy => Some(&mut self.sums.muzzy),
            PageUse::Own => Some(&mut self.sums.own),
            PageUse::Other => None,
        }
    }

    fn use_of(&mut self, address: u64) -> PageUse {
        if address >= self.end {
            let extent = self.extent_at(address);
            let (bytes, current) = extent.unwrap_or((PAGE as u64, PageUse::Other));
            self.end = address.saturating_add(bytes);
            self.current = current;
        }
        self.current
    }

    /// Returns the bytes and the use of the extent that begins there.
    fn extent_at(&self, address: u64) -> Option<(u64, PageUse)> {
        let page = std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        // SAFETY: an address of the allocator's places has at most 48 bits. Leaves are never freed,
        // and an entry is one word.
        let entry = unsafe { rtree::entry(page) }.filter(|&entry| entry != 0)?;
        let extent = rtree::extent(entry);
        if extent.is_null() {
            return None;
        }
        let word = |at: usize| {
            let word = extent.wrapping_byte_add(at).cast::<AtomicU64>();
            // SAFETY: jemalloc never unmaps the description of an extent, and reuses it for extents
            // alone. Both words that are read are aligned.
            unsafe { &*word }.load(Ordering::Relaxed)
        };
        let bytes = word(EXTENT_BYTES_AT) & !(PAGE as u64 - 1);
        let is_own = Some(word(0) & ((1 << ARENA_BITS) - 1)) == self.own_arena;
        let state = entry >> STATE_AT & ((1 << STATE_BITS) - 1);
        let current = match state {
            RETAINED => PageUse::Other,
            _ if is_own => PageUse::Own,
            DIRTY => PageUse::Dirty,
            MUZZY => PageUse::Muzzy,
            _ => PageUse::Active, // or in transition
        };
        (bytes > 0).then_some((bytes, current))
    }
}
