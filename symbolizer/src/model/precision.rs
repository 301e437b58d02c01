//! Precision: how exact the numbers of a profile are.

/// What the numbers are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Every allocation was recorded.
    Exact,
    /// Estimated from samples, with a standard error.
    Sampled,
    /// As stated by a dump, without a word on their error.
    Stated,
}
