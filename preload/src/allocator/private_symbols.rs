//! jemalloc's own variables and functions behind some of its values: an arena, a thread's cache, how large blocks are cut.
//!
//! Danger: functions and variables of another library, which does not promise any; what they are is that of the exact version in Cargo.lock. By
//! their names (`allocator/mallctl.rs`) they would be safe, and dear: jemalloc then makes its account of everything first.

use std::ffi::{c_int, c_uint, c_void};

use tikv_jemalloc_sys as sys;

use crate::allocator::{fast_path, mallctl, rtree};

unsafe extern "C" {
    /// How many arenas there are.
    fn _rjem_je_narenas_total_get() -> c_uint;
    /// Makes that of this number; one that there is stays as it is. Null: there is no memory.
    fn _rjem_je_arena_init(
        thread: *mut c_void,
        number: c_uint,
        config: *const c_void,
    ) -> *mut c_void;
    /// How an arena is made if nobody wants it otherwise.
    static _rjem_je_arena_config_default: u8;
    /// Makes a cache for the thread, or takes it away.
    fn _rjem_je_tcache_enabled_set(thread: *mut c_void, is_enabled: bool);
    /// Bytes of the largest block that is kept in threads' caches. Written while jemalloc reads its options.
    #[link_name = "_rjem_je_global_do_not_change_tcache_maxclass"]
    static LARGEST_CACHED: usize;
}

/// Makes another arena, and returns its number.
///
/// jemalloc counts them once more where its account is made. That is not before the first call by a name; before it, which is when ours is made, at
/// our first block, one more is found then. After it there would be one that the account does not have, and that is all.
pub(crate) fn create_arena() -> Option<c_int> {
    let config = &raw const _rjem_je_arena_config_default;
    // SAFETY: `nallocx` makes jemalloc ready, and this thread's words, if they are not, and says 0 where it cannot. The next free number, or, if another thread
    // makes one meanwhile, that one's: we share it then. The configuration is jemalloc's.
    unsafe {
        if sys::nallocx(1, 0) == 0 {
            return None;
        }
        let number = _rjem_je_narenas_total_get();
        let arena = _rjem_je_arena_init(fast_path::thread().cast(), number, config.cast());
        (!arena.is_null()).then_some(number as c_int)
    }
}

/// Whether large blocks are as many pages as their sizes take.
pub(crate) fn is_large_pages() -> bool {
    // SAFETY: asks what a block of that size would have; any above 0 may be asked for.
    let usable = |size| unsafe { sys::nallocx(size, 0) };
    // By jemalloc's size classes, which an option brings back, it would have 80 pages, and not 65.
    let pages = (64 << rtree::PAGE_BITS) + 1;
    usable(pages) == pages.next_multiple_of(mallctl::PAGE)
}

/// Bytes of the largest block that is kept in threads' caches.
pub(crate) fn largest_cached() -> usize {
    // SAFETY: not written any more once jemalloc has allocated.
    unsafe { LARGEST_CACHED }
}

/// Makes a cache for this thread. Nobody need know whether there is the memory for it: jemalloc gets on without.
#[cold]
pub(crate) fn give_cache() {
    // SAFETY: this thread's words, once `nallocx` has made all of them ready. A thread that did nothing but free has only some (`tsd_fetch_min`), and jemalloc
    // would make the others later, and forget a cache that was given before.
    unsafe {
        sys::nallocx(1, 0);
        _rjem_je_tcache_enabled_set(fast_path::thread().cast(), true);
    }
}
