//! Enclosure: calls of the next allocator whose functions are tapped.
//!
//! A program may call the allocator that serves it by the allocator's own functions, which are
//! tapped. Hooks call the same allocator, often at the same entries: gperftools' `tc_malloc` is
//! also its `malloc`. So each such call is made as the calls of a tap are, and no tap in it records
//! anything.
//!
//! jemalloc needs none: no function that hooks call leads to one of its own functions.

use std::ffi::{c_int, c_void};

use super::tapped_function::CallScope;
use crate::allocator;

unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    let _within = CallScope::enter();
    // SAFETY: the next allocator is enclosed, so it serves the program; as malloc(3).
    unsafe { (allocator::next_itself().malloc)(size) }
}

unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let _within = CallScope::enter();
    // SAFETY: as above; as calloc(3).
    unsafe { (allocator::next_itself().calloc)(count, size) }
}

unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let _within = CallScope::enter();
    // SAFETY: as above; as realloc(3).
    unsafe { (allocator::next_itself().realloc)(block, size) }
}

unsafe extern "C" fn free(block: *mut c_void) {
    let _within = CallScope::enter();
    // SAFETY: as above; as free(3).
    unsafe { (allocator::next_itself().free)(block) }
}

unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    let _within = CallScope::enter();
    // SAFETY: as above; as posix_memalign(3).
    unsafe { (allocator::next_itself().posix_memalign)(place, alignment, size) }
}

/// At boot: encloses each call of the next allocator.
pub(super) fn begin() {
    allocator::enclose_next(allocator::Enclosure {
        malloc,
        calloc,
        realloc,
        free,
        posix_memalign,
    });
}
