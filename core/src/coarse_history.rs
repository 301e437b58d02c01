//! Coarse history: the bytes in use of a whole run, at moments that are a step apart, and farther
//! apart the older they are.
//!
//! Glossary: coarse history.
//!
//! ```text
//!   older entries, one in each stretch of time          the newest RECENT, one a step
//!   ├────────────┼────────────┼─────────── … ───────────┼─┼─┼─┼─┼─┼─┼─┤
//!   a stretch is OLDER_STEPS steps, and twice as long whenever there are too many entries
//! ```
//!
//! An entry has the bytes in use at its time, and the most bytes in use since the entry before. The
//! last entry of a stretch stays, with the most of the whole stretch. So no maximum is forgotten,
//! and each number is one that was true at the entry's time.
//!
//! Memory: [`CoarseHistory::MOST`] entries of `size_of::<CoarseEntry>()` bytes, as they come.

use crate::sampling::estimate::Estimate;
use crate::sampling::fixed::Fixed;

/// The newest entries, which stay a step apart: two hours at a step of a minute.
const RECENT: usize = 120;
/// Steps of the shortest stretch: an hour at a step of a minute.
const OLDER_STEPS: u64 = 60;
/// The stacks that an entry names.
const NAMED: usize = 8;

/// The stacks with the most bytes in use, the largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LargestStacks {
    stacks: [u32; NAMED],
    /// 0 where there are no more.
    bytes: [u64; NAMED],
}

impl LargestStacks {
    /// Returns the largest of some stacks with their bytes. Equal ones stay in their order.
    pub fn of(stacks: impl IntoIterator<Item = (u32, u64)>) -> LargestStacks {
        let mut largest = LargestStacks::default();
        for (stack, bytes) in stacks {
            let place = largest.bytes.partition_point(|&other| other >= bytes);
            if bytes > 0 && place < NAMED {
                largest.stacks[place..].rotate_right(1);
                largest.bytes[place..].rotate_right(1);
                (largest.stacks[place], largest.bytes[place]) = (stack, bytes);
            }
        }
        largest
    }

    /// Returns each stack's number and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        let all = self.stacks.into_iter().zip(self.bytes);
        all.take_while(|&(_, bytes)| bytes > 0)
    }
}

/// Bytes in use by stack, being added up.
#[derive(Debug, Default)]
pub struct StackSums(Vec<Fixed>);

impl StackSums {
    /// Adds bytes of a stack. Numbers of stacks are dense.
    pub fn add(&mut self, stack: u32, bytes: Fixed) {
        let place = stack as usize;
        if place >= self.0.len() {
            self.0.resize(place + 1, Fixed::default());
        }
        self.0[place] += bytes;
    }

    /// Returns the largest stacks.
    pub fn largest(&self) -> LargestStacks {
        LargestStacks::of((0..).zip(self.0.iter().map(|bytes| bytes.round())))
    }
}

/// The bytes in use at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoarseEntry {
    /// The moment.
    pub time_ns: u64,
    /// Requested bytes in use.
    pub bytes: u64,
    /// Their standard error.
    pub bytes_error: u64,
    /// Blocks in use.
    pub objects: u64,
    /// The most bytes in use at any time since the entry before.
    pub highest: u64,
    /// Resident bytes of the process by the last reading of its memory; 0: there was none.
    pub resident: u64,
    /// The stacks with the most bytes.
    pub largest: LargestStacks,
}

/// See the module's text.
#[derive(Debug)]
pub struct CoarseHistory {
    step_ns: u64,
    most: usize,
    /// The length of a stretch of older entries.
    stretch_ns: u64,
    /// In order of time.
    entries: Vec<CoarseEntry>,
    /// The most in use since the last entry.
    highest: Fixed,
    /// Resident bytes of the last reading.
    resident: u64,
}

impl CoarseHistory {
    /// The most entries: twelve weeks of hours at a step of a minute, and the recent ones. A year
    /// has stretches of eight hours.
    pub const MOST: usize = 2048 + RECENT;

    /// Returns an empty history for at most `most` entries that are a step apart.
    pub fn new(step_ns: u64, most: usize) -> CoarseHistory {
        CoarseHistory {
            step_ns,
            most: most.clamp(2, Self::MOST),
            stretch_ns: step_ns.max(1).saturating_mul(OLDER_STEPS),
            entries: Vec::new(),
            highest: Fixed::default(),
            resident: 0,
        }
    }

    /// Notes that so many bytes are in use.
    #[inline]
    pub fn in_use(&mut self, bytes: Fixed) {
        self.highest = self.highest.max(bytes);
    }

    /// Notes a reading of the process's memory: resident bytes.
    pub fn resident(&mut self, bytes: u64) {
        self.resident = bytes;
    }

    /// Returns true if the state at that time, which is that of the newest event, is to be added.
    pub fn is_due(&self, time_ns: u64) -> bool {
        let last_ns = self.entries.last().map_or(0, |last| last.time_ns);
        time_ns > last_ns && time_ns - last_ns >= self.step_ns
    }

    /// Returns the entry of a state. Nothing is added.
    pub fn entry(&self, time_ns: u64, in_use: &Estimate, largest: LargestStacks) -> CoarseEntry {
        let whole = |number: f64| number.max(0.0).round() as u64;
        CoarseEntry {
            time_ns,
            bytes: in_use.bytes(),
            bytes_error: whole(in_use.bytes_error()),
            objects: in_use.objects(),
            highest: self.highest.max(in_use.bytes_fixed()).round(),
            resident: self.resident,
            largest,
        }
    }

    /// Adds an entry of this moment, which is later than all others.
    pub fn add(&mut self, entry: CoarseEntry) {
        self.highest = Fixed::from_int(entry.bytes);
        self.entries.push(entry);
        let recent = RECENT.min(self.most / 2);
        let Some(older) = self.entries.len().checked_sub(recent).filter(|&n| n > 0) else {
            return;
        };
        // The last of the older entries is new among them.
        if older > 1 && self.is_one_stretch(older - 2, older - 1) {
            self.merge(older - 2);
        }
        while self.entries.len() > self.most {
            self.stretch_ns = self.stretch_ns.saturating_mul(2);
            self.merge_older(self.entries.len() - recent);
        }
    }

    /// Returns the entries, in order of time.
    pub fn entries(&self) -> &[CoarseEntry] {
        &self.entries
    }

    fn is_one_stretch(&self, first: usize, second: usize) -> bool {
        let stretch = |place: usize| self.entries[place].time_ns / self.stretch_ns;
        stretch(first) == stretch(second)
    }

    /// Leaves an entry out, in favour of the next one.
    fn merge(&mut self, place: usize) {
        let left_out = self.entries.remove(place);
        let next = &mut self.entries[place];
        next.highest = next.highest.max(left_out.highest);
    }

    /// Leaves one entry in each stretch, of so many older entries.
    fn merge_older(&mut self, older: usize) {
        let stretch_ns = self.stretch_ns;
        let mut place = 0;
        self.entries.dedup_by(|next, kept| {
            place += 1;
            let is_one = kept.time_ns / stretch_ns == next.time_ns / stretch_ns;
            if place >= older || !is_one {
                return false;
            }
            next.highest = next.highest.max(kept.highest);
            // The later one stays.
            std::mem::swap(next, kept);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::weight::Weight;
    use proptest::prelude::*;

    const MINUTE: u64 = 60_000_000_000;

    fn entry(time_ns: u64, bytes: u64, highest: u64) -> CoarseEntry {
        CoarseEntry {
            time_ns,
            bytes,
            highest,
            ..CoarseEntry::default()
        }
    }

    #[test]
    fn two_hours_are_kept_by_the_minute_and_the_rest_by_the_hour() {
        let mut history = CoarseHistory::new(MINUTE, CoarseHistory::MOST);
        for minute in 1..=10 * 60 {
            // The highest of each hour is in its 17th minute.
            let spike = if minute % 60 == 17 { 5000 } else { 0 };
            history.add(entry(minute * MINUTE, minute, minute + spike));
        }
        let minutes: Vec<u64> = (history.entries().iter())
            .map(|it| it.time_ns / MINUTE)
            .collect();
        let hours = (1..=8).map(|hour| hour * 60 - 1).chain([480]);
        let expected: Vec<u64> = hours.chain(481..=600).collect();
        assert_eq!(minutes, expected);
        for hour in 0..8 {
            let it = history.entries()[hour as usize];
            let expected = entry((hour * 60 + 59) * MINUTE, hour * 60 + 59, hour * 60 + 5017);
            assert_eq!(it, expected);
        }
    }

    #[test]
    fn a_year_takes_less_than_300_kilobytes_of_memory() {
        let mut history = CoarseHistory::new(MINUTE, CoarseHistory::MOST);
        let minutes = 365 * 24 * 60;
        for minute in 1..=minutes {
            history.add(entry(minute * MINUTE, minute, minute));
        }
        let entries = history.entries();
        let bytes = size_of_val(entries);
        assert!((1024..=CoarseHistory::MOST).contains(&entries.len()));
        assert!(bytes < 300_000, "{bytes} bytes in {}", entries.len());
        // Eight hours apart, but for the last two hours.
        let (older, recent) = entries.split_at(entries.len() - RECENT);
        assert!(
            recent
                .windows(2)
                .all(|it| it[1].time_ns - it[0].time_ns == MINUTE)
        );
        let apart = |it: &[CoarseEntry]| it[1].time_ns - it[0].time_ns <= 480 * MINUTE;
        assert!(older.windows(2).all(apart));
        assert!(older.len() > 1000, "{}", older.len());
    }

    #[test]
    fn an_entry_is_due_after_a_step_if_something_came() {
        let mut history = CoarseHistory::new(MINUTE, 10);
        assert!(!history.is_due(MINUTE - 1) && history.is_due(MINUTE));
        history.add(entry(MINUTE + 5, 1, 1));
        assert!(!history.is_due(2 * MINUTE) && history.is_due(2 * MINUTE + 5));
        // A step of nothing: whenever something came.
        let mut history = CoarseHistory::new(0, 10);
        assert!(!history.is_due(0) && history.is_due(1));
        history.add(entry(7, 1, 1));
        assert!(!history.is_due(7) && history.is_due(8));
    }

    #[test]
    fn the_most_in_use_counts_from_the_entry_before() {
        let mut history = CoarseHistory::new(MINUTE, 10);
        let in_use = |bytes: u64| {
            let mut estimate = Estimate::default();
            estimate.add(&Weight::of(bytes, 1));
            estimate
        };
        history.in_use(Fixed::from_int(900));
        history.in_use(Fixed::from_int(300));
        history.resident(4000);
        let largest = LargestStacks::of([(4, 300)]);
        let first = history.entry(5, &in_use(300), largest);
        let expected = CoarseEntry {
            objects: 1,
            resident: 4000,
            largest,
            ..entry(5, 300, 900)
        };
        assert_eq!(first, expected);
        history.add(first);
        // 300 bytes were in use when it began.
        assert_eq!(history.entry(9, &in_use(100), largest).highest, 300);
        assert_eq!(history.entry(9, &in_use(700), largest).highest, 700);
    }

    #[test]
    fn an_estimate_has_its_error() {
        let mut estimate = Estimate::default();
        estimate.add(&Weight::of(100, 4096));
        let history = CoarseHistory::new(MINUTE, 10);
        let it = history.entry(5, &estimate, LargestStacks::default());
        assert_eq!(it.bytes, estimate.bytes());
        assert_eq!(it.bytes_error, estimate.bytes_error().round() as u64);
        assert!(it.bytes_error > 1000);
    }

    #[test]
    fn the_largest_stacks_are_found_over_all_their_classes() {
        let mut sums = StackSums::default();
        assert_eq!(sums.largest(), LargestStacks::default());
        for stack in 0..100 {
            sums.add(stack, Fixed::from_int(u64::from(stack % 50)));
        }
        sums.add(3, Fixed::from_int(1000));
        sums.add(7, Fixed::from_int(0));
        let largest: Vec<_> = sums.largest().iter().collect();
        let expected = [
            (3, 1003),
            (49, 49),
            (99, 49),
            (48, 48),
            (98, 48),
            (47, 47),
            (97, 47),
            (46, 46),
        ];
        assert_eq!(largest, expected);
        let few: Vec<_> = LargestStacks::of([(1, 5), (2, 0), (3, 9)]).iter().collect();
        assert_eq!(few, [(3, 9), (1, 5)]);
    }

    proptest! {
        /// With any gaps and any bound, against the list of all entries.
        #[test]
        fn what_is_kept_is_true_and_no_maximum_is_lost(
            steps in prop::collection::vec((prop_oneof![8 => 1u64..3, 1 => 1u64..100_000], 0u64..1000), 1..if cfg!(miri) { 60 } else { 600 }),
            most in 2usize..200,
        ) {
            let mut history = CoarseHistory::new(1, most);
            let mut all: Vec<CoarseEntry> = Vec::new();
            let mut time_ns = 0;
            for (gap, bytes) in steps {
                time_ns += gap;
                let next = entry(time_ns, bytes, bytes + time_ns % 7);
                all.push(next);
                history.add(next);
                let kept = history.entries();
                prop_assert!(kept.len() <= most);
                let recent = RECENT.min(most / 2).min(all.len());
                prop_assert_eq!(&kept[kept.len() - recent..], &all[all.len() - recent..]);
                let mut from = 0;
                for it in kept {
                    let to = all.partition_point(|other| other.time_ns <= it.time_ns);
                    let last = all[to - 1];
                    prop_assert_eq!((it.time_ns, it.bytes), (last.time_ns, last.bytes));
                    let highest = all[from..to].iter().map(|other| other.highest).max();
                    prop_assert_eq!(Some(it.highest), highest);
                    from = to;
                }
                prop_assert_eq!(from, all.len());
            }
        }
    }
}
