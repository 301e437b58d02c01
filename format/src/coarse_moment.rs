//! Coarse moment: the bytes in use at one moment of a run, as a rotating log keeps them for the
//! time whose segments are deleted.
//!
//! ```text
//!   time │ bytes │ standard error │ blocks │ most bytes │ resident │
//!   count, then stack and bytes of each
//! ```
//!
//! A checkpoint has them in order of time. The last one is of the checkpoint's own time, so "the
//! most" of all of them covers the whole run. Numbers are estimates, rounded to whole bytes.
//!
//! A stack that is not listed had no more bytes than the last one that is listed. How many it had
//! is not known.
//!
//! In a log that was joined from several, the most bytes are a bound. A stack that is listed had at
//! least its bytes: each process lists its own.

use crate::field::{put_time, take_first, take_time, take_u32};
use crate::varint::{put, take};

/// Most stacks of a moment that are read: more than the library names.
const MOST_STACKS: usize = 64;

/// See the module's text. It is the stored form of `heapprof_core::CoarseEntry`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoarseMoment {
    /// The moment.
    pub time_ns: u64,
    /// Requested bytes in use.
    pub bytes: u64,
    /// Their standard error.
    pub bytes_error: u64,
    /// Blocks in use.
    pub objects: u64,
    /// The most bytes in use at any time since the moment before.
    pub highest: u64,
    /// Resident bytes of the process by the last reading of its memory; 0: there was none.
    pub resident: u64,
    /// The stacks with the most bytes in use, the largest first: their numbers and bytes.
    pub largest: Vec<(u32, u64)>,
}

impl CoarseMoment {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_time(out, self.time_ns);
        put(out, self.bytes);
        put(out, self.bytes_error);
        put(out, self.objects);
        put(out, self.highest);
        put(out, self.resident);
        put(out, self.largest.len() as u64);
        for &(stack, bytes) in &self.largest {
            put(out, u64::from(stack));
            put(out, bytes);
        }
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Option<CoarseMoment> {
        Some(CoarseMoment {
            time_ns: take_time(bytes)?,
            bytes: take(bytes)?,
            bytes_error: take(bytes)?,
            objects: take(bytes)?,
            highest: take(bytes)?,
            resident: take(bytes)?,
            largest: take_first(bytes, MOST_STACKS, |bytes| {
                Some((take_u32(bytes)?, take(bytes)?))
            })?
            .0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moment(stacks: u32) -> CoarseMoment {
        CoarseMoment {
            time_ns: 3_600_000_000_000,
            bytes: 10 << 20,
            bytes_error: 77_000,
            objects: 1234,
            highest: 11 << 20,
            resident: 50 << 20,
            largest: (0..stacks).map(|n| (n, 1 << 40 >> n.min(40))).collect(),
        }
    }

    fn written(moment: &CoarseMoment) -> Vec<u8> {
        let mut bytes = Vec::new();
        moment.put(&mut bytes);
        bytes
    }

    #[test]
    fn a_moment_that_is_cut_is_damage_and_too_many_stacks_are_left_out() {
        let whole = moment(8);
        let bytes = written(&whole);
        assert_eq!(CoarseMoment::take(&mut &bytes[..]), Some(whole));
        for end in 0..bytes.len() {
            assert_eq!(CoarseMoment::take(&mut &bytes[..end]), None, "{end}");
        }
        let many = moment(MOST_STACKS as u32 + 3);
        let taken = CoarseMoment::take(&mut &written(&many)[..]);
        let taken = taken.expect("as many as there are");
        assert_eq!(taken.largest, many.largest[..MOST_STACKS]);
        // Stacks that are claimed and not there.
        let none = written(&moment(0));
        let claims = [&none[..none.len() - 1], &[0xff, 0xff, 0xff, 0xff, 0x7f, 1]].concat();
        assert_eq!(CoarseMoment::take(&mut &claims[..]), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = CoarseMoment::take(&mut &bytes[..]);
        }
    }
}
