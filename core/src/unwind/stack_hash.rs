//! Stack hash: a 64-bit hash of frames that identifies a stack.
//!
//! Each frame is one summand, mixed with its place counted from the root. A walk that repeats most
//! frames subtracts and adds only those that differ, and no summand waits for another.
//!
//! Among n stacks, two collide with a probability of n²/2^65: one in 37 million for a million
//! stacks. A collision would credit one stack's bytes to the other.

/// The sum over a stack's frames, in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StackHasher(u64);

impl StackHasher {
    /// Returns the sum of no frames.
    pub const fn new() -> Self {
        StackHasher(0)
    }

    /// Returns the summand of a frame that stands `place` frames above the root.
    #[inline(always)]
    #[must_use]
    pub const fn of_frame(place: usize, frame: u64) -> u64 {
        // Two rounds of multiplying and folding: each bit of either reaches every bit of the
        // summand (the form of MurmurHash3's finalizer, Appleby).
        let mut z = frame ^ (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z = (z ^ (z >> 29)).wrapping_mul(0xd1b5_4a32_d192_ed03);
        z ^ (z >> 32)
    }

    /// Adds a frame, as a summand of [`of_frame`](Self::of_frame).
    #[inline(always)]
    pub const fn add(&mut self, summand: u64) {
        self.0 = self.0.wrapping_add(summand);
    }

    /// Subtracts a frame that was added.
    #[inline(always)]
    pub const fn take(&mut self, summand: u64) {
        self.0 = self.0.wrapping_sub(summand);
    }

    /// Returns the hash, mixed with two more numbers that distinguish stacks. It is never 0, which
    /// tables use for "no entry".
    #[inline]
    #[must_use]
    pub const fn finish(self, first: u64, last: u64) -> u64 {
        let ends = StackHasher::of_frame(usize::MAX - 1, first)
            .wrapping_add(StackHasher::of_frame(usize::MAX - 2, last));
        let mut z = self.0.wrapping_add(ends);
        z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z ^= z >> 32;
        if z == 0 { 1 } else { z }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn hash(frames: &[u64]) -> u64 {
        let mut hasher = StackHasher::new();
        for (place, &frame) in frames.iter().enumerate() {
            hasher.add(StackHasher::of_frame(place, frame));
        }
        hasher.finish(0, 0)
    }

    #[test]
    fn order_and_length_matter() {
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[1]), hash(&[1, 0]));
        assert_ne!(hash(&[]), hash(&[0]));
        assert_ne!(
            StackHasher::new().finish(1, 2),
            StackHasher::new().finish(2, 1)
        );
    }

    #[test]
    fn what_is_taken_was_never_there() {
        let mut hasher = StackHasher::new();
        hasher.add(StackHasher::of_frame(3, 77));
        let before = hasher;
        hasher.add(StackHasher::of_frame(4, 78));
        assert_ne!(hasher, before);
        hasher.take(StackHasher::of_frame(4, 78));
        assert_eq!(hasher, before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn a_million_similar_stacks_do_not_collide() {
        let mut seen = HashSet::new();
        for a in 0..1000u64 {
            for b in 0..1000u64 {
                assert!(seen.insert(hash(&[
                    0x5555_0000_1000 + a * 8,
                    0x5555_0000_2000,
                    0x7f00_0000_0000 + b * 16
                ])));
            }
        }
    }

    /// Call chains that differ in single bits of single return addresses, as in one recursive
    /// function.
    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn paths_through_the_same_two_calls_do_not_collide() {
        let mut seen = HashSet::new();
        for path in 0..1u64 << 18 {
            let frames: Vec<u64> = (0..18)
                .map(|bit| 0x40_1100 + (path >> bit & 1) * 5)
                .collect();
            assert!(seen.insert(hash(&frames)));
        }
    }
}
