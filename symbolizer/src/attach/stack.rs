//! Stack: a copy of the part of a thread's stack that is in use.
//!
//! A copy takes less time than a judgement about it, so the thread goes on before the judgement.

use std::ops::Range;

use super::memory::Memory;
use super::modules;

/// Most bytes of a stack that are copied.
const MOST: usize = 1 << 20;

/// The mapped ranges of a process. They are read before threads stop, and again if an address is in
/// none of them.
pub(super) struct Mapped {
    pid: u32,
    ranges: Vec<Range<u64>>,
}

impl Mapped {
    /// Reads the ranges.
    pub(super) fn of(pid: u32) -> Mapped {
        let mut mapped = Mapped {
            pid,
            ranges: Vec::new(),
        };
        mapped.read();
        mapped
    }

    fn read(&mut self) {
        let map = modules::mappings(self.pid).unwrap_or_default();
        self.ranges = map.into_iter().map(|mapping| mapping.range).collect();
    }

    /// Returns the range around an address.
    pub(super) fn around(&mut self, address: u64) -> Option<Range<u64>> {
        let find = |ranges: &[Range<u64>]| {
            let mut ranges = ranges.iter();
            ranges.find(|range| range.contains(&address)).cloned()
        };
        find(&self.ranges).or_else(|| {
            self.read();
            find(&self.ranges)
        })
    }
}

/// See the module's text.
pub(super) struct Stack {
    at: u64,
    bytes: Vec<u8>,
}

impl Stack {
    /// Copies the stack above `sp`. It is empty if nothing is mapped there.
    pub(super) fn copy(memory: &Memory, mapped: &mut Mapped, sp: u64) -> Stack {
        let at = sp & !7;
        let range = mapped.around(sp).unwrap_or(at..at);
        let len = (range.end.saturating_sub(at) as usize).min(MOST);
        Stack {
            at,
            bytes: memory.some_bytes(at, len),
        }
    }

    /// Returns the word at an address. `None`: it is not in the copy.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let first = usize::try_from(address.checked_sub(self.at)?).ok()?;
        let word = self.bytes.get(first..first.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    /// Returns true if an aligned word of the stack is an address in these ranges.
    pub(super) fn names(&self, ranges: &[Range<u64>]) -> bool {
        let words = self.bytes.as_chunks::<8>().0.iter();
        words
            .copied()
            .map(u64::from_le_bytes)
            .any(|word| is_in(ranges, word))
    }
}

/// Returns true if the address is in one of the ranges.
pub(super) fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_words_above_the_stack_pointer() {
        let own = std::process::id();
        let memory = Memory::open(own).expect("our own memory");
        let words = [7u64, 0x4711, 9];
        let sp = words.as_ptr() as u64;
        let stack = Stack::copy(&memory, &mut Mapped::of(own), sp + 3);
        assert_eq!(stack.word(sp + 8), Some(0x4711));
        assert_eq!(stack.word(sp - 8), None);
        assert_eq!(stack.word(u64::MAX), None);
        assert!(stack.names(&[0..1, 0x4700..0x4712]));
        assert!(
            Stack::copy(&memory, &mut Mapped::of(own), 8)
                .bytes
                .is_empty()
        );
    }
}
