//! The allocator: the heap of the program and our own arena, behind one door.
//!
//! May import: os, state.
//!
//! Not here: samples, stacks and everything else that is known of a block.

pub(crate) mod fast_path;
pub(crate) mod global;
pub(crate) mod heap;
pub(crate) mod large;
pub(crate) mod mallctl;
pub(crate) mod os_shims;
pub(crate) mod private_symbols;
pub(crate) mod rtree;
pub(crate) mod spare_arena;
pub(crate) mod string_shims;
pub(crate) mod tcache_policy;
