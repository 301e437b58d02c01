//! The slow path: where the fast path jumps if it does not serve a call.
//!
//! The targets are variables, which the first call sets: to jemalloc, or to the next allocator if
//! that serves the program. So the fast path needs no check for this choice.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::SMALLEST;
use crate::allocator::{next, reclaim};

/// The targets. Assembly jumps to the address in each word.
#[repr(C)]
pub(crate) struct Targets {
    malloc: AtomicPtr<c_void>,
    free: AtomicPtr<c_void>,
    /// The next allocator's; jemalloc's are never called.
    calloc: AtomicPtr<c_void>,
    realloc: AtomicPtr<c_void>,
}

pub(crate) static TARGETS: Targets = Targets {
    malloc: AtomicPtr::new(first_malloc as *mut c_void),
    free: AtomicPtr::new(first_free as *mut c_void),
    calloc: AtomicPtr::new(first_calloc as *mut c_void),
    realloc: AtomicPtr::new(first_realloc as *mut c_void),
};

pub(crate) const MALLOC_AT: usize = std::mem::offset_of!(Targets, malloc);
pub(crate) const FREE_AT: usize = std::mem::offset_of!(Targets, free);

/// Returns a block of jemalloc's, of a class that has glibc's least alignment.
///
/// # Safety
/// The promises of malloc(3).
unsafe extern "C" fn from_jemalloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { reclaim::malloc(size.max(SMALLEST)) }
}

/// Calls the target for malloc.
///
/// # Safety
/// The promises of malloc(3).
pub(crate) unsafe fn malloc(size: usize) -> *mut c_void {
    let target = TARGETS.malloc.load(Ordering::Relaxed);
    // SAFETY: each target is a malloc of this type.
    let malloc: unsafe extern "C" fn(usize) -> *mut c_void = unsafe { std::mem::transmute(target) };
    // SAFETY: the caller's promise.
    unsafe { malloc(size) }
}

/// Calls the target for free.
///
/// # Safety
/// The promises of free(3).
pub(crate) unsafe fn free(ptr: *mut c_void) {
    let target = TARGETS.free.load(Ordering::Relaxed);
    // SAFETY: each target is a free of this type.
    let free: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(target) };
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// Calls the target for calloc.
///
/// # Safety
/// The promises of calloc(3).
#[inline(always)]
pub(crate) unsafe fn calloc(count: usize, size: usize) -> *mut c_void {
    let target = TARGETS.calloc.load(Ordering::Relaxed);
    // SAFETY: each target is a calloc of this type.
    let calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void =
        unsafe { std::mem::transmute(target) };
    // SAFETY: the caller's promise.
    unsafe { calloc(count, size) }
}

/// Calls the target for realloc.
///
/// # Safety
/// The promises of realloc(3).
#[inline(always)]
pub(crate) unsafe fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    let target = TARGETS.realloc.load(Ordering::Relaxed);
    // SAFETY: each target is a realloc of this type.
    let realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void =
        unsafe { std::mem::transmute(target) };
    // SAFETY: the caller's promise.
    unsafe { realloc(ptr, size) }
}

/// The first malloc: sets the targets.
///
/// # Safety
/// The promises of malloc(3).
unsafe extern "C" fn first_malloc(size: usize) -> *mut c_void {
    set_targets();
    // SAFETY: the caller's promise.
    unsafe { malloc(size) }
}

/// The first free: sets the targets.
///
/// # Safety
/// The promises of free(3).
unsafe extern "C" fn first_free(ptr: *mut c_void) {
    set_targets();
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// The first calloc: sets the targets.
///
/// # Safety
/// The promises of calloc(3).
unsafe extern "C" fn first_calloc(count: usize, size: usize) -> *mut c_void {
    set_targets();
    // SAFETY: the caller's promise.
    unsafe { calloc(count, size) }
}

/// The first realloc: sets the targets.
///
/// # Safety
/// The promises of realloc(3).
unsafe extern "C" fn first_realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    set_targets();
    // SAFETY: the caller's promise.
    unsafe { realloc(ptr, size) }
}

/// Sets the targets: to the next allocator if that is chosen, else to jemalloc.
pub(super) fn set_targets() {
    let (malloc, free, calloc, realloc) = match next::chosen() {
        Some(next) => (
            next.malloc as *mut c_void,
            next.free as *mut c_void,
            next.calloc as *mut c_void,
            next.realloc as *mut c_void,
        ),
        None => (
            from_jemalloc as *mut c_void,
            sys::free as *mut c_void,
            sys::calloc as *mut c_void,
            sys::realloc as *mut c_void,
        ),
    };
    TARGETS.malloc.store(malloc, Ordering::Relaxed);
    TARGETS.free.store(free, Ordering::Relaxed);
    TARGETS.calloc.store(calloc, Ordering::Relaxed);
    TARGETS.realloc.store(realloc, Ordering::Relaxed);
}
