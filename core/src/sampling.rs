//! Sampling: which allocations are recorded, and how many blocks and bytes each of them stands for.
//!
//! Imports: `tables` (the place of a key).
//!
//! Not here: which sample lives at an address (`tables`), what a program allocated in all
//! (`ledger`).

pub(crate) mod budget;
pub(crate) mod estimate;
pub(crate) mod fixed;
pub(crate) mod rng;
pub(crate) mod sampler;
pub(crate) mod size_class;
pub(crate) mod weight;
pub(crate) mod weight_cache;
