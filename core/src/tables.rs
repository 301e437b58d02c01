//! Tables: lock-free sets and maps of samples and stacks, and maps of one thread.
//!
//! Imports: `primitive`.
//!
//! Not here: the meaning of an entry, and when the memory of a table is mapped.

pub(crate) mod block_map;
pub(crate) mod bloom_filter;
pub(crate) mod number_hash;
pub(crate) mod sample_table;
pub(crate) mod slots;
pub(crate) mod stack_set;
