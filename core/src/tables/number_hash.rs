//! Number hash: a hasher for maps whose keys are numbers.
//!
//! The standard hasher protects from keys that an attacker chooses, reads random numbers from the
//! system, and is slower. An attacker chooses the ids and the stack numbers of a
//! hostile log, but does not know where the program lies in memory: an address of the program
//! begins each map's hashes.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// A map from numbers.
pub type NumberMap<K, V> = HashMap<K, V, NumberState>;

/// The beginning of a map's hashes: an address, which the system chooses at random at each start.
#[derive(Debug, Clone, Copy)]
pub struct NumberState(u64);

impl Default for NumberState {
    fn default() -> Self {
        static HERE: u8 = 0;
        NumberState(std::ptr::from_ref(&HERE).addr() as u64)
    }
}

impl BuildHasher for NumberState {
    type Hasher = NumberHasher;

    #[inline]
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(self.0)
    }
}

/// Returns a hash of two numbers (the form of MurmurHash3's finalizer, Appleby).
#[inline]
pub fn mix(first: u64, second: u64) -> u64 {
    let mut z = first ^ second.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z = (z ^ (z >> 29)).wrapping_mul(0xd1b5_4a32_d192_ed03);
    z ^ (z >> 32)
}

/// A hasher that folds the words of a key into one by multiplication.
#[derive(Debug, Default, Clone, Copy)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // The map takes the bucket from the low bits and a tag from the top seven: both get the
        // well-mixed high half.
        self.0.rotate_left(26)
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The multiplication alone turns these numbers into small ones, whose upper bits are equal.
    /// The places of a map come from those bits.
    #[test]
    fn numbers_that_are_chosen_for_it_do_not_share_a_place() {
        // Times the multiplier, 1.
        const INVERSE: u64 = 0xf1de_83e1_9937_733d;
        let places = |state: NumberState| {
            let keys = (1..=4096u64).map(|i| i.wrapping_mul(INVERSE));
            let places: BTreeSet<u64> = keys.map(|key| state.hash_one(key) % 4096).collect();
            places.len()
        };
        assert_eq!(places(NumberState(0)), 1);
        // At random, a part of 1 - 1/e of the places is found: 2589.
        let found = places(NumberState::default());
        assert!(found > 2000, "{found}");
    }
}
