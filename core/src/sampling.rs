//! Sampling: which allocations are recorded, and the weight of each.
//!
//! Imports: `tables` (a hash of numbers).
//!
//! Not here: the sample at an address (`tables`), the totals of a program (`ledger`).

pub(crate) mod budget;
pub(crate) mod estimate;
pub(crate) mod estimates;
pub(crate) mod fixed;
pub(crate) mod rng;
pub(crate) mod sampler;
pub(crate) mod size_class;
pub(crate) mod trend;
pub(crate) mod weight;
pub(crate) mod weight_cache;
