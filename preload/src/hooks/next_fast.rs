//! Fast paths if the next allocator serves the program: the sampler's check, and a jump to that
//! allocator.
//!
//! The exported functions have the fast path of jemalloc. If the next allocator serves the program,
//! boot replaces the first instruction of each by a jump to the function here. So neither path has
//! a check for the choice. If the code cannot be changed, jemalloc's path leads each call to
//! the slow path (`allocator/slow_path`), with the same results.
//!
//! Danger: code of this library is changed, at boot, before other threads exist. The replaced
//! functions have no loop, so no jump leads between the replaced bytes.

use std::ffi::c_void;

use heapprof_core::BloomFilter;

use crate::allocator;
use crate::allocator::slow_path::{self, FREE_AT, MALLOC_AT, TARGETS};
use crate::arch::next_fast_path::{forwarding_free, forwarding_malloc, forwarding_new, jump};
use crate::hooks::entry::entry;
use crate::hooks::malloc::{
    calloc, calloc_edge_size, calloc_sampled, free_sampled, malloc_edge_size, malloc_sampled,
    realloc, resize_edge_size, resize_sampled,
};
use crate::hooks::malloc_fast::{free, malloc};
use crate::hooks::operators::{self, new_called_from, new_slow_path};
use crate::hooks::sample;
use crate::os::code;
use crate::recording::sampled_blocks;
use crate::state::thread;

forwarding_malloc! {
    /// As [`malloc`].
    ///
    /// # Safety
    /// As malloc(3).
    fn malloc_from_next;
    left = const thread::LEFT,
    edge = sym malloc_edge_size,
    sampled = sym malloc_sampled,
    targets = sym TARGETS,
    malloc = const MALLOC_AT,
}

forwarding_free! {
    /// As [`free`].
    ///
    /// # Safety
    /// As free(3).
    fn free_to_next;
    bloom_filter = sym sampled_blocks::BLOOM_FILTER,
    multiplier = const BloomFilter::MULTIPLIER_AT,
    shift = const BloomFilter::SHIFT,
    counters = const BloomFilter::COUNTERS_AT,
    sampled = sym free_sampled,
    targets = sym TARGETS,
    free = const FREE_AT,
}

/// Defines `operator new` of a size.
macro_rules! new_from_next {
    ($name:ident $index:literal) => {
        forwarding_new! {
            /// Returns a block of that many bytes, or handles the failure as the C++ library does.
            fn $name;
            left = const thread::LEFT,
            index = const $index,
            called_from = sym new_called_from,
            sampled = sym new_slow_path,
            targets = sym TARGETS,
            malloc = const MALLOC_AT,
        }
    };
}

new_from_next! { op_new_from_next 0 }
new_from_next! { op_new_array_from_next 1 }

/// As [`calloc`].
///
/// # Safety
/// As calloc(3).
unsafe extern "C-unwind" fn calloc_from_next(count: usize, size: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    if !sample::is_valid_size(bytes) {
        // SAFETY: the caller's promise.
        return unsafe { calloc_edge_size(bytes) };
    }
    if sample::passes_valid(bytes) {
        // SAFETY: the caller's promise.
        return unsafe { slow_path::calloc(count, size) };
    }
    // SAFETY: the caller's promise.
    unsafe { calloc_sampled(bytes) }
}

/// As [`realloc`].
///
/// # Safety
/// As realloc(3).
unsafe extern "C-unwind" fn realloc_from_next(ptr: *mut c_void, size: usize) -> *mut c_void {
    if !sample::is_valid_size(size) {
        // SAFETY: the caller's promise.
        return unsafe { resize_edge_size(ptr, size, entry!(realloc)) };
    }
    if sample::passes_valid(size) && !sampled_blocks::may_be_sampled(ptr) {
        // SAFETY: the caller's promise.
        return unsafe { slow_path::realloc(ptr, size) };
    }
    // SAFETY: the caller's promise.
    unsafe { resize_sampled(ptr, size, entry!(realloc)) }
}

/// At boot, after the operators are prepared: if the next allocator serves the program, calls take
/// the paths above from here on.
pub(crate) fn prepare() {
    if !allocator::has_next() {
        return;
    }
    forward(malloc as *const (), malloc_from_next as *const ());
    forward(free as *const (), free_to_next as *const ());
    forward(calloc as *const (), calloc_from_next as *const ());
    forward(realloc as *const (), realloc_from_next as *const ());
    if !operators::are_ours() {
        return;
    }
    for operator in operators::deletes() {
        forward(operator.cast(), free_to_next as *const ());
    }
    forward(operators::address(0), op_new_from_next as *const ());
    forward(operators::address(1), op_new_array_from_next as *const ());
}

/// Makes calls of the function `from` lead to `to`.
fn forward(from: *const (), to: *const ()) {
    let (from, to) = (from as u64, to as u64);
    if let Some(jump) = jump(from, to) {
        // SAFETY: at boot no other thread runs, and this thread runs none of these functions. Each
        // is longer than the jump.
        let _ = unsafe { code::replace(from, &jump) };
    }
}
