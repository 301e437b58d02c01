//! Scan of the page map for pages of a kind (Linux 6.7: `PAGEMAP_SCAN` of `linux/fs.h`).

use std::ops::Range;

use super::file::File;
use super::{Errno, syscall};

/// The request: `_IOWR('f', 16, struct pm_scan_arg)`.
pub(crate) const PAGEMAP_SCAN: u64 = 0xC060_6610;
/// Kinds of pages: resident ones; swapped ones; those that are mapped to the kernel's page of
/// zeros; parts of huge pages.
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// Touched pages of one kind, side by side.
pub(crate) struct TouchedPages {
    pub(crate) range: Range<u64>,
    /// False: they are swapped out.
    pub(crate) is_resident: bool,
    pub(crate) is_huge: bool,
}

/// The kernel's `struct page_region`: a range of addresses, and the kinds of its pages.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    kinds: u64,
}

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// The pages that a scan finds, and which of their kinds it tells.
#[derive(Clone, Copy)]
struct Pattern {
    /// Kinds that a page must not have.
    none_of: u64,
    /// Kinds that a page must have.
    all_of: u64,
    /// Kinds of which a page must have one; 0: none.
    any_of: u64,
    /// Kinds that are told.
    returned: u64,
}

/// Most regions that are found at once.
const REGIONS: usize = 64;

impl File {
    /// In an open page map of this process: passes the parts of `range` to `visit` that are mapped
    /// to the kernel's page of zeros. `range` begins and ends with a page.
    pub(crate) fn each_zero_range(
        &self,
        range: &Range<u64>,
        visit: &mut dyn FnMut(Range<u64>),
    ) -> Result<(), Errno> {
        let pattern = Pattern {
            none_of: 0,
            all_of: PAGE_IS_PFNZERO,
            any_of: 0,
            returned: PAGE_IS_PFNZERO,
        };
        self.scan(range, pattern, &mut |found| visit(found.start..found.end))
    }

    /// In an open page map of this process: passes the parts of `range` to `visit` whose pages are
    /// in memory or swapped out, and no pages of zeros. The first kernels with this request do not
    /// tell that a huge page is one of zeros. `range` begins and ends with a page.
    ///
    /// Costs a quarter of the words of the map: whether a page belongs to a file is not asked, for
    /// which the kernel would look up its description.
    pub(crate) fn each_touched_range(
        &self,
        range: &Range<u64>,
        visit: &mut dyn FnMut(TouchedPages),
    ) -> Result<(), Errno> {
        let pattern = Pattern {
            none_of: PAGE_IS_PFNZERO,
            all_of: 0,
            any_of: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            returned: PAGE_IS_PRESENT | PAGE_IS_HUGE,
        };
        self.scan(range, pattern, &mut |found| {
            visit(TouchedPages {
                range: found.start..found.end,
                is_resident: found.kinds & PAGE_IS_PRESENT != 0,
                is_huge: found.kinds & PAGE_IS_HUGE != 0,
            });
        })
    }

    /// Passes the parts of `range` to `visit` whose pages have that pattern, in order.
    fn scan(
        &self,
        range: &Range<u64>,
        pattern: Pattern,
        visit: &mut dyn FnMut(&PageRegion),
    ) -> Result<(), Errno> {
        let mut start = range.start;
        while start < range.end {
            let mut regions = [PageRegion::default(); REGIONS];
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                start,
                end: range.end,
                regions: regions.as_mut_ptr() as u64,
                regions_len: REGIONS as u64,
                inverted: pattern.none_of,
                all_of: pattern.none_of | pattern.all_of,
                any_of: pattern.any_of,
                returned: pattern.returned,
                ..ScanArguments::default()
            };
            // SAFETY: the kernel reads and writes one structure of the stated size, and at most
            // `REGIONS` regions.
            let found = unsafe {
                syscall(
                    libc::SYS_ioctl,
                    [
                        self.number,
                        PAGEMAP_SCAN,
                        std::ptr::from_mut(&mut arguments) as u64,
                        0,
                        0,
                        0,
                    ],
                )
            }?;
            regions.iter().take(found as usize).for_each(&mut *visit);
            if arguments.walk_end <= start {
                break;
            }
            start = arguments.walk_end;
        }
        Ok(())
    }
}
