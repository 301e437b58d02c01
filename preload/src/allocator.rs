//! The allocator: the heap of the program and our own arena, behind one door.
//!
//! The door is the functions and types below. The rest of the library calls these alone, and does not know
//! what stands behind: today jemalloc, in its own build with a prefix. (`fast_path` is open for two macros
//! that define `malloc` and `free` with a question before.)
//!
//! May import: arch, os, state.
//!
//! Not here: samples, stacks and everything else that is known of a block.
//!
//! Order within: layout < bins < own_arena < rtree, mallctl < large, tcache_policy < fast_path < heap.

mod bins;
mod cache_gc;
pub(crate) mod fast_path;
mod global;
mod heap;
mod large;
mod layout;
mod mallctl;
mod os_shims;
mod own_arena;
mod rtree;
mod spare_arena;
mod string_shims;
mod tcache_policy;

pub(crate) use cache_gc::run_if_due as collect_cache_garbage_if_due;
pub(crate) use global::{
    can_have, can_map, give_up_for_want_of_memory, is_short, prepare as stop_writer_by,
};
pub(crate) use heap::{
    Fit, aligned, be_quiet, calloc, class, free, malloc, realloc, realloc_elsewhere, usable,
    usable_of_new,
};
pub(crate) use mallctl::{decay, dirty_bytes, purge, stats};
#[cfg(target_env = "musl")]
pub(crate) use os_shims::environment_of_libc;
pub(crate) use os_shims::remember_environment;

/// At boot, before anything else is allocated: lays by what a later want of memory needs.
pub(crate) fn prepare() {
    spare_arena::prepare();
}

/// At boot, after [`prepare`]: tries whether jemalloc is laid out as described, and uses what is.
/// `uses_fast_path`: false leaves each call to jemalloc's own functions.
pub(crate) fn learn(uses_fast_path: bool) {
    rtree::learn(uses_fast_path);
    fast_path::learn(uses_fast_path);
    let is_known = fast_path::is_known();
    large::learn(is_known);
    tcache_policy::prepare(is_known);
}
