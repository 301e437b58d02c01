//! Nearest reading: which of several readings stands for a moment.
//!
//! ```text
//!      60 ms before    moment   90 ms behind
//!   ──────── a ──────────┊────────── b ──────   b: it may be the reading of a marker at the moment
//!   ──────── a ──────────┊────────────── c ──   a: c is more than 100 ms behind
//! ```
//!
//! The library takes the reading of a marker or a dump when its writer comes to it, so a reading
//! that follows a moment closely comes before one that is nearer in front of it. The reading at the
//! end comes when the program has freed its memory. It stands for no earlier moment, unless there
//! is no other.

/// The longest time between a marker and its own reading.
const FOLLOWS_NS: u64 = 100_000_000;

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct Nearest<T> {
    /// The nearest reading so far, with its time.
    kept: Option<(u64, T)>,
    /// The nearest one in front of the moment, if that is another.
    before: Option<(u64, T)>,
}

impl<T> Default for Nearest<T> {
    fn default() -> Self {
        Nearest {
            kept: None,
            before: None,
        }
    }
}

impl<T> Nearest<T> {
    /// Takes a reading of that time, behind all others.
    pub(crate) fn take(&mut self, read_ns: u64, reading: T, moment_ns: u64) {
        let kept = self.kept.as_ref();
        if kept.is_none_or(|(kept_ns, _)| rank(read_ns, moment_ns) < rank(*kept_ns, moment_ns)) {
            let last = self.kept.replace((read_ns, reading));
            self.before = last.filter(|_| read_ns > moment_ns);
        }
    }

    /// Notes that the process ends at that time.
    pub(crate) fn end(&mut self, end_ns: u64, moment_ns: u64) {
        let is_of_end = |&(read_ns, _): &(u64, T)| {
            read_ns > moment_ns && !is_of(read_ns, moment_ns) && is_of(read_ns, end_ns)
        };
        if self.before.is_some() && self.kept.as_ref().is_some_and(is_of_end) {
            self.kept = self.before.take();
        }
    }

    /// Returns the nearest reading.
    pub(crate) fn get(&self) -> Option<&T> {
        self.kept.as_ref().map(|(_, reading)| reading)
    }
}

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

    fn nearest(readings: &[u64], moment: u64, end: Option<u64>) -> Option<u64> {
        let mut nearest = Nearest::default();
        for read in readings {
            nearest.take(read * MS, *read, moment * MS);
        }
        if let Some(end) = end {
            nearest.end(end * MS, moment * MS);
        }
        nearest.get().copied()
    }

    #[test]
    fn a_reading_that_follows_closely_comes_before_a_nearer_one_in_front() {
        let nearest = |readings: &[u64], moment| nearest(readings, moment, None);
        assert_eq!(nearest(&[340, 490], 400), Some(490));
        assert_eq!(nearest(&[340, 501], 400), Some(340));
        assert_eq!(nearest(&[100, 390, 700, 800], 600), Some(700));
        assert_eq!(nearest(&[100, 390, 701, 800], 600), Some(701));
        assert_eq!(nearest(&[100, 390], u64::MAX / MS), Some(390));
        assert_eq!(nearest(&[420, 450], 400), Some(420));
        assert_eq!(nearest(&[390, 400], 400), Some(400));
        assert_eq!(nearest(&[], 400), None);
    }

    #[test]
    fn the_reading_at_the_end_stands_for_no_earlier_moment() {
        assert_eq!(nearest(&[1_000, 5_300], 4_800, Some(5_301)), Some(1_000));
        assert_eq!(nearest(&[1_000, 5_300], 4_800, None), Some(5_300));
        assert_eq!(nearest(&[1_000, 5_300], 5_250, Some(5_301)), Some(5_300));
        assert_eq!(nearest(&[1_000, 5_300], 5_301, Some(5_301)), Some(5_300));
        // Another one follows in time, and there is no other.
        assert_eq!(
            nearest(&[1_000, 4_950, 5_300], 4_800, Some(5_301)),
            Some(4_950)
        );
        assert_eq!(nearest(&[5_300], 4_800, Some(5_301)), Some(5_300));
    }
}
