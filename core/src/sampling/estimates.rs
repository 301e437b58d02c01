//! Estimates: a list of estimates, `N` for each index, that takes little memory where samples stand
//! for themselves alone.
//!
//! Model: a sum of whole blocks has 16 bytes, and the sum of all other samples is in another list.
//! There may be tens of thousands of indices, and each event needs another. So a read from memory
//! is most of what an event costs, and those of one index lie side by side.

use crate::sampling::estimate::Estimate;
use crate::sampling::weight::Weight;

/// See the module's text. It has all indices; estimates that were never changed are zero.
#[derive(Debug, Clone)]
pub struct Estimates<const N: usize> {
    whole: Vec<[Whole; N]>,
    others: Vec<[Estimate; N]>,
}

/// A sum of blocks that stand for themselves alone.
#[derive(Debug, Clone, Copy, Default)]
struct Whole {
    blocks: u64,
    bytes: u64,
}

impl<const N: usize> Default for Estimates<N> {
    fn default() -> Self {
        Estimates {
            whole: Vec::new(),
            others: Vec::new(),
        }
    }
}

impl<const N: usize> Estimates<N> {
    /// Adds a sample to the estimate of that number.
    #[inline]
    pub fn add(&mut self, index: usize, number: usize, weight: &Weight) {
        if let Some(bytes) = weight.whole_bytes() {
            let sum = &mut item(&mut self.whole, index, [Whole::default(); N])[number];
            if let Some(bytes) = sum.bytes.checked_add(bytes) {
                sum.bytes = bytes;
                sum.blocks += 1;
                return;
            }
        }
        self.others(index)[number].add(weight);
    }

    /// Adds the samples of another estimate to all estimates of an index.
    pub fn merge(&mut self, index: usize, other: &Estimate) {
        for sum in self.others(index) {
            sum.merge(other);
        }
    }

    /// Returns the estimates of an index.
    pub fn get(&self, index: usize) -> [Estimate; N] {
        let none = [Estimate::default(); N];
        let mut sums = self.others.get(index).copied().unwrap_or(none);
        for (sum, whole) in sums
            .iter_mut()
            .zip(self.whole.get(index).into_iter().flatten())
        {
            sum.merge(&Estimate::given(whole.blocks, whole.bytes));
        }
        sums
    }

    fn others(&mut self, index: usize) -> &mut [Estimate; N] {
        item(&mut self.others, index, [Estimate::default(); N])
    }
}

/// Returns the item of an index, and makes those up to it.
#[inline]
fn item<T: Copy>(items: &mut Vec<T>, index: usize, new: T) -> &mut T {
    if index >= items.len() {
        items.resize(index + 1, new);
    }
    &mut items[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against estimates one by one, with sums that overflow.
        #[test]
        fn it_is_a_list_of_estimates(
            samples in prop::collection::vec((0usize..5, 0usize..2, 0u32..64, any::<u64>(), 0u64..4), 0..60),
        ) {
            let (mut list, mut known) = (Estimates::<2>::default(), [[Estimate::default(); 2]; 6]);
            for (index, number, shift, bits, interval) in samples {
                let weight = Weight::of(bits >> shift, interval * 4096);
                list.add(index, number, &weight);
                known[index][number].add(&weight);
                if bits % 4 == 0 {
                    let other = known[5 - index][number];
                    list.merge(index, &other);
                    known[index].iter_mut().for_each(|sum| sum.merge(&other));
                }
                prop_assert_eq!(list.get(index), known[index]);
            }
            for (index, expected) in known.iter().enumerate() {
                prop_assert_eq!(list.get(index), *expected);
            }
        }
    }

    #[test]
    fn whole_blocks_need_no_other_sum() {
        let mut list = Estimates::<1>::default();
        for size in [0, 1, 1 << 47] {
            list.add(3, 0, &Weight::of(size, 1));
        }
        assert!(list.others.is_empty());
        assert_eq!(list.get(3)[0].bytes(), 1 + (1 << 47));
        // No sum of 64 bits has room for another.
        list.add(3, 0, &Weight::of(u64::MAX, 1));
        list.add(3, 0, &Weight::of(100, 4096));
        assert_eq!((list.others[3][0].samples, list.get(3)[0].samples), (2, 5));
    }
}
