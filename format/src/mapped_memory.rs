//! Mapped memory: changes of the program's mappings, and all mappings at one moment.
//!
//! A change is written for each call of `mmap`, `munmap`, `mremap` and `sbrk` that concerns at
//! least as many bytes as the setting `HEAPPROF_MMAP` says. A range that is mapped replaces all
//! that it covers; of a part that is unmapped, the rest stays. So the changes in their order tell
//! which stack mapped an address.
//!
//! ```text
//!   change   time │ thread │ start │ len │ 0: unmapped, else stack + 1
//!   moment   time │ number of parts │ of each: stack + 1, or 0 │ name │ mapped │ resident
//! ```
//!
//! The moment belongs to a reading of the memory. The kernel's list of mappings is the truth there:
//! memory that no change explains has a part without a stack.

use crate::field::{put_bytes, put_time, take_string, take_time, take_u32};
use crate::varint::{put, take};

/// A change of the program's mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingChange {
    /// Time of the change.
    pub time_ns: u64,
    /// Number of the thread that made it; the largest number: not known.
    pub thread: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Number of the stack that mapped the range. `None`: the range was unmapped, or mapped by a
    /// call that is not recorded.
    pub stack: Option<u32>,
}

/// The program's mappings at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MappedMemory {
    /// Time of the reading.
    pub time_ns: u64,
    /// The parts, those with the most resident bytes first.
    pub parts: Vec<MappedPart>,
}

/// Mappings with one stack and one name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MappedPart {
    /// Number of the stack that mapped them. `None`: it is not known.
    pub stack: Option<u32>,
    /// The name: a file's path, a name that the program gave, or a kind in brackets.
    pub name: String,
    /// Mapped bytes.
    pub mapped: u64,
    /// Resident bytes of these.
    pub resident: u64,
}

impl MappingChange {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_time(out, self.time_ns);
        put(out, u64::from(self.thread));
        put(out, self.start);
        put(out, self.len);
        put_stack(out, self.stack);
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(MappingChange {
            time_ns: take_time(bytes)?,
            thread: take_u32(bytes)?,
            start: take(bytes)?,
            len: take(bytes)?,
            stack: take_stack(bytes)?,
        })
    }
}

impl MappedMemory {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_time(out, self.time_ns);
        put(out, self.parts.len() as u64);
        for part in &self.parts {
            put_stack(out, part.stack);
            put_bytes(out, part.name.as_bytes());
            put(out, part.mapped);
            put(out, part.resident);
        }
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Self> {
        let time_ns = take_time(bytes)?;
        let count = take(bytes)?;
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push(MappedPart {
                stack: take_stack(bytes)?,
                name: take_string(bytes)?,
                mapped: take(bytes)?,
                resident: take(bytes)?,
            });
        }
        Some(MappedMemory { time_ns, parts })
    }
}

/// Appends the number of a stack, which mostly is small, or 0.
fn put_stack(out: &mut Vec<u8>, stack: Option<u32>) {
    put(out, stack.map_or(0, |stack| u64::from(stack) + 1));
}

fn take_stack(bytes: &mut &[u8]) -> Option<Option<u32>> {
    match take(bytes)? {
        0 => Some(None),
        next => Some(Some(u32::try_from(next - 1).ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment() -> MappedMemory {
        let part = |stack, name: &str, resident| MappedPart {
            stack,
            name: name.into(),
            mapped: 1 << 40,
            resident,
        };
        MappedMemory {
            time_ns: 7_000,
            parts: vec![
                part(Some(0), "[anonymous]", 1 << 30),
                part(Some(u32::MAX), "/a file", 4096),
                part(None, "", 0),
            ],
        }
    }

    #[test]
    fn a_moment_comes_back_and_a_cut_one_is_damage() {
        let mut bytes = Vec::new();
        moment().put(&mut bytes);
        assert_eq!(MappedMemory::take(&mut &bytes[..]), Some(moment()));
        for end in 0..bytes.len() {
            assert_eq!(MappedMemory::take(&mut &bytes[..end]), None);
        }
    }

    #[test]
    fn a_number_of_parts_beyond_the_bytes_takes_no_memory() {
        let mut bytes = Vec::new();
        put_time(&mut bytes, 0);
        put(&mut bytes, u64::MAX);
        assert_eq!(MappedMemory::take(&mut &bytes[..]), None);
    }

    #[test]
    fn a_change_comes_back_with_and_without_a_stack() {
        for stack in [None, Some(0), Some(u32::MAX)] {
            let change = MappingChange {
                time_ns: 3_000,
                thread: 2,
                start: 0x7fff_0000_0000,
                len: 1 << 21,
                stack,
            };
            let mut bytes = Vec::new();
            change.put(&mut bytes);
            assert_eq!(MappingChange::take(&mut &bytes[..]), Some(change));
        }
    }
}
