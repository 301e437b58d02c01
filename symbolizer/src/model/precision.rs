//! Precision: how exact the numbers of a profile are.

/// How exact the numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Every allocation was recorded.
    Exact,
    /// Estimated from samples, with a standard error.
    Sampled,
    /// As stated by a dump, without a word on their error.
    Stated,
}
