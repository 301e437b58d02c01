//! Tables: sets and maps of samples and stacks, which many threads use without a lock.
//!
//! Imports: `primitive`.
//!
//! Not here: what an entry means, and when the memory of a table is mapped.

pub(crate) mod filter;
pub(crate) mod number_hash;
pub(crate) mod sample_table;
pub(crate) mod slots;
pub(crate) mod stack_set;
