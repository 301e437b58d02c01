//! The identity of a stack: a 64-bit hash of its addresses, built while walking.
//!
//! Two different stacks collide with a probability of n²/2^65 among n stacks: one in 37 million for
//! a million of them. A collision would credit one stack's bytes to the other.

/// Builds the hash, innermost frame first.
#[derive(Debug, Clone, Copy)]
pub struct StackHasher(u64);

impl Default for StackHasher {
    fn default() -> Self {
        StackHasher::new()
    }
}

impl StackHasher {
    /// No frames yet.
    pub const fn new() -> Self {
        StackHasher(0x243f_6a88_85a3_08d3) // the first digits of pi: any odd mixture will do
    }

    /// One frame further out.
    #[inline(always)]
    pub fn push(&mut self, address: u64) {
        // One multiplication a frame; the rotation lets order matter and brings the high bits,
        // where a multiplication mixes best, back down.
        self.0 = (self.0.rotate_left(23) ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// The hash; never 0, which tables use for "no entry".
    #[inline]
    pub fn finish(self, extra: u64) -> u64 {
        let mut z = self.0 ^ extra.wrapping_mul(0xd1b5_4a32_d192_ed03);
        z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z ^= z >> 32;
        z.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn hash(frames: &[u64]) -> u64 {
        let mut hasher = StackHasher::new();
        for &frame in frames {
            hasher.push(frame);
        }
        hasher.finish(0)
    }

    #[test]
    fn order_and_length_matter() {
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[1]), hash(&[1, 0]));
        assert_ne!(hash(&[]), hash(&[0]));
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
}
