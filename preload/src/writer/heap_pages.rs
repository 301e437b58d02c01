//! Heap pages: how many pages of the allocator's places were touched, and how many of each use were
//! not.

use std::ops::Range;

use heapprof_core::PageState;

use crate::allocator::{UntouchedPages, UntouchedWalk};
use crate::os::pagemap::Pagemap;

/// See the module's text. Bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeapPages {
    /// Touched pages of all uses.
    pub(super) touched: u64,
    /// Pages that were never touched. `None`: the uses of pages are not known.
    pub(super) untouched: Option<UntouchedPages>,
}

impl HeapPages {
    /// Counts the pages of a range.
    pub(super) fn read(map: &Pagemap, places: &Range<u64>) -> HeapPages {
        let mut walk = UntouchedWalk::new();
        let mut touched = 0;
        map.each_part(places, &mut |part, state| {
            let is_touched = state != PageState::Untouched;
            if is_touched {
                touched += part.end - part.start;
            }
            if let Some(walk) = &mut walk {
                walk.add(part, is_touched);
            }
        });
        HeapPages {
            touched,
            untouched: walk.map(|walk| walk.sums),
        }
    }
}
