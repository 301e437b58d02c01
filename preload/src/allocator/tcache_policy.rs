//! The cache policy: which threads have a jemalloc cache. A thread gets one after
//! [`CACHE_THRESHOLD`] bytes, and keeps it until it ends.
//!
//! Danger: private variables and functions of another library. jemalloc creates a thread's cache at
//! its first allocation, and zeroes it. At the thread's end it empties the cache, with two locks
//! for each class. A thread that allocates little is faster without a cache.
//!
//! So boot tells jemalloc that threads have no caches (`opt.tcache`; the main thread already has
//! one). Without a cache, a thread's limits are 0 and its bins are empty and full at once. So the
//! fast path falls back to jemalloc, and first calls [`give_cache`] once the thread has allocated
//! and freed enough.
//!
//! The linker redirects jemalloc's call for a thread's end to this file (`--wrap`, build script).
//! From then on the thread gets no cache: one that is created later, for blocks that other
//! destructors free, would never be released. Empty bins from which no block was taken are marked
//! as not cached by jemalloc's own function, so jemalloc skips them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::{bins, layout};
use crate::arch::system_call::hidden_jump;
use crate::os::errno;
use crate::state::thread;

/// Usable bytes after which a thread gets a cache. In small blocks they are about the number of
/// calls at which a cache pays for itself (docs/lab-notes/threads.md).
pub(crate) const CACHE_THRESHOLD: u32 = 20 << 10;

/// True if threads start without a cache.
static IS_DEFERRED: AtomicBool = AtomicBool::new(false);

hidden_jump! { "__wrap__rjem_je_tcache_cleanup" => thread_exits }

/// At boot, once the offsets of a thread's limits are verified: makes threads start without a
/// cache. If the user wants no caches at all (`tcache:false` in `_RJEM_MALLOC_CONF`), nothing
/// changes.
pub(crate) fn prepare(is_fast_path_known: bool) {
    // SAFETY: a C bool, which is a byte of value 0 or 1. jemalloc has finished writing it, because
    // it has read its options. It reads the variable at each thread's first allocation.
    let from_the_start = unsafe { &layout::CACHE_FROM_THE_START };
    if is_fast_path_known && from_the_start.swap(false, Ordering::Relaxed) {
        IS_DEFERRED.store(true, Ordering::Relaxed);
    }
}

/// Called by assembly, when a thread without a cache allocates or frees after [`CACHE_THRESHOLD`]
/// bytes: gives it a cache. errno is unchanged.
pub(crate) extern "C" fn give_cache() {
    if !IS_DEFERRED.load(Ordering::Relaxed) {
        return;
    }
    let thread = thread::current();
    // Set before the cache exists, because jemalloc, or a signal handler meanwhile, may come here
    // again.
    if !thread.is_cache_settled.replace(true) {
        // SAFETY: this thread's words, after `nallocx` has initialized all of them. A thread that
        // has only freed has initialized a part (`tsd_fetch_min`). jemalloc would initialize the
        // others later, and lose a cache that exists by then. A lack of memory for the cache needs
        // no handling: jemalloc continues without a cache.
        errno::preserve(|| unsafe {
            sys::nallocx(1, 0);
            layout::tcache_enabled_set(bins::thread().cast(), true);
        });
    }
}

/// In jemalloc, in a thread that ends: releases its cache.
extern "C" fn thread_exits(thread: *mut c_void) {
    thread::current().is_cache_settled.set(true);
    let unused = IS_DEFERRED
        .load(Ordering::Relaxed)
        .then(|| bins::unused(thread.cast()));
    for bin in unused.into_iter().flatten() {
        // SAFETY: a bin of this thread, which is empty and has no counts to add. Another thread may
        // be reading it to sum the bytes in caches (`tcache_bytes` of an arena, which we never
        // request). jemalloc itself lets that thread read bins that change.
        unsafe { layout::cache_bin_init_disabled(bin.cast(), 0) };
    }
    // SAFETY: jemalloc's own argument, passed on.
    unsafe { layout::tcache_cleanup(thread) }
}
