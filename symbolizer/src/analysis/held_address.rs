//! Held address: what follows from the readings for an address that no sampled block held.
//!
//! A slab has places of one size, one behind another from its first page on. A block of the slab
//! that is known gives the size of the places, and their number:
//!
//! ```text
//!   pages    │                       │
//!   places   │  │  │ known │  │ ? │  │    the first place begins where a page does
//! ```

use crate::analysis::completeness::Recorded;
use crate::model::held_address::{AddressBlock, HeldAddress, HeldAddresses};
use crate::model::precision::Precision;
use crate::model::profile::Profile;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// More bytes than a slab has.
const LARGEST_SLAB: u64 = 1 << 20;

/// A place in a slab, at the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabPlace {
    /// First address of the place.
    pub address: u64,
    /// Bytes of a block there: the size class.
    pub size: u64,
    /// Free blocks of the slab.
    pub free: u32,
    /// Blocks in use, sampled or not, with the free ones in caches of threads.
    pub live: u32,
}

impl HeldAddress {
    /// Returns the place in a slab where the address is, if one of the nearest blocks is in the
    /// same slab.
    pub fn slab_place(&self) -> Option<SlabPlace> {
        let near = [self.below, self.above].into_iter().flatten();
        near.filter_map(|block| place_beside(self.address, &block))
            .next()
    }
}

/// Returns the place of an address in the slab of a block. `None`: it is not in there, or where the
/// slab begins is not certain.
fn place_beside(address: u64, block: &AddressBlock) -> Option<SlabPlace> {
    let slab = block.slab?;
    let (size, places) = (block.usable(), u64::from(slab.free) + u64::from(slab.live));
    let bytes = size
        .checked_mul(places)
        .filter(|&bytes| bytes <= LARGEST_SLAB)?;
    let firsts = (0..places).filter_map(|before| block.address.checked_sub(before * size));
    let mut firsts = firsts.filter(|first| first.is_multiple_of(PAGE));
    let (first, other) = (firsts.next()?, firsts.next());
    let offset = address.checked_sub(first)?;
    (other.is_none() && bytes.is_multiple_of(PAGE) && offset < bytes).then(|| SlabPlace {
        address: first + offset / size * size,
        size,
        free: slab.free,
        live: slab.live,
    })
}

impl HeldAddresses {
    /// Returns true if each block of the program that is in use at a reading is in the reading: all
    /// allocations of the process are recorded, and no reading leaves a block out.
    pub fn have_all_blocks(&self, profile: &Profile) -> bool {
        let is_recorded = matches!(profile.recorded(), Recorded::All | Recorded::UpToTheLast);
        let is_exact = profile.precision() == Precision::Exact;
        is_recorded && is_exact && !profile.run.is_attached && !self.is_partial
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::Slab;

    use super::*;

    fn block(address: u64, size: u64, slab: Option<(u32, u32)>) -> AddressBlock {
        AddressBlock {
            id: 1,
            address,
            size: size - 1,
            slack: 1,
            stack: None,
            thread: 0,
            time_ns: 0,
            is_inherited: false,
            freed: None,
            slab: slab.map(|(free, live)| Slab { free, live }),
            seen_ns: (0, 0),
        }
    }

    #[test]
    fn a_block_in_the_same_slab_gives_the_size_of_the_place() {
        // Three pages with 128 places of 96 bytes.
        let slab = Some((100, 28));
        let known = block(0x10_0000 + 50 * 96, 96, slab);
        let size = |address| place_beside(address, &known).map(|it| (it.address, it.size));
        assert_eq!(size(0x10_0000), Some((0x10_0000, 96)));
        assert_eq!(
            size(0x10_0000 + 127 * 96 + 95),
            Some((0x10_0000 + 127 * 96, 96))
        );
        assert_eq!(size(0x10_0000 + 128 * 96), None);
        assert_eq!(size(0x10_0000 - 1), None);
        let place = place_beside(0x10_0000, &known).unwrap();
        assert_eq!((place.free, place.live), (100, 28));
    }

    #[test]
    fn where_a_slab_begins_must_be_certain() {
        let at = |block: AddressBlock| place_beside(block.address + 1, &block);
        assert_eq!(at(block(0x10_0000, 4096, None)), None);
        // Two pages might be the first one.
        assert_eq!(at(block(0x10_1000, 2048, Some((1, 3)))), None);
        // No page begins with a place; and a slab that is no number of pages.
        assert_eq!(at(block(0x10_0010, 64, Some((1, 63)))), None);
        assert_eq!(at(block(0x10_0000, 96, Some((1, 100)))), None);
        assert_eq!(
            at(block(0x10_0000, 1 << 40, Some((u32::MAX, u32::MAX)))),
            None
        );
    }
}
