//! Scan of the page map for pages of a kind (Linux 6.7: `PAGEMAP_SCAN` of `linux/fs.h`).

use std::ops::Range;

use super::file::File;
use super::{Errno, syscall};

/// The request: `_IOWR('f', 16, struct pm_scan_arg)`.
pub(crate) const PAGEMAP_SCAN: u64 = 0xC060_6610;
/// The kind of pages that are mapped to the kernel's page of zeros.
const PAGE_IS_PFNZERO: u64 = 1 << 5;

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

/// Most regions that are found at once.
const REGIONS: usize = 64;

impl File {
    /// In an open page map of this process: passes the parts of `range` to `visit` that are mapped
    /// to the kernel's page of zeros. `range` begins and ends with a page.
    pub(crate) fn each_zero_page(
        &self,
        range: &Range<u64>,
        visit: &mut dyn FnMut(Range<u64>),
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
                all_of: PAGE_IS_PFNZERO,
                returned: PAGE_IS_PFNZERO,
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
            for region in regions.iter().take(found as usize) {
                visit(region.start..region.end);
            }
            if arguments.walk_end <= start {
                break;
            }
            start = arguments.walk_end;
        }
        Ok(())
    }
}
