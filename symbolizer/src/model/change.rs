//! Change: what is different at one site between two profiles, with its error.
//!
//! Not here: which sites two profiles have in common (`analysis::diff`).

use crate::model::amount::Amount;
use crate::model::noise::Noise;

pub use heapprof_core::REAL;

/// The change of a sum at a site.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// How much there was.
    pub before: f64,
    /// How much there is.
    pub after: f64,
    /// The part that only the second has.
    pub plus: Amount,
    /// The part that only the first has.
    pub minus: Amount,
    /// Between two profiles: what sampling alone would make of equal heaps.
    pub noise: Noise,
    /// The variance of what there was.
    pub before_variance: f64,
    /// True if a side comes from a dump that does not state its errors, or may have it under
    /// another name.
    pub is_unsure: bool,
    /// True if a side may have missed blocks that the other has: then nothing is exact.
    pub may_be_missed: bool,
    /// True if parts of the record of a side are missing: then nothing is exact either, although no
    /// sampling missed anything.
    pub is_in_parts: bool,
}

/// True if a change is more than noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every allocation was recorded: it is what it is.
    Exact,
    /// Larger than noise would make it.
    Real,
    /// A growth that is more than noise, and too small to matter.
    Small,
    /// A slope downwards of memory that came and went: little of it is left at the end.
    Past,
    /// A slope upwards of memory that came at the end: a state, which may be a burst.
    Late,
    /// Noise may have made it.
    Noise,
    /// The inputs do not say how exact they are, or what is the same in both.
    Unknown,
}

impl Verdict {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::Real => "real",
            Verdict::Small => "small",
            Verdict::Past => "past",
            Verdict::Late => "late",
            Verdict::Noise => "noise",
            Verdict::Unknown => "unknown",
        }
    }
}

impl Change {
    /// Adds another one, of other blocks.
    pub fn merge(&mut self, other: &Change) {
        self.before += other.before;
        self.after += other.after;
        self.plus += other.plus;
        self.minus += other.minus;
        self.noise.merge(&other.noise);
        self.before_variance += other.before_variance;
        self.is_unsure |= other.is_unsure;
        self.may_be_missed |= other.may_be_missed;
        self.is_in_parts |= other.is_in_parts;
    }

    /// How much more there is.
    pub fn difference(&self) -> f64 {
        self.plus.value - self.minus.value
    }

    /// Its standard error: what the samples say, or what equal heaps would have, if that is more.
    pub fn error(&self) -> f64 {
        let seen = self.plus.variance + self.minus.variance;
        seen.max(self.noise.variance()).max(0.0).sqrt()
    }

    /// The difference in standard errors; infinite for an exact one, `None` when nothing is known
    /// about errors.
    pub fn z(&self) -> Option<f64> {
        let difference = self.difference();
        if self.is_unsure {
            None
        } else if difference == 0.0 {
            Some(0.0)
        } else {
            Some(difference / self.error())
        }
    }

    /// Returns true if it is more than noise.
    pub fn verdict(&self) -> Verdict {
        match self.z() {
            None => Verdict::Unknown,
            Some(_) if self.error() == 0.0 && !self.may_be_missed && !self.is_in_parts => {
                Verdict::Exact
            }
            Some(z) if z.abs() >= REAL => Verdict::Real,
            Some(_) => Verdict::Noise,
        }
    }
}
