//! Pages: the resident, swapped and untouched bytes of blocks, and the free bytes that they pin.

use heapprof_core::{Estimate, Weight};

/// The sums of a row, at a reading of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pages {
    /// Requested bytes on resident pages.
    pub resident: Estimate,
    /// Requested bytes on pages that are swapped out.
    pub swapped: Estimate,
    /// Requested bytes on pages that were never touched, or were given back.
    pub untouched: Estimate,
    /// Free bytes of the slabs that the blocks are in. Each of a slab's live blocks has its share.
    pub pinned: Estimate,
}

/// The numbers of a block in a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PagesOfBlock {
    /// Resident and swapped bytes of the requested ones.
    pub(crate) touched: [u64; 2],
    /// Free and live blocks of its slab.
    pub(crate) slab: Option<(u32, u32)>,
}

impl Pages {
    /// Adds a block of `size` requested and `usable` usable bytes, by the weight of its sample.
    pub(crate) fn add(&mut self, block: PagesOfBlock, size: u64, usable: u64, weight: &Weight) {
        let [resident, swapped] = block.touched;
        let untouched = size.saturating_sub(resident).saturating_sub(swapped);
        self.resident.add(&weight.carrying(resident));
        self.swapped.add(&weight.carrying(swapped));
        self.untouched.add(&weight.carrying(untouched));
        let share = |(free, live): (u32, u32)| match live {
            0 => 0.0,
            live => usable as f64 * f64::from(free) / f64::from(live),
        };
        let pinned = block.slab.map_or(0.0, share);
        self.pinned.add(&weight.carrying_part(pinned));
    }

    /// Adds the sums of other samples.
    pub(crate) fn merge(&mut self, other: &Pages) {
        self.resident.merge(&other.resident);
        self.swapped.merge(&other.swapped);
        self.untouched.merge(&other.untouched);
        self.pinned.merge(&other.pinned);
    }

    /// Returns true if no block of a reading is in the sums.
    pub(crate) fn is_empty(&self) -> bool {
        self.resident.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(touched: [u64; 2], slab: Option<(u32, u32)>) -> PagesOfBlock {
        PagesOfBlock { touched, slab }
    }

    #[test]
    fn blocks_are_divided_without_a_rest_and_share_what_their_slab_has_free() {
        let exact = Weight::of(1000, 1);
        let mut pages = Pages::default();
        // Three live blocks of 1024 bytes in a slab with one free block.
        for touched in [[1000, 0], [600, 300], [0, 0]] {
            pages.add(block(touched, Some((1, 3))), 1000, 1024, &exact);
        }
        pages.add(block([1000, 0], None), 1000, 1024, &exact);
        let numbers = [
            pages.resident.bytes(),
            pages.swapped.bytes(),
            pages.untouched.bytes(),
            pages.pinned.bytes(),
        ];
        assert_eq!(numbers, [2600, 300, 1100, 1024]);
        assert_eq!(pages.pinned.bytes_error(), 0.0);
        // A log may say anything.
        pages.add(block([1, 2], Some((9, 0))), 1, 1, &exact);
        assert_eq!(pages.pinned.bytes(), 1024);
    }

    #[test]
    fn a_sample_stands_for_others_and_has_their_error() {
        let weight = Weight::of(1000, 100_000);
        let mut pages = Pages::default();
        pages.add(block([400, 0], Some((30, 2))), 1000, 1024, &weight);
        let times = weight.objects_f64();
        let near = |is: f64, expected: f64| (is / expected - 1.0).abs() < 1e-6;
        assert!(near(pages.resident.bytes_f64(), 400.0 * times));
        assert!(near(pages.untouched.bytes_f64(), 600.0 * times));
        assert!(near(pages.pinned.bytes_f64(), 15.0 * 1024.0 * times));
        let ratio = pages.pinned.bytes_error() / pages.resident.bytes_error();
        assert!(near(ratio, 15.0 * 1024.0 / 400.0));
    }
}
