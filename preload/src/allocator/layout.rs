//! The layout of jemalloc: every offset, constant and symbol of its private parts that this library
//! uses.
//!
//! Danger: another library's memory, whose layout is not guaranteed. All values are those of the
//! exact version in Cargo.toml. A test (`jemalloc_layout`) compares every symbol, offset and width
//! of this file with the debug information of the linked jemalloc. So another version fails a test,
//! and does not corrupt a heap. At boot, [`fast_path`](super::fast_path) and its neighbours verify
//! the values that they use, among them the largest blocks of classes and the bits of an entry of
//! the map, which debug information lacks. If one differs, they leave the call to jemalloc.
//!
//! `HEAPPROF_FAST_PATH=0` switches off all code that writes to a thread's words and caches, and the
//! walk over extents. The counts of the census, the spare arena and the second attempts of an
//! allocation (`reclaim`) stay.
//!
//! This file uses nothing of this crate, because the test includes it unchanged.
//!
//! ```text
//!  tsd_t (a thread's words)             rtree: two levels over the 48 bits of an address
//!  ┌──────────────────────────┐           root[bits 30..48] ──> leaf[bits 12..30] ──> entry
//!  │ allocated, its limit     │          entry = class << 48 | edata_t's address | … | is_small
//!  │ freed, its limit         │
//!  │ bins[class]: cache_bin_t │         cache_bin_t: a stack of free blocks, which grows downwards
//!  └──────────────────────────┘           full ── … ── head ── … ── low_water ── … ── empty
//! ```

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};

/// Offset in `tsd_t`: usable bytes of all blocks that the thread has allocated.
pub(crate) const ALLOCATED: usize = 0x3a0;
/// Offset in `tsd_t`: the count of allocated bytes at which jemalloc's slow path runs. 0: jemalloc
/// requires every call.
pub(crate) const ALLOCATED_LIMIT: usize = 0x3a8;
/// Offset in `tsd_t`: usable bytes of all blocks that the thread has freed.
pub(crate) const FREED: usize = 0x3b0;
/// Offset in `tsd_t`: the count of freed bytes at which jemalloc's slow path runs. 0: jemalloc
/// requires every call.
pub(crate) const FREED_LIMIT: usize = 0x3b8;
/// Offset in `tsd_t`: the first bin of the thread's cache. Bins are in the order of their classes.
pub(crate) const BINS: usize = 0x3c8;

/// A bin of a thread's cache (`cache_bin_s`). Its stack grows downwards. Fields of 16 bits hold the
/// lowest bits of addresses in the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Bin {
    /// The top of the stack: the block that was put there last.
    pub(crate) head: *const *mut c_void,
    /// Number of blocks that were taken.
    pub(crate) requests: u64,
    /// The highest head since jemalloc's last collection.
    pub(crate) low_water: u16,
    /// The head of a full bin.
    pub(crate) full: u16,
    /// The head of an empty bin.
    pub(crate) empty: u16,
    /// Capacity of the bin, in blocks.
    pub(crate) most: u16,
}

/// Bytes of the smallest request to jemalloc. jemalloc's smallest class is 8 bytes, aligned to 8.
/// glibc documents an alignment of 16 for every block, and 9 bytes is the smallest request that
/// gets it.
pub(crate) const SMALLEST: usize = 9;
/// Number of small classes: several blocks share a slab (`SC_NBINS`). They come first.
pub(crate) const SMALL_CLASSES: usize = 36;
/// Bytes of the largest block of a small class (`SC_SMALL_MAXCLASS`).
pub(crate) const LARGEST_SMALL: usize = 14336;
/// Bytes of the largest block that a thread's cache holds, unless an option changes it
/// (`tcache_max`).
pub(crate) const LARGEST_CACHED: usize = 32 << 10;
/// Bytes of the largest block whose class tells its size (`USIZE_GROW_SLOW_THRESHOLD`).
pub(crate) const LARGEST_SIZED_BY_CLASS: usize = 8 << PAGE_BITS;

/// Bits of an address below the page number (`LG_PAGE`).
pub(crate) const PAGE_BITS: u32 = 12;
/// Bytes of a page.
pub(crate) const PAGE: usize = 1 << PAGE_BITS;
/// Alignment of blocks without a slab that are requested without an alignment (`CACHELINE`).
pub(crate) const LARGE_ALIGNMENT: usize = 64;

/// Offset of `root` in `rtree_s`, after a pointer to the allocator of its nodes and a mutex.
pub(crate) const ROOT_AT: usize = 0x78;
/// Number of address bits that select a page's entry in a leaf. The bits above them select the leaf
/// in the root.
pub(crate) const LEAF_BITS: u32 = 18;
/// Lowest bit of the class in an entry.
pub(crate) const CLASS_AT: u32 = 48;
/// Bit of an entry that marks a block in a slab.
pub(crate) const IS_SMALL: usize = 1;
/// Alignment of an `edata_t` (`EDATA_ALIGNMENT`).
pub(crate) const EXTENT_ALIGNMENT: usize = 128;
/// Offset in `edata_t` of the extent's bytes, without the lowest bits (`e_size_esn`).
pub(crate) const EXTENT_BYTES_AT: usize = 16;
/// Lowest bit of the state of an extent in the entry of its first page, and the width.
pub(crate) const STATE_AT: u32 = 2;
pub(crate) const STATE_BITS: u32 = 3;
/// States (`extent_state_t`) of free pages: not returned to the kernel, for the kernel to take, and
/// returned. Pages in use have another one.
pub(crate) const DIRTY: usize = 1;
pub(crate) const MUZZY: usize = 2;
pub(crate) const RETAINED: usize = 3;
/// Width of the number of the arena in the first word of `edata_t` (`e_bits`), from the lowest bit
/// on.
pub(crate) const ARENA_BITS: u32 = 12;
/// Lowest bits of other fields in there, with the widths of two: whether the extent is a slab, its
/// class, and its number of free blocks.
pub(crate) const IS_SLAB_AT: u32 = 12;
pub(crate) const SLAB_CLASS_AT: u32 = 20;
pub(crate) const SLAB_CLASS_BITS: u32 = 8;
pub(crate) const FREE_BLOCKS_AT: u32 = SLAB_CLASS_AT + SLAB_CLASS_BITS;
pub(crate) const FREE_BLOCKS_BITS: u32 = 10;
/// Number of classes that an entry can name, more than exist.
pub(crate) const CLASSES: usize = 256;

/// Offsets in `arena_s`: its first cache (`cache_bin_array_descriptor_ql`), and the
/// `pthread_mutex_t` of that list, within `tcache_ql_mtx`.
pub(crate) const ARENA_CACHES_AT: usize = 11984;
pub(crate) const ARENA_CACHES_LOCK_AT: usize = 11992 + MUTEX_LOCK_AT;
/// Offset in `malloc_mutex_s` of its `pthread_mutex_t`, behind the statistics of the lock
/// (`mutex_prof_data_t`) and a hint.
pub(crate) const MUTEX_LOCK_AT: usize = 72;
/// Offset in `cache_bin_array_descriptor_s` of the pointer to the bins. The pointer to the next one
/// comes first.
pub(crate) const CACHE_BINS_AT: usize = 16;
/// Number of bins of a cache (`TCACHE_NBINS_MAX`), in the order of their classes.
pub(crate) const CACHED_CLASSES: usize = 41;
/// Offset in `arena_s` of the bytes in blocks of jemalloc's own (`stats.internal`).
pub(crate) const ARENA_INTERNAL_AT: usize = 24 + 48;
/// Offset in `arena_s` of the statistics of large classes (`stats.lstats`).
pub(crate) const ARENA_LARGE_AT: usize = 24 + 968;
/// Bytes of the statistics of a large class (`arena_stats_large_s`), the offsets in there of the
/// numbers of allocations and frees and of the bytes in use, and the number of large classes.
pub(crate) const LARGE_BYTES: usize = 56;
pub(crate) const LARGE_ALLOCATIONS_AT: usize = 0;
pub(crate) const LARGE_FREES_AT: usize = 8;
pub(crate) const LARGE_ACTIVE_AT: usize = 16;
pub(crate) const LARGE_CLASSES: usize = 196;
/// Offset in `arena_s` of the pointer to its base, and in `base_s` of its resident bytes.
pub(crate) const ARENA_BASE_AT: usize = 80648;
pub(crate) const BASE_RESIDENT_AT: usize = 3920;
/// Offsets in `arena_s` of the numbers of retained pages, without and with guard pages.
pub(crate) const ARENA_RETAINED_AT: [usize; 2] = [60984, 70640];
/// Offset in `arena_s` of its ranges of pages (`pa_shard.pac`).
pub(crate) const ARENA_RANGES_AT: usize = 12312;
/// Bytes of a `bin_s`, and the offset in there of its number of blocks (`stats.curregs`).
pub(crate) const BIN_BYTES: usize = 224;
pub(crate) const BIN_BLOCKS_AT: usize = 112 + 24;

/// A small class (`bin_info_s`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BinInfo {
    /// Usable bytes of a block.
    pub(crate) block: usize,
    /// Bytes of a slab.
    pub(crate) slab: usize,
    /// Blocks in a slab.
    pub(crate) blocks: u32,
    /// Bins of the class in an arena.
    pub(crate) shards: u32,
    /// The bitmap of a slab.
    pub(crate) bitmap: [usize; 2],
}

/// Periodic work of jemalloc in allocating threads (`te_base_cb_s`).
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
    /// `emap_t`: an `rtree_t`, whose last field is its root.
    #[link_name = "_rjem_je_arena_emap_global"]
    pub(crate) static EMAP: u8;
    /// `size_t[]`, bytes of each class: its first element.
    #[link_name = "_rjem_je_sz_index2size_tab"]
    pub(crate) static CLASS_BYTES: usize;

    /// Garbage collection of a thread's cache: returns half or more of the blocks that were not
    /// used since the last collection. It has no effect if the last one is less than 10 ms ago.
    #[link_name = "_rjem_je_tcache_gc_te_handler"]
    pub(crate) static CACHE_GC: ThreadEvent;

    /// True if a thread has a cache from its first allocation on.
    #[link_name = "_rjem_je_opt_tcache"]
    pub(crate) static CACHE_FROM_THE_START: AtomicBool;
    /// Bytes of the largest block that caches hold. Written while jemalloc reads its options.
    #[link_name = "_rjem_je_global_do_not_change_tcache_maxclass"]
    pub(crate) static CACHED_BYTES: usize;
    /// Number of arenas that threads are distributed over. Arenas with higher numbers are created
    /// explicitly.
    #[link_name = "_rjem_je_narenas_auto"]
    pub(crate) static ARENAS_FOR_THREADS: AtomicU32;
    /// The first of the words that point to the arenas, in the order of their numbers. Null: no
    /// arena has that number.
    #[link_name = "_rjem_je_arenas"]
    pub(crate) static ARENAS: AtomicPtr<c_void>;
    /// The first of the small classes, in order.
    #[link_name = "_rjem_je_bin_infos"]
    pub(crate) static BIN_INFOS: BinInfo;
    /// `uint32_t[]`, for each small class the offset in an arena of its first bin: its first
    /// element.
    #[link_name = "_rjem_je_arena_bin_offsets"]
    pub(crate) static ARENA_BIN_OFFSETS: u32;
    /// Default configuration of an arena (`arena_config_t`).
    #[link_name = "_rjem_je_arena_config_default"]
    pub(crate) static ARENA_CONFIG: u8;

    /// Returns a block of `bytes`, a multiple of the page size, from `arena`, or from the thread's
    /// arena if it is null. Returns null if there is no memory; errno is then meaningless.
    #[link_name = "_rjem_je_large_palloc"]
    pub(crate) fn large_palloc(
        thread: *mut c_void,
        arena: *mut c_void,
        bytes: usize,
        alignment: usize,
        is_zeroed: bool,
    ) -> *mut c_void;
    /// Frees the block of `extent`.
    #[link_name = "_rjem_je_large_dalloc"]
    pub(crate) fn large_dalloc(thread: *mut c_void, extent: *mut c_void);

    /// Returns the number of arenas.
    #[link_name = "_rjem_je_narenas_total_get"]
    pub(crate) fn arenas_total() -> c_uint;
    /// Creates the arena of this number, or returns the existing one. Returns null if there is no
    /// memory.
    #[link_name = "_rjem_je_arena_init"]
    pub(crate) fn arena_init(
        thread: *mut c_void,
        number: c_uint,
        config: *const c_void,
    ) -> *mut c_void;
    /// Returns unused ranges of the arena to the kernel: `all`, or those that have been unused for
    /// long enough.
    #[link_name = "_rjem_je_arena_decay"]
    pub(crate) fn arena_decay(
        thread: *mut c_void,
        arena: *mut c_void,
        is_background_thread: bool,
        all: bool,
    );
    /// Unmaps the retained ranges of an arena, given its `pac_t`. jemalloc calls this function for
    /// an arena that it destroys. For each range, it takes the lock of the retained ranges. It
    /// touches no other range.
    #[link_name = "_rjem_je_pac_destroy"]
    pub(crate) fn unmap_retained(thread: *mut c_void, ranges: *mut c_void);
    /// Adds an arena's numbers of threads and of pages to the given places. Takes no lock.
    #[link_name = "_rjem_je_arena_basic_stats_merge"]
    pub(crate) fn arena_basic_stats_merge(
        thread: *mut c_void,
        arena: *mut c_void,
        threads: *mut c_uint,
        kind: *mut *const c_char,
        dirty_decay_ms: *mut isize,
        muzzy_decay_ms: *mut isize,
        active: *mut usize,
        dirty: *mut usize,
        muzzy: *mut usize,
    );
    /// Empties the cache of a thread that has one.
    #[link_name = "_rjem_je_tcache_flush"]
    pub(crate) fn tcache_flush(thread: *mut c_void);
    /// Creates or removes the thread's cache.
    #[link_name = "_rjem_je_tcache_enabled_set"]
    pub(crate) fn tcache_enabled_set(thread: *mut c_void, is_enabled: bool);
    /// Makes a bin one of a class that is not cached.
    #[link_name = "_rjem_je_cache_bin_init_disabled"]
    pub(crate) fn cache_bin_init_disabled(bin: *mut c_void, most: u16);

    /// Empties a thread's cache at its end. The linker gives this name to the wrapped function.
    #[link_name = "__real__rjem_je_tcache_cleanup"]
    pub(crate) fn tcache_cleanup(thread: *mut c_void);
    /// Allocates an arena's first block. The linker gives this name to the wrapped function.
    #[link_name = "__real__rjem_je_base_new"]
    pub(crate) fn base_new(
        thread: *mut c_void,
        arena: c_uint,
        hooks: *const c_void,
        metadata_use_hooks: bool,
    ) -> *mut c_void;
}

/// Returns the difference between the class of a block of `size` bytes and the next smaller class.
///
/// jemalloc's classes (jemalloc(3), "Implementation notes") are multiples of 16 up to 128, and then
/// four per doubling. So the class below one in (2^k, 2^(k+1)] is 2^(k-2) smaller.
#[inline(always)]
pub(crate) fn spacing(size: usize) -> usize {
    (1usize << (usize::BITS - 1 - (size.wrapping_sub(1) | 64).leading_zeros())) >> 2
}

/// Returns the usable bytes of a small block that is requested by size alone.
#[inline(always)]
pub(crate) fn small_class_of(size: usize) -> usize {
    let size = size.max(SMALLEST);
    size.wrapping_add(spacing(size) - 1) & !(spacing(size) - 1)
}
