//! Noise: the variance that sampling alone gives to the difference of two profiles of equal heaps.
//!
//! Not here: how it follows from the samples of one of them (`analysis::noise`).

/// See the module's text. Sums over blocks, so parts add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Noise {
    /// The variance of the difference, if both heaps are equal.
    pub(crate) variance: f64,
    /// That variance if the bytes were in small blocks: the maximum.
    pub(crate) at_most: f64,
    /// The contribution of the largest block that may be missed.
    pub(crate) block: f64,
}

impl Noise {
    /// Adds that of other blocks.
    pub(crate) fn merge(&mut self, other: &Noise) {
        self.variance += other.variance;
        self.at_most += other.at_most;
        self.block = self.block.max(other.block);
    }

    /// The variance to test a difference against.
    pub(crate) fn variance(&self) -> f64 {
        (self.variance + 2.1 * self.block * self.variance.sqrt()).min(self.at_most)
    }
}
