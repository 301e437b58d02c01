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
    /// Counts the pages of a range. Parts of it may be `others`', in order: files or shared memory
    /// that the program has mapped over its blocks. These blocks have no pages there.
    pub(super) fn read(map: &Pagemap, places: &Range<u64>, others: &[Range<u64>]) -> HeapPages {
        let mut walk = UntouchedWalk::new();
        let mut touched = 0;
        let mut visit = |part: Range<u64>, state| {
            let is_touched = state != PageState::Untouched;
            if is_touched {
                touched += part.end - part.start;
            }
            if let Some(walk) = &mut walk {
                walk.add(part, is_touched);
            }
        };
        let mut at = places.start;
        for other in others.iter().filter(|other| other.start >= places.start) {
            map.each_part(&(at..other.start), &mut visit);
            visit(other.clone(), PageState::Untouched);
            at = other.end;
        }
        map.each_part(&(at..places.end), &mut visit);
        HeapPages {
            touched,
            untouched: walk.map(|walk| walk.sums),
        }
    }
}
