//! The layout of jemalloc: every offset, constant and symbol of its private parts that this library uses.
//!
//! Danger: another library's memory, which does not promise how it is laid out. All of it is that of the
//! exact version in Cargo.toml; `tests/tests/jemalloc_layout.rs` compares each line of this file with the
//! debug information of the jemalloc that is linked. So another version is a failed test, and not a
//! corrupted heap. At boot, [`fast_path`](super::fast_path) and its neighbours also try what they rely on,
//! and leave a call to jemalloc where the answer differs.
//!
//! This file uses nothing of this crate: the test includes it as it is.
//!
//! ```text
//!  tsd_t (a thread's words)             rtree: two levels over the 48 bits of an address
//!  ┌──────────────────────────┐           root[bits 30..48] ──> leaf[bits 12..30] ──> entry
//!  │ allocated, its limit     │          entry = class << 48 | edata_t's address | … | is_small
//!  │ freed, its limit         │
//!  │ bins[class]: cache_bin_t │         cache_bin_t: a stack of free blocks, which grows downwards
//!  └──────────────────────────┘           full ── … ── head ── … ── low_water ── … ── empty
//! ```

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32};

/// Offset in `tsd_t`: usable bytes of all that the thread allocated.
pub(crate) const ALLOCATED: usize = 0x3a0;
/// Offset in `tsd_t`: the count of allocated bytes that calls jemalloc. 0: jemalloc wants every call.
pub(crate) const ALLOCATED_LIMIT: usize = 0x3a8;
/// Offset in `tsd_t`: usable bytes of all that the thread freed.
pub(crate) const FREED: usize = 0x3b0;
/// Offset in `tsd_t`: the count of freed bytes that calls jemalloc. 0: jemalloc wants every call.
pub(crate) const FREED_LIMIT: usize = 0x3b8;
/// Offset in `tsd_t`: the first of the bins of the thread's cache, in order of their classes.
pub(crate) const BINS: usize = 0x3c8;

/// A bin of a thread's cache (`cache_bin_s`). Its stack grows downwards; places in it are told apart by
/// the lowest 16 bits of their addresses.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Bin {
    /// The block that was put there last.
    pub(crate) head: *const *mut c_void,
    /// How many blocks were taken.
    pub(crate) requests: u64,
    /// The highest head since jemalloc last looked.
    pub(crate) low_water: u16,
    /// The head when there is room for no more.
    pub(crate) full: u16,
    /// The head when there is none.
    pub(crate) empty: u16,
    /// How many there is room for, at most.
    pub(crate) most: u16,
}

/// Bytes of the smallest request that jemalloc is asked for. Its smallest class is 8 bytes, aligned to 8;
/// glibc documents 16 for every block, and a request of 9 is the smallest that gets 16.
pub(crate) const SMALLEST: usize = 9;
/// Classes of which several blocks share a slab (`SC_NBINS`). They come first.
pub(crate) const SMALL_CLASSES: usize = 36;
/// Bytes of the largest block of a small class (`SC_SMALL_MAXCLASS`).
pub(crate) const LARGEST_SMALL: usize = 14336;
/// Bytes of the largest block that a thread's cache keeps, unless an option says otherwise (`tcache_max`).
pub(crate) const LARGEST_CACHED: usize = 32 << 10;
/// Bytes of the largest block whose class tells its size (`USIZE_GROW_SLOW_THRESHOLD`).
pub(crate) const LARGEST_TOLD_BY_CLASS: usize = 8 << PAGE_BITS;

/// Bits of an address below the page number (`LG_PAGE`).
pub(crate) const PAGE_BITS: u32 = 12;
/// Bytes of a page.
pub(crate) const PAGE: usize = 1 << PAGE_BITS;
/// Alignment of blocks that nobody wants aligned, of those without a slab (`CACHELINE`).
pub(crate) const LARGE_ALIGNMENT: usize = 64;

/// Offset of `root` in `rtree_s`, behind the pointer to what it is allocated from and a mutex.
pub(crate) const ROOT_AT: usize = 0x78;
/// Bits of an address that the root does not tell: the page's place in a leaf. The others are in the root.
pub(crate) const LEAF_BITS: u32 = 18;
/// Where an entry has the class.
pub(crate) const CLASS_AT: u32 = 48;
/// The bit of an entry that says that its block shares a slab.
pub(crate) const IS_SMALL: usize = 1;
/// Alignment of an `edata_t` (`EDATA_ALIGNMENT`).
pub(crate) const EXTENT_ALIGNMENT: usize = 128;
/// Offset in `edata_t` of how many bytes there are, in all but the lowest bits (`e_size_esn`).
pub(crate) const EXTENT_BYTES_AT: usize = 16;
/// Classes that an entry can name; there is none beyond.
pub(crate) const CLASSES: usize = 256;

/// What jemalloc does for its own sake as threads allocate (`te_base_cb_s`).
#[repr(C)]
pub(crate) struct ThreadEvent {
    pub(crate) is_enabled: extern "C" fn() -> c_int,
    pub(crate) next_wait: extern "C" fn(*mut c_void) -> u64,
    pub(crate) postponed_wait: extern "C" fn(*mut c_void) -> u64,
    pub(crate) happens: unsafe extern "C" fn(*mut c_void),
}

unsafe extern "C" {
    /// A thread's words (`tsd_t`), in initial-exec thread-local storage: reached by assembly only.
    #[link_name = "_rjem_je_tsd_tls"]
    pub(crate) static THREAD_WORDS: u8;
    /// `emap_t`: an `rtree_t`, which ends in its root.
    #[link_name = "_rjem_je_arena_emap_global"]
    pub(crate) static EMAP: u8;
    /// `size_t[]`: bytes of each class; its first place.
    #[link_name = "_rjem_je_sz_index2size_tab"]
    pub(crate) static CLASS_BYTES: usize;

    /// Looks through a thread's cache, if that was not done in the last 10 ms: gives back half and more of
    /// what was not used meanwhile.
    #[link_name = "_rjem_je_tcache_gc_te_handler"]
    pub(crate) static CACHE_GC: ThreadEvent;

    /// Whether a thread has a cache from its first allocation on.
    #[link_name = "_rjem_je_opt_tcache"]
    pub(crate) static CACHE_FROM_THE_START: AtomicBool;
    /// Bytes of the largest block that caches keep. Written while jemalloc reads its options.
    #[link_name = "_rjem_je_global_do_not_change_tcache_maxclass"]
    pub(crate) static CACHED_BYTES: usize;
    /// How many arenas threads are divided among; those after them are made by hand.
    #[link_name = "_rjem_je_narenas_auto"]
    pub(crate) static ARENAS_FOR_THREADS: AtomicU32;
    /// How an arena is made if nobody wants it otherwise (`arena_config_t`).
    #[link_name = "_rjem_je_arena_config_default"]
    pub(crate) static ARENA_CONFIG: u8;

    /// A block of `bytes`, a number of pages; `arena` null: the thread's. Null: there is no memory, and
    /// errno says nothing.
    #[link_name = "_rjem_je_large_palloc"]
    pub(crate) fn large_palloc(
        thread: *mut c_void,
        arena: *mut c_void,
        bytes: usize,
        alignment: usize,
        is_zeroed: bool,
    ) -> *mut c_void;
    /// Frees the block that `extent` describes.
    #[link_name = "_rjem_je_large_dalloc"]
    pub(crate) fn large_dalloc(thread: *mut c_void, extent: *mut c_void);

    /// How many arenas there are.
    #[link_name = "_rjem_je_narenas_total_get"]
    pub(crate) fn arenas_total() -> c_uint;
    /// Makes the arena of this number; one that there is stays as it is. Null: there is no memory.
    #[link_name = "_rjem_je_arena_init"]
    pub(crate) fn arena_init(
        thread: *mut c_void,
        number: c_uint,
        config: *const c_void,
    ) -> *mut c_void;
    /// Makes a cache for the thread, or takes it away.
    #[link_name = "_rjem_je_tcache_enabled_set"]
    pub(crate) fn tcache_enabled_set(thread: *mut c_void, is_enabled: bool);
    /// Makes a bin one of a class that is not cached.
    #[link_name = "_rjem_je_cache_bin_init_disabled"]
    pub(crate) fn cache_bin_init_disabled(bin: *mut c_void, most: u16);

    /// Empties a thread's cache at its end; by the linker's name for what it wraps.
    #[link_name = "__real__rjem_je_tcache_cleanup"]
    pub(crate) fn tcache_cleanup(thread: *mut c_void);
    /// Makes an arena's first block; by the linker's name for what it wraps.
    #[link_name = "__real__rjem_je_base_new"]
    pub(crate) fn base_new(
        thread: *mut c_void,
        arena: c_uint,
        hooks: *const c_void,
        metadata_use_hooks: bool,
    ) -> *mut c_void;
}

/// Returns how far the class of a block of `size` bytes is from the next smaller one.
///
/// jemalloc's classes (jemalloc(3), "Implementation notes") are multiples of 16 up to 128, then four to
/// each doubling. So the class below one in (2^k, 2^(k+1)] is 2^(k-2) smaller.
#[inline(always)]
pub(crate) fn spacing(size: usize) -> usize {
    (1usize << (usize::BITS - 1 - (size.wrapping_sub(1) | 64).leading_zeros())) >> 2
}

/// Returns the usable bytes of a small block that was asked for by its size.
#[inline(always)]
pub(crate) fn small_class_of(size: usize) -> usize {
    let size = size.max(SMALLEST);
    size.wrapping_add(spacing(size) - 1) & !(spacing(size) - 1)
}
