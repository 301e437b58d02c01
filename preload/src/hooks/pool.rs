//! Pools: blocks that an allocator of the program's own reports (`heapprof_alloc`, …).
//!
//! A pool cuts blocks out of memory that it has from `malloc` or `mmap`. Its first block may begin
//! where the memory from `malloc` begins. So a reported block is known by another number than its
//! address: one that no block of an allocator has.
//!
//! Danger: the C boundary, as in `malloc`. `include/heapprof.h` documents the functions.

use std::ffi::c_void;

use crate::allocator::Fit;
use crate::arch::entry_stubs::with_caller;
use crate::hooks::early_heap;
use crate::hooks::entry::entry;
use crate::hooks::sample::{self, OldSample};
use crate::recording::sampled_blocks::{self, reported_number as number};
use crate::unwind::walk::WalkStart;

with_caller! {
    /// Records that a pool has given out `size` bytes at `ptr`. Null is ignored.
    ///
    /// # Safety
    /// Any address may be passed.
    #[unsafe(no_mangle)]
    heapprof_alloc(ptr: *mut c_void, size: usize) -> () => alloc_called_from
}

/// A pool's block is as large as requested.
fn fit(size: usize) -> Fit {
    Fit::reported(size)
}

extern "C-unwind" fn alloc_called_from(ptr: *mut c_void, size: usize, sp: *const u64, bp: u64) {
    if ptr.is_null() || early_heap::is_active() {
        return;
    }
    end(number(ptr));
    if sample::passes(size) {
        return;
    }
    // SAFETY: the exported function passed its own registers.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let entry = entry!(heapprof_alloc);
    sample::on_allocation(entry, number(ptr), size, fit(size), here);
}

/// Records that a pool takes back the block at `ptr`. Call it before the pool can give the memory
/// out again.
///
/// # Safety
/// Any address may be passed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn heapprof_free(ptr: *mut c_void) {
    end(number(ptr));
}

/// Records the end of the sample of that number, if there is one. A pool that gives out an address
/// again has taken back the block that was there: it may be emptied at once, without a report.
fn end(number: *mut c_void) {
    if sampled_blocks::may_be_sampled(number) {
        sample::on_free(number);
    }
}

with_caller! {
    /// Records that a pool has resized the block at `old` to `size` bytes, now at `new`. A null
    /// `new` is ignored: the pool could not, and the old block is as it was.
    ///
    /// # Safety
    /// Any addresses may be passed.
    #[unsafe(no_mangle)]
    heapprof_realloc(old: *mut c_void, new: *mut c_void, size: usize) -> () => realloc_called_from
}

extern "C-unwind" fn realloc_called_from(
    old: *mut c_void,
    new: *mut c_void,
    size: usize,
    sp: *const u64,
    bp: u64,
) {
    if new.is_null() || early_heap::is_active() {
        return;
    }
    let (old, new) = (number(old), number(new));
    let taken = match sampled_blocks::may_be_sampled(old) {
        true => sampled_blocks::take(old),
        false => None,
    };
    let old = taken.map_or(OldSample::None, OldSample::Taken);
    end(new);
    if sample::passes(size) {
        return old.end(new);
    }
    // SAFETY: the exported function passed its own registers.
    let here = unsafe { WalkStart::caller(sp, bp) };
    let entry = entry!(heapprof_realloc);
    sample::on_reallocation(entry, new, size, fit(size), here, old);
}
