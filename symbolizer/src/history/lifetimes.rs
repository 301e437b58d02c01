//! Lifetimes: how long the blocks of a stack live, estimated from samples of which some still live.
//!
//! A block that lives at the end has lived *at least* so long. Lifetimes look too short if such
//! blocks are left out, or if their age counts as a lifetime. The estimate of Kaplan and Meier
//! (1958) does neither. If `d(t)` of the `n(t)` blocks that reached age `t` die at that age, the
//! part that outlives `t` is
//!
//! ```text
//!   S(t) = product over ages u <= t of (1 - d(u) / n(u))
//! ```
//!
//! Blocks are counted by their weights. Ages are kept in classes, so that the memory of a stack
//! does not depend on the number of its blocks. The class bounds the relative error of a median.

/// Classes in a doubling of age.
const STEPS: u64 = 8;

/// The blocks that died, or were last seen alive, at an age.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct AtAge {
    died: f64,
    /// Lived still, and were no older, at the end of what is known.
    live: f64,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lifetimes {
    /// By class of age, ascending.
    ages: Vec<(u16, AtAge)>,
    /// Samples that died, and those that live.
    died: u64,
    live: u64,
    /// Sum of all ages, in block-seconds, and of deaths in blocks.
    exposed: f64,
    deaths: f64,
}

impl Lifetimes {
    /// A block died at that age; it stands for `blocks`.
    pub fn died(&mut self, age_ns: u64, blocks: f64) {
        self.at(class(age_ns)).died += blocks;
        self.died += 1;
        self.deaths += blocks;
        self.exposed += blocks * age_ns as f64 / 1e9;
    }

    /// A block of that age lives; it stands for `blocks`.
    pub fn lives(&mut self, age_ns: u64, blocks: f64) {
        self.at(class(age_ns)).live += blocks;
        self.live += 1;
        self.exposed += blocks * age_ns as f64 / 1e9;
    }

    fn at(&mut self, class: u16) -> &mut AtAge {
        let place = self.ages.binary_search_by_key(&class, |(class, _)| *class);
        let place = place.unwrap_or_else(|place| {
            self.ages.insert(place, (class, AtAge::default()));
            place
        });
        &mut self.ages[place].1
    }

    /// Adds another stack's blocks.
    pub fn merge(&mut self, other: &Lifetimes) {
        for &(class, more) in &other.ages {
            let sum = self.at(class);
            sum.died += more.died;
            sum.live += more.live;
        }
        self.died += other.died;
        self.live += other.live;
        self.exposed += other.exposed;
        self.deaths += other.deaths;
    }

    /// Samples that were freed.
    pub fn died_samples(&self) -> u64 {
        self.died
    }

    /// Samples that live.
    pub fn live_samples(&self) -> u64 {
        self.live
    }

    /// The age in seconds that half of the blocks outlive (Kaplan and Meier); `None` when more than
    /// half of them outlive everything that was seen.
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// The age in seconds by which that part of the blocks has died.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let mut at_risk: f64 = self.ages.iter().map(|(_, at)| at.died + at.live).sum();
        let mut outlives = 1.0;
        for &(class, at) in &self.ages {
            // Live blocks of the same age were there when these died.
            outlives *= 1.0 - at.died / at_risk;
            if outlives <= 1.0 - part + 1e-12 {
                return Some(middle_ns(class) / 1e9);
            }
            at_risk -= at.died + at.live;
        }
        None
    }

    /// The age in seconds that half of the live blocks have reached; `None`: none lives.
    pub fn median_age(&self) -> Option<f64> {
        let live: f64 = self.ages.iter().map(|(_, at)| at.live).sum();
        let mut younger = 0.0;
        for &(class, at) in &self.ages {
            younger += at.live;
            if at.live > 0.0 && 2.0 * younger >= live {
                return Some(middle_ns(class) / 1e9);
            }
        }
        None
    }

    /// The mean in seconds, with the time that blocks have lived so far divided by deaths: right
    /// when blocks of any age die at the same rate, `None` when none died.
    pub fn mean(&self) -> Option<f64> {
        (self.deaths > 0.0).then(|| self.exposed / self.deaths)
    }
}

/// The class of an age. Below [`STEPS`] microseconds each microsecond, which is the log's unit of
/// time, has one of its own.
fn class(age_ns: u64) -> u16 {
    let us = age_ns / 1000;
    if us < STEPS {
        return us as u16;
    }
    let log = u64::from(63 - us.leading_zeros()); // at least 3
    let step = (us >> (log - 3)) & (STEPS - 1);
    ((log - 2) * STEPS + step) as u16
}

/// The middle of a class, in nanoseconds.
fn middle_ns(class: u16) -> f64 {
    let class = u64::from(class);
    if class < STEPS {
        return class as f64 * 1000.0;
    }
    let (log, step) = (class / STEPS + 2, class % STEPS);
    let width = 1u64 << (log - 3);
    let least = (STEPS + step) * width;
    (least as f64 + (width - 1) as f64 / 2.0) * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn classes_are_in_order_and_hold_their_middle() {
        let mut last = 0;
        for us in (0..5000).chain((0..40).map(|i| 5000 << i)) {
            let class = class(us * 1000);
            assert!(class >= last, "{us}");
            last = class;
            let middle = middle_ns(class) / 1000.0;
            assert!(
                (middle - us as f64).abs() <= 0.07 * us as f64,
                "{us} {middle}"
            );
        }
    }

    #[test]
    fn without_the_living_it_is_the_plain_median() {
        let mut lifetimes = Lifetimes::default();
        for ms in 1..=99 {
            lifetimes.died(ms * MS, 1.0);
        }
        let median = lifetimes.median().unwrap();
        assert!((0.047..0.053).contains(&median), "{median}");
        assert!((lifetimes.mean().unwrap() - 0.05).abs() < 1e-9);
    }

    /// The textbook case: deaths at 1, 3, 4, living at 2, 5 (ms).
    /// S = 4/5 after 1; the one at 2 leaves; 4/5 · 2/3 = 8/15 after 3; 8/15 · 1/2 = 4/15 after 4.
    #[test]
    fn the_living_count_for_as_long_as_they_were_seen() {
        let mut lifetimes = Lifetimes::default();
        for ms in [1, 3, 4] {
            lifetimes.died(ms * MS, 1.0);
        }
        for ms in [2, 5] {
            lifetimes.lives(ms * MS, 1.0);
        }
        let median = lifetimes.median().unwrap();
        assert!((median - 0.004).abs() < 0.0004, "{median}");
        assert_eq!(lifetimes.quantile(0.75), None);
        assert_eq!(lifetimes.mean(), Some(0.005));
    }

    #[test]
    fn the_median_age_is_that_of_the_living() {
        let mut lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.median_age(), None);
        lifetimes.died(9 * MS, 50.0);
        assert_eq!(lifetimes.median_age(), None);
        for (ms, blocks) in [(1, 1.0), (4, 3.0), (100, 1.0)] {
            lifetimes.lives(ms * MS, blocks);
        }
        let age = lifetimes.median_age().unwrap();
        assert!((age - 0.004).abs() < 0.0004, "{age}");
    }

    #[test]
    fn what_mostly_lives_has_no_median() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.died(MS, 1.0);
        lifetimes.lives(2 * MS, 9.0);
        assert_eq!(lifetimes.median(), None);
    }

    /// Three blocks of a sample that dies at 1 s, one that dies at 3 s, and twelve that live at 2
    /// s.
    #[test]
    fn blocks_count_by_their_weights_and_those_of_other_stacks_are_added() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.died(1000 * MS, 3.0);
        lifetimes.died(3000 * MS, 1.0);
        let mut others = Lifetimes::default();
        others.lives(2000 * MS, 12.0);
        // Seen for 3 + 3 + 24 s, in which four died.
        for (mut one, other) in [(lifetimes.clone(), &others), (others.clone(), &lifetimes)] {
            one.merge(other);
            assert_eq!((one.died_samples(), one.live_samples()), (2, 1));
            assert_eq!(one.mean(), Some(7.5));
            // 13/16 outlive the first second; the blocks left at 3 s died then.
            let at = |part| one.quantile(part).map(f64::round);
            assert_eq!(
                (at(0.18), at(0.19), at(1.0)),
                (Some(1.0), Some(3.0), Some(3.0))
            );
        }
        assert_eq!(others.mean(), None);
    }

    /// Half of them is half of them: nobody is more than half of four when two have died.
    #[test]
    fn exactly_half_is_enough() {
        let mut lifetimes = Lifetimes::default();
        for s in [1, 2, 3, 4] {
            lifetimes.died(s * 1000 * MS, 1.0);
        }
        assert_eq!(lifetimes.median().map(f64::round), Some(2.0));
        // Thirds are no binary fractions.
        let mut lifetimes = Lifetimes::default();
        for s in [1, 2, 3] {
            lifetimes.died(s * 1000 * MS, 1.0);
        }
        assert_eq!(lifetimes.quantile(1.0 / 3.0).map(f64::round), Some(1.0));
    }
}
