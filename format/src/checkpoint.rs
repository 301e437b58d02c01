//! Checkpoint: the first part of a segment of a rotated log, in place of the segments before it.
//!
//! Glossary: checkpoint.
//!
//! ```text
//!  segment 1      Start | events …
//!  segment n > 1  Start | Checkpoint  modules, threads, stacks
//!                                     CoarseMoment*  bytes in use before, in order of time
//!                                     Passed*        totals of earlier frees, by stack and class
//!                                     Alloc*         blocks in use, in order of time, as recorded
//!                                     Free*          of blocks from before a fork
//!                                     Counters
//!                         CheckpointEnd | events …
//! ```
//!
//! So a segment is a log by itself: its totals and its live set are those of the whole run. Blocks
//! in use are not in the totals of [`Passed`]. The sum of both is exactly everything ever
//! allocated, because the sums are fixed-point numbers.
//!
//! Consecutive segments, concatenated, are one log. Any number of zero bytes may stand between them
//! (`cat` makes none; mapping files into memory pads to a page). [`Reader`](crate::Reader) skips
//! the checkpoints of all segments but the first, because the events before them say the same. A
//! segment without its `CheckpointEnd` is unfinished and is ignored.

use crate::varint::{put, take};

/// The beginning of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Number of the segment. The first segment, which has no checkpoint, is 1.
    pub segment: u32,
    /// The moment whose state it holds.
    pub time_ns: u64,
    /// Bytes in all segments before this one, kept or not.
    pub bytes_before: u64,
    /// Time of the peak of bytes in use so far.
    pub peak_ns: u64,
    /// Bytes in use at that time, in units of 2^-32 bytes.
    pub peak_bytes: i128,
    /// Smallest and largest interval of a sample so far; both 0 without samples.
    pub intervals: (u64, u64),
    /// Bytes ever requested, with one for an empty block; see [`Sums`].
    pub requested: Sums,
}

/// An estimate: the stored form of `heapprof_core::Estimate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Samples in the estimate.
    pub samples: u64,
    /// Blocks, bytes, variance of the blocks, variance of the bytes, in units of 2^-32.
    pub fixed: [i128; 4],
}

/// The blocks of one stack and size class that were allocated and freed before a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Number of the stack.
    pub stack: u32,
    /// Number of the size class, as `heapprof_core::SizeClass` counts them.
    pub class: u8,
    /// Time of the stack's first sample.
    pub first_ns: u64,
    /// The numbers. They may be zero: the stack and class then only have blocks in use.
    pub sums: Sums,
}

/// Appends a signed number as a u128, with small magnitudes small, as `zigzag`.
fn put_wide(out: &mut Vec<u8>, value: i128) {
    let mut value = ((value << 1) ^ (value >> 127)) as u128;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes at most nineteen bytes. A cut, or bits beyond the 128th, are an error.
fn take_wide(bytes: &mut &[u8]) -> Option<i128> {
    let mut value = 0u128;
    for (i, &byte) in bytes.iter().enumerate() {
        if i == 18 && byte > 3 {
            return None;
        }
        value |= u128::from(byte & 0x7f) << (7 * i as u32);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Some((value >> 1) as i128 ^ -((value & 1) as i128));
        }
    }
    None
}

impl Sums {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.samples);
        for &value in &self.fixed {
            put_wide(out, value);
        }
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Sums> {
        let samples = take(bytes)?;
        let mut fixed = [0; 4];
        for value in &mut fixed {
            *value = take_wide(bytes)?;
        }
        Some(Sums { samples, fixed })
    }
}

impl Checkpoint {
    /// Appends all but the time, which the log writes in its unit.
    pub(crate) fn put_rest(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.segment));
        put(out, self.bytes_before);
        put(out, self.peak_ns);
        put_wide(out, self.peak_bytes);
        put(out, self.intervals.0);
        put(out, self.intervals.1);
        self.requested.put(out);
    }

    pub(crate) fn take_rest(time_ns: u64, bytes: &mut &[u8]) -> Option<Checkpoint> {
        Some(Checkpoint {
            time_ns,
            segment: u32::try_from(take(bytes)?).ok()?,
            bytes_before: take(bytes)?,
            peak_ns: take(bytes)?,
            peak_bytes: take_wide(bytes)?,
            intervals: (take(bytes)?, take(bytes)?),
            requested: Sums::take(bytes)?,
        })
    }
}

impl Passed {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.stack));
        out.push(self.class);
        put(out, self.first_ns);
        self.sums.put(out);
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Passed> {
        let stack = u32::try_from(take(bytes)?).ok()?;
        let (&class, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(Passed {
            stack,
            class,
            first_ns: take(bytes)?,
            sums: Sums::take(bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_wide_number_comes_back(shift in 0u32..128, value in any::<i128>()) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_wide(&mut bytes, value);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_wide(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            let _ = take_wide(&mut &bytes[..]);
            let _ = Passed::take(&mut &bytes[..]);
            let _ = Checkpoint::take_rest(0, &mut &bytes[..]);
        }
    }

    #[test]
    fn wide_numbers_at_their_limits() {
        for value in [i128::MIN, -1, 0, 1, i128::MAX] {
            let mut bytes = Vec::new();
            put_wide(&mut bytes, value);
            assert!(bytes.len() <= 19);
            assert_eq!(take_wide(&mut &bytes[..]), Some(value));
            assert_eq!(take_wide(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take_wide(&mut &[0xff; 20][..]), None);
        // The nineteenth byte has room for two bits of the 128.
        let ends_with = |last| take_wide(&mut &[&[0xff; 18][..], &[last]].concat()[..]);
        assert_eq!(ends_with(3), Some(i128::MIN));
        assert_eq!(ends_with(4), None);
    }
}
