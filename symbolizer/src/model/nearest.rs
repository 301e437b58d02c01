//! Nearest reading: which of several readings stands for a moment.
//!
//! ```text
//!      60 ms before    moment   90 ms behind
//!   ──────── a ──────────┊────────── b ──────   b: it may be the reading of a marker at the moment
//!   ──────── a ──────────┊────────────── c ──   a: c is more than 100 ms behind
//! ```
//!
//! The library takes the reading of a marker or a dump when its writer comes to it, so a reading
//! that follows a moment closely comes before one that is nearer in front of it.

/// The longest time between a marker and its own reading.
const FOLLOWS_NS: u64 = 100_000_000;

/// Returns the rank of a reading for a moment, both in nanoseconds. The least is the nearest.
pub(crate) fn rank(read_ns: u64, moment_ns: u64) -> (bool, u64) {
    let follows = read_ns
        .checked_sub(moment_ns)
        .is_some_and(|behind| behind <= FOLLOWS_NS);
    (!follows, read_ns.abs_diff(moment_ns))
}

/// Returns true if a reading tells of the moment, and not of another time.
pub(crate) fn is_of(read_ns: u64, moment_ns: u64) -> bool {
    read_ns.abs_diff(moment_ns) <= FOLLOWS_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_reading_that_follows_closely_comes_before_a_nearer_one_in_front() {
        let nearest = |readings: &[u64], moment: u64| {
            let rank = |read: &&u64| rank(*read * MS, moment * MS);
            readings.iter().min_by_key(rank).copied()
        };
        assert_eq!(nearest(&[340, 490], 400), Some(490));
        assert_eq!(nearest(&[340, 501], 400), Some(340));
        assert_eq!(nearest(&[100, 390, 700, 800], 600), Some(700));
        assert_eq!(nearest(&[100, 390, 701, 800], 600), Some(701));
        assert_eq!(nearest(&[100, 390], u64::MAX / MS), Some(390));
        assert_eq!(nearest(&[420, 450], 400), Some(420));
        assert_eq!(nearest(&[390, 400], 400), Some(400));
        assert_eq!(nearest(&[], 400), None);
    }
}
