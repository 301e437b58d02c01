//! Recording: what a sampled malloc or free leaves for the writer.
//!
//! May import: os, state, allocator, unwind.
//!
//! Not here: the writer, and the decision that a block is sampled.

pub(crate) mod abandoned_hook;
pub(crate) mod byte_count;
pub(crate) mod mapped_levels;
pub(crate) mod pending_frees;
pub(crate) mod regime;
pub(crate) mod request_word;
pub(crate) mod requests;
pub(crate) mod sampled_blocks;
pub(crate) mod seats;
pub(crate) mod session;
