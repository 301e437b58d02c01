//! Two places for each address: in which of several direct-mapped caches its entry is.
//!
//! In a cache that has one place for each address, a fifth of them displace each other when it is a quarter full. Where each may be in one
//! of two caches and moves to the other when it has displaced somebody, nearly all soon have a place of their own (two choices for each key, as in
//! cuckoo hashing: Pagh and Rodler 2001). Which one it is is a bit by its hash: addresses that share a bit move together, and
//! back.
//!
//! Not here: the caches. The caller asks for a number and says when something was displaced.

/// Marks, one for each value of sixteen bits of a hash.
const MARK_WORDS: usize = (1 << 16) / 64;

/// See the module's text.
#[derive(Debug)]
pub struct Places {
    /// Set: the second of the two.
    marks: Vec<u64>,
}

impl Places {
    /// With all addresses in the first of their places.
    #[must_use]
    pub fn new() -> Places {
        Places {
            marks: vec![0; MARK_WORDS],
        }
    }

    /// The number of the cache for an address. `count`: how many there are, a power of two; with one there is no choice.
    #[inline(always)]
    #[must_use]
    pub fn cache_of(&self, address: u64, count: usize) -> usize {
        let (word, bit) = place_of_mark(address);
        let is_second = self.marks[word] >> bit & 1;
        let hash = hash(address) >> (48 - 8 * is_second);
        hash as usize & (count - 1)
    }

    /// The entry of this address displaced another's: next time it goes to its other place.
    #[cold]
    pub fn has_displaced(&mut self, address: u64) {
        let (word, bit) = place_of_mark(address);
        self.marks[word] ^= 1 << bit;
    }
}

impl Default for Places {
    fn default() -> Places {
        Places::new()
    }
}

#[inline(always)]
fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Of the address's mark: its word and the bit there.
#[inline(always)]
fn place_of_mark(address: u64) -> (usize, u64) {
    let mark = hash(address) >> 32;
    ((mark >> 6) as usize & (MARK_WORDS - 1), mark & 63)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::Rng;

    const CACHES: usize = 64;
    const SLOTS: u64 = 509;

    /// Looks each address up, in a new order each time, in caches that are direct-mapped. Returns how many displaced another in each
    /// round.
    fn displaced(
        addresses: &[u64],
        rounds: usize,
        mut moves: impl FnMut(&mut Places, u64),
    ) -> Vec<usize> {
        let mut places = Places::new();
        let mut entries: HashMap<(usize, u64), u64> = HashMap::new();
        let mut order = addresses.to_vec();
        let mut by_round = Vec::new();
        for round in 0..rounds {
            order.rotate_left(round * 977 % addresses.len());
            let mut displaced = 0;
            for &address in &order {
                let slot = (places.cache_of(address, CACHES), address % SLOTS);
                let was = entries.insert(slot, address);
                if was.is_some_and(|was| was != address) {
                    displaced += 1;
                    moves(&mut places, address);
                }
            }
            by_round.push(displaced);
        }
        by_round
    }

    /// Call sites of 8192 functions, which are of 16 to 271 bytes each.
    fn addresses() -> Vec<u64> {
        let mut rng = Rng::new(1);
        let mut end = 0x5555_5555_5000;
        let mut next = || {
            end += 16 + (rng.next_u64() & 255);
            end
        };
        (0..8192).map(|_| next()).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn a_quarter_full_nearly_all_have_a_place_soon() {
        let moved = displaced(&addresses(), 40, Places::has_displaced);
        let stayed = displaced(&addresses(), 40, |_, _| {});
        assert!(stayed[39] > 1000, "{stayed:?}");
        assert!(moved[39] < stayed[39] / 10, "{moved:?}");
    }

    #[test]
    fn with_one_cache_there_is_no_choice() {
        let mut places = Places::new();
        for address in addresses() {
            assert_eq!(places.cache_of(address, 1), 0);
            places.has_displaced(address);
            assert_eq!(places.cache_of(address, 1), 0);
        }
    }
}
