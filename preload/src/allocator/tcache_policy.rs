//! When a thread has a cache of jemalloc's: from some kilobytes on, until it ends.
//!
//! Danger: variables and functions of another library, which does not promise any. jemalloc makes a thread's cache at its first
//! allocation, 28 KiB that are zeroed, and empties it at its end, with two locks for each of three dozen classes. A thread of a hundred blocks
//! is done sooner without. So jemalloc is told at boot that threads have none (`opt.tcache`; the main thread has its own by then), and a
//! thread comes here when jemalloc is to allocate or free for it what a cache would have (`allocator/fast_path.rs`: its bins are empty and full at once; its limits are 0). When it has
//! allocated and freed [`ENOUGH`], it is given one (`allocator/private_symbols.rs`).
//!
//! At its end, to which the linker leads jemalloc through us (`--wrap`, build.rs), it is through with caches: one that came later,
//! for what other destructors free, would never be given back. And jemalloc need not look at bins that nothing was taken from: it is told, by
//! a function of its own, that their classes are not cached.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::{bins, layout};
use crate::arch::system_call::hidden_jump;
use crate::os::errno;
use crate::state::thread;

/// Usable bytes: of small blocks some 250 calls, which is about where a cache has earned what it costs (docs/lab-notes/threads.md).
pub(crate) const ENOUGH: u32 = 20 << 10;

/// Whether threads come here without one.
static COMES_LATE: AtomicBool = AtomicBool::new(false);

hidden_jump! { "__wrap__rjem_je_tcache_cleanup" => leaves }

/// At boot, once it is known where a thread's limits are: from now on, caches come late. Unless the program's user wants none
/// at all (`tcache:false` in `_RJEM_MALLOC_CONF`).
pub(crate) fn prepare(is_fast_path_known: bool) {
    // SAFETY: a C bool, which is a byte, 0 or 1. jemalloc writes it while it reads its options, which is done, and reads it in each thread's
    // first allocation.
    let from_the_start = unsafe { &layout::CACHE_FROM_THE_START };
    if is_fast_path_known && from_the_start.swap(false, Ordering::Relaxed) {
        COMES_LATE.store(true, Ordering::Relaxed);
    }
}

/// For assembly: before a thread without a cache allocates or frees more than enough. errno is left alone.
pub(crate) extern "C" fn give_cache() {
    if !COMES_LATE.load(Ordering::Relaxed) {
        return;
    }
    let thread = thread::current();
    // Before it is given: jemalloc, or a signal's handler meanwhile, may come here again.
    if !thread.is_cache_settled.replace(true) {
        // SAFETY: this thread's words, once `nallocx` has made all of them ready. A thread that did nothing
        // but free has only some (`tsd_fetch_min`), and jemalloc would make the others later, and forget a
        // cache that was given before. Whether there is memory for it nobody need know: jemalloc does without.
        errno::preserve(|| unsafe {
            sys::nallocx(1, 0);
            layout::tcache_enabled_set(bins::thread().cast(), true);
        });
    }
}

/// In jemalloc, in a thread that ends: gives back what its bins hold.
extern "C" fn leaves(thread: *mut c_void) {
    thread::current().is_cache_settled.set(true);
    let unused = COMES_LATE
        .load(Ordering::Relaxed)
        .then(|| bins::unused(thread.cast()));
    for bin in unused.into_iter().flatten() {
        // SAFETY: a bin of this thread's, in which there is nothing, and of which there is nothing to be added up. Another thread may be reading it, to
        // add up what caches hold (`tcache_bytes` of an arena's, which we never ask for); jemalloc has it read bins that change, too.
        unsafe { layout::cache_bin_init_disabled(bin.cast(), 0) };
    }
    // SAFETY: jemalloc's own argument, handed on.
    unsafe { layout::tcache_cleanup(thread) }
}
