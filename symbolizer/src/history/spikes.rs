//! Spike: a peak of bytes in use that stands out, with the low before it.
//!
//! Glossary: spike.
//!
//! ```text
//!   in use         ╱╲ peak
//!                 ╱  ╲        ╱╲ peak     a fall and the rise behind it make two spikes of one if
//!        ╲       ╱    ╲  ╱‾╲ ╱  ╲         each is a tenth of the peak beside it, more than noise,
//!         ╲_____╱      ╲╱   ‾    ╲__      and longer than a copy
//!          low         low
//! ```
//!
//! A `realloc` ends one block, copies it, and begins another. So a low counts if it lasts longer
//! than a copy of what was missing in it.
//!
//! The number of spikes that are kept is bounded: if there are too many, of each two neighbours the
//! higher one stays, and the highest of all.

use heapprof_core::Fixed;

/// The most spikes that are kept.
const MOST: usize = 4096;
/// So many of the highest spikes are kept among how many there ever are.
const HIGHEST: usize = 16;
/// A fall or a rise that counts, as parts of the height of the peak.
const PARTS: i128 = 10;
/// A fall or a rise that counts, in standard errors.
const STANDARD_ERRORS: f64 = 3.0;
/// How long a low lasts at least.
const SHORTEST_LOW_NS: u64 = 100_000;
/// How long a copy of a byte lasts at most, with the faults of new pages.
const COPY_NS_PER_BYTE: u64 = 2;

/// Bytes in use behind a record.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    /// Number of the record; 0: before the first.
    pub record: u64,
    /// Its time.
    pub time_ns: u64,
    /// The bytes.
    pub bytes: Fixed,
    /// Their variance.
    pub variance: Fixed,
}

impl Point {
    /// Returns the standard error of the bytes.
    pub fn bytes_error(&self) -> f64 {
        self.variance.to_f64().max(0.0).sqrt()
    }

    /// Returns true if it is so far below the other that both belong to different spikes.
    fn is_below(&self, other: &Point) -> bool {
        let (low, high) = (self.bytes, other.bytes);
        if !may_be_below(low, high) {
            return false;
        }
        if (high - low).times(PARTS) < high {
            return false;
        }
        if [self.variance, other.variance] == [Fixed::default(); 2] {
            return true;
        }
        let variance = |point: &Point| point.bytes_error().powi(2);
        let noise = STANDARD_ERRORS.powi(2) * (variance(self) + variance(other));
        (high - low).to_f64().powi(2) >= noise
    }
}

/// Returns false if the low is too near to the height to be of another spike, whatever their noise.
/// Most events end here, without a multiplication of 128 bits.
#[inline]
fn may_be_below(low: Fixed, high: Fixed) -> bool {
    low < high && (high - low).to_bits() >= high.to_bits() >> 4
}

/// See the module's text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spike {
    /// Where the most bytes were in use.
    pub peak: Point,
    /// Where the rise to the peak began: the least bytes in use behind the spike before.
    pub low: Point,
}

/// The highest spikes: so many, the highest first, the earlier one first of equals.
pub fn highest(spikes: &[Spike], most: usize) -> Vec<Spike> {
    let mut highest = spikes.to_vec();
    let bytes = |spike: &Spike| spike.peak.bytes;
    highest.sort_by(|a, b| {
        let by_height = bytes(b).cmp(&bytes(a));
        by_height.then_with(|| a.peak.record.cmp(&b.peak.record))
    });
    highest.truncate(most);
    highest
}

/// The spikes of a curve that goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpikesSoFar {
    found: Vec<Spike>,
    /// The spike that goes on: its highest point so far.
    now: Spike,
    /// The fall behind that point, if there is one.
    fall: Option<Fall>,
}

/// A fall from a peak.
#[derive(Debug, Clone, Copy)]
struct Fall {
    low: Point,
    since_ns: u64,
}

impl SpikesSoFar {
    /// Begins the curve: these blocks were in use before.
    pub(crate) fn begin(&mut self, here: Point) {
        let is_begun = self.now.peak.record != self.now.low.record;
        if is_begun || self.fall.is_some() || !self.found.is_empty() {
            return self.at(here);
        }
        self.now = Spike {
            peak: here,
            low: here,
        };
    }

    /// Returns false if [`at`](Self::at) would change nothing with so many bytes in use.
    #[inline]
    pub(crate) fn may_change_at(&self, bytes: Fixed) -> bool {
        let peak = self.now.peak.bytes;
        bytes > peak
            || match &self.fall {
                None => may_be_below(bytes, peak),
                Some(fall) => bytes < fall.low.bytes || may_be_below(fall.low.bytes, bytes),
            }
    }

    /// The curve behind a record.
    pub(crate) fn at(&mut self, here: Point) {
        match &mut self.fall {
            None if here.bytes > self.now.peak.bytes => self.now.peak = here,
            None if here.is_below(&self.now.peak) => {
                self.fall = Some(Fall {
                    low: here,
                    since_ns: here.time_ns,
                });
            }
            Some(fall) if here.bytes < fall.low.bytes => fall.low = here,
            Some(fall) if fall.low.is_below(&here) => {
                let fall = *fall;
                self.rise(fall, here);
            }
            // A rise that may be noise, to a new height.
            Some(_) if here.bytes > self.now.peak.bytes => {
                self.fall = None;
                self.now.peak = here;
            }
            _ => {}
        }
    }

    /// The curve rises out of a fall.
    fn rise(&mut self, fall: Fall, here: Point) {
        self.fall = None;
        let depth = (self.now.peak.bytes - fall.low.bytes).round();
        let copy_ns = depth.saturating_mul(COPY_NS_PER_BYTE);
        let lasted_ns = here.time_ns.saturating_sub(fall.since_ns);
        if lasted_ns > SHORTEST_LOW_NS.saturating_add(copy_ns) {
            self.found.push(self.now);
            self.now = Spike {
                peak: here,
                low: fall.low,
            };
            if self.found.len() >= MOST {
                self.thin();
            }
        } else if here.bytes > self.now.peak.bytes {
            self.now.peak = here;
        } else if here.is_below(&self.now.peak) {
            // The low of a copy, within a fall that goes on.
            self.fall = Some(Fall { low: here, ..fall });
        }
    }

    /// Keeps the higher one of each two neighbours, and all of the highest.
    #[cold]
    fn thin(&mut self) {
        let kept: Vec<u64> = (highest(&self.found, HIGHEST).iter())
            .map(|spike| spike.peak.record)
            .collect();
        let pairs = self.found.chunks(2).flat_map(|pair| {
            let higher = highest(pair, 1);
            let stays = |spike: &Spike| kept.contains(&spike.peak.record);
            let stay = pair.iter().filter(move |spike| {
                higher
                    .first()
                    .is_some_and(|it| it.peak.record == spike.peak.record)
                    || stays(spike)
            });
            stay.copied().collect::<Vec<Spike>>()
        });
        self.found = pairs.collect();
    }

    /// All spikes, in the order of time. The highest point of the curve is the peak of one.
    pub(crate) fn finish(mut self) -> Vec<Spike> {
        let height = self.now.peak.bytes;
        let is_highest = || self.found.iter().all(|spike| spike.peak.bytes < height);
        let is_spike = self.fall.is_some() || self.now.low.is_below(&self.now.peak);
        if is_spike || height > Fixed::default() && is_highest() {
            self.found.push(self.now);
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::{Estimate, Weight};
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// The peaks and lows of a curve through these points: milliseconds, and bytes, all recorded.
    fn spikes(curve: &[(u64, u64)]) -> Vec<[u64; 4]> {
        let mut spikes = SpikesSoFar::default();
        for (record, &(ms, bytes)) in (1..).zip(curve) {
            spikes.at(point(record, ms * MS, bytes, 1));
        }
        let found = spikes.finish().into_iter();
        found
            .map(|it| {
                let of = |point: Point| [point.time_ns / MS, point.bytes.round()];
                let ([a, b], [c, d]) = (of(it.peak), of(it.low));
                [a, b, c, d]
            })
            .collect()
    }

    fn point(record: u64, time_ns: u64, bytes: u64, interval: u64) -> Point {
        let mut in_use = Estimate::default();
        if bytes > 0 {
            in_use.add(&Weight::of(bytes, interval));
        }
        Point {
            record,
            time_ns,
            bytes: in_use.bytes_fixed(),
            variance: in_use.bytes_variance_fixed(),
        }
    }

    #[test]
    fn a_spike_stands_a_tenth_above_the_lows_on_both_sides() {
        let curve = [
            (1, 100),
            (2, 1000),
            (3, 901),
            (4, 990),
            (5, 900),
            (6, 1001),
            (7, 0),
        ];
        assert_eq!(
            spikes(&curve),
            [[2, 1000, 0, 0], [6, 1001, 5, 900]],
            "901 is no low, 900 is one"
        );
        // A rise at the end is a spike, and a fall from the beginning is one.
        assert_eq!(
            spikes(&[(1, 500), (3, 100), (5, 200)]),
            [[1, 500, 0, 0], [5, 200, 3, 100]]
        );
        assert!(spikes(&[]).is_empty() && spikes(&[(1, 0)]).is_empty());
    }

    #[test]
    fn a_low_that_a_copy_explains_is_none() {
        // A block of 10 MB, which is copied within 15 ms into one of 20 MB.
        let (block, twice) = (10_000_000, 20_000_000);
        assert_eq!(
            spikes(&[(1, block), (50, 0), (65, twice)]),
            [[65, twice, 0, 0]]
        );
        // A low of 30 ms is one.
        assert_eq!(
            spikes(&[(1, block), (50, 0), (80, twice)]),
            [[1, block, 0, 0], [80, twice, 50, 0]]
        );
    }

    /// Each block is freed in the moment in which the next one comes.
    #[test]
    fn a_fall_goes_on_behind_the_low_of_a_copy() {
        let curve = [
            (1, 500),
            (2, 0),
            (2, 100),
            (3, 0),
            (3, 700),
            (4, 0),
            (4, 650),
        ];
        assert_eq!(spikes(&curve), [[1, 500, 0, 0], [3, 700, 3, 0]]);
    }

    #[test]
    fn what_was_there_before_belongs_to_the_low() {
        let mut spikes = SpikesSoFar::default();
        spikes.begin(point(1, 0, 700, 1));
        spikes.begin(point(2, 0, 1000, 1));
        spikes.at(point(3, MS, 3000, 1));
        // Too late to have been there before.
        spikes.begin(point(4, 2 * MS, 4000, 1));
        let found = spikes.finish();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].peak.record, found[0].low.record), (4, 2));
    }

    /// Samples that stand for a MiB each: one more or less is noise, forty are not.
    #[test]
    fn noise_is_no_spike() {
        let samples = |record: u64, n: usize| {
            let mut in_use = Estimate::default();
            (0..n).for_each(|_| in_use.add(&Weight::of(64, 1 << 20)));
            Point {
                record,
                time_ns: record * MS * 100_000,
                bytes: in_use.bytes_fixed(),
                variance: in_use.bytes_variance_fixed(),
            }
        };
        let count = |curve: &[usize]| {
            let mut spikes = SpikesSoFar::default();
            for (record, &n) in (1..).zip(curve) {
                spikes.at(samples(record, n));
            }
            spikes.finish().len()
        };
        assert_eq!(count(&[50, 44, 51, 45, 52]), 1);
        assert_eq!(count(&[50, 10, 60, 12, 52]), 3);
    }

    /// A low that is exact, and a new height whose samples say little.
    #[test]
    fn the_highest_is_found_behind_a_rise_that_may_be_noise() {
        let mut spikes = SpikesSoFar::default();
        let second = 1000 * MS;
        spikes.at(point(1, second, 1_000_000, 1));
        spikes.at(point(2, 2 * second, 800_000, 1));
        let noisy = point(3, 4 * second, 64, 1 << 20);
        assert!(noisy.bytes > Fixed::from_int(1_000_000));
        spikes.at(noisy);
        let found = spikes.finish();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].peak.record, 3);
    }

    #[test]
    fn the_highest_stay_however_many_there_are() {
        let mut spikes = SpikesSoFar::default();
        let mut record = 0;
        for n in 0..3 * MOST as u64 {
            let bytes = if n == 77 || n == 76 {
                5000
            } else {
                1000 + n % 7
            };
            for (ms, bytes) in [(0, bytes), (1, 10)] {
                record += 1;
                spikes.at(point(record, (2 * n + ms) * MS, bytes, 1));
            }
        }
        let found = spikes.finish();
        assert!(
            found.len() < MOST && found.len() > MOST / 4,
            "{}",
            found.len()
        );
        assert!(found.is_sorted_by_key(|spike| spike.peak.record));
        let highest = highest(&found, 2);
        let times = highest.iter().map(|spike| spike.peak.time_ns / MS);
        assert_eq!(times.collect::<Vec<u64>>(), [152, 154]);
    }

    proptest! {
        /// Whatever the curve is like, a point that is left out changes nothing.
        #[test]
        fn points_that_change_nothing_are_told(
            curve in prop::collection::vec((0u64..3, 0u64..40), 1..60)
        ) {
            let mut spikes = SpikesSoFar::default();
            let mut time_ns = 0;
            for (record, (step, bytes)) in (1..).zip(curve) {
                time_ns += step * MS;
                let here = point(record, time_ns, 100 * bytes, 1);
                let may_change = spikes.may_change_at(here.bytes);
                let before = format!("{spikes:?}");
                spikes.at(here);
                let after = format!("{spikes:?}");
                prop_assert!(may_change || after == before);
            }
        }
    }
}
