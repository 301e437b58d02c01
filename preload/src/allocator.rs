//! The allocator: the program's heap and this library's own arena, behind one interface.
//!
//! The interface is the functions and types below. The rest of the library calls only these, and is
//! independent of the allocator behind them. That is jemalloc, built with a prefix. (`fast_path` is
//! public for two macros that define `malloc` and `free` with a check in front, and `slow_path` for
//! the addresses that such functions jump to.)
//!
//! Another allocator provides:
//!
//! | what | functions |
//! | --- | --- |
//! | blocks of the program | `malloc`, `calloc`, `aligned`, `realloc` and its two halves, `free` |
//! | sizes of such blocks | `class`, `usable`, `usable_of_new` |
//! | memory of this library | a `GlobalAlloc`, `can_allocate`, `can_map`, `is_short` |
//! | statistics | `stats`, `take_census`, `UntouchedWalk` |
//! | places of blocks | `slabs::are_known`, `slabs::of_block`, `block_sizes::of_block` |
//! | purging | `dirty_bytes`, `decay`, `purge` |
//!
//! The other functions may do nothing. jemalloc's needs show outside in these places:
//!
//! - its fork handlers (`host/atfork.rs`), and its system calls (`host/seccomp_filters.rs`);
//! - four words of a thread (`state/thread.rs`);
//! - the purge while the program is idle (`writer/idle_purge.rs`);
//! - its mappings (`os/mapping_shims.rs`);
//! - the assembly of its fast path (`arch/x86_64/jemalloc_fast_path.rs`);
//! - the linker's `--wrap` options (the build script).
//!
//! With `HEAPPROF_ALLOCATOR=program`, or if the program calls functions that only its own allocator
//! has, the blocks of the program come from the allocator that would serve it without this library
//! (`next`), and jemalloc has this library's own memory only.
//!
//! May import: arch, os, state.
//!
//! Not here: samples, stacks and other knowledge about a block.

mod bins;
pub(crate) mod block_sizes;
mod cache_gc;
mod census;
mod counts;
mod extents;
pub(crate) mod fast_path;
mod global;
mod heap;
mod large;
mod layout;
mod mallctl;
mod next;
mod os_shims;
mod own_arena;
mod own_functions;
mod reclaim;
mod rtree;
pub(crate) mod slabs;
pub(crate) mod slow_path;
mod spare_arena;
mod string_shims;
mod tcache_policy;

pub(crate) use cache_gc::run_if_due as collect_cache_garbage_if_due;
pub(crate) use census::take as take_census;
pub(crate) use counts::UntouchedPages;
pub(crate) use extents::UntouchedWalk;
pub(crate) use global::{
    can_allocate, can_map, give_up_without_memory, is_short, prepare as set_writer_stop,
};
pub(crate) use heap::{
    Fit, aligned, calloc, class, free, initialize, malloc, realloc, realloc_elsewhere,
    redirect_messages, usable, usable_of_new,
};
pub(crate) use mallctl::{decay, dirty_bytes, purge, stats};
pub(crate) use next::{
    Enclosure, is_chosen as has_next, is_chosen_for_calls, is_missed as is_next_missed,
    itself as next_itself, library as next_library, own_call as own_call_into_next,
};
pub(crate) use own_functions::{OwnCall, call_into_any as own_call_into_any};

/// At boot: calls of the next allocator go through the enclosure from here on.
pub(crate) fn enclose_next(by: Enclosure) {
    next::enclose(by);
    slow_path::set_targets();
}

/// At boot, before anything else is allocated: reserves what a later shortage of memory needs.
pub(crate) fn prepare() {
    spare_arena::prepare();
}

/// At boot, after [`prepare`]: verifies jemalloc's layout, and enables what matches. Without
/// `uses_fast_path`, each call goes to jemalloc's own functions.
pub(crate) fn learn(uses_fast_path: bool) {
    if next::chosen().is_some() {
        return; // jemalloc has no block of the program
    }
    heap::enable_bounds();
    rtree::learn(uses_fast_path);
    fast_path::learn(uses_fast_path);
    let is_known = fast_path::is_known();
    large::learn(is_known);
    tcache_policy::prepare(is_known);
}
