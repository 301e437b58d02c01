//! The fast path: blocks of up to [`layout::LARGEST_CACHED`] bytes, from a thread's cache and back
//! into it.
//!
//! Danger: another library's memory (`layout`), changed by machine code (`arch`) in every
//! allocation. The code does the work of jemalloc's own fast path (`imalloc_fastpath`,
//! `free_fastpath`), which covers fewer sizes for malloc, and only small classes for free. If the
//! cache does not suffice, nothing has been changed yet, and the slow path is called
//! (`slow_path`).
//!
//! The fast path is used only if all of these hold; otherwise every call goes to jemalloc:
//!
//! * the user has not disabled it (`HEAPPROF_FAST_PATH=0`);
//! * at boot, two blocks that jemalloc allocates and frees change the thread's words as described;
//! * no option requires more work (`junk`, `tcache`): such an option sets jemalloc's limits to 0;
//! * the thread has a cache: without one, the words of each bin are zero, so it is empty and full
//!   at once.
//!
//! The fast path omits counting. jemalloc counts the bytes that a thread allocates and frees, and
//! requests by class, which this library never reads. After some bytes it garbage collects the
//! cache. Here, the end of each of the sampler's strides and a full bin trigger the collection
//! (`cache_gc`).
//!
//! It is faster for these reasons. A size leads to its bin in one step, relative to the
//! thread-local word that is needed anyway. The checks of a size that hooks and jemalloc need are
//! made once. One count is kept instead of four. No jump to jemalloc is needed.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::bins::{bin, thread, word};
use crate::allocator::layout::{self, Bin, SMALLEST};
use crate::allocator::rtree;
use crate::arch::thread_block::thread_block;

pub(crate) const LOW_WATER: usize = std::mem::offset_of!(Bin, low_water);
pub(crate) const FULL: usize = std::mem::offset_of!(Bin, full);
pub(crate) const EMPTY: usize = std::mem::offset_of!(Bin, empty);
pub(crate) const MOST: usize = std::mem::offset_of!(Bin, most);
const _: () = assert!(size_of::<Bin>() == 24); // `put_into_bin` multiplies by 24
const _: () = assert!(layout::CLASS_AT == 48); // `put_into_bin` reads the last two bytes

/// The largest size in the table: the limit of a thread's cache. (jemalloc's own table ends at a
/// page, `SC_LOOKUP_MAXCLASS`.)
const LARGEST: usize = layout::LARGEST_CACHED;
/// Number of sizes that have a bin. Eight consecutive sizes share a place in the table, because
/// classes are multiples of eight.
const SIZES: usize = LARGEST - SMALLEST + 1;
const PLACES: usize = SIZES.div_ceil(8);
const _: () = assert!(SMALLEST % 8 == 1);

/// Verified facts about jemalloc, zero until they are verified. The fields are in the order in
/// which assembly reaches them with short instructions.
#[repr(C, align(64))]
pub(crate) struct Tables {
    /// Number of sizes that have a bin, from [`SMALLEST`] on; 0 disables the fast path for malloc.
    sizes: AtomicUsize,
    /// The root of the map of addresses; null disables the fast path for free.
    root: AtomicPtr<c_void>,
    /// Index in the root of the first block, and the leaf for that index. In most programs, most
    /// blocks are in this range of a gibibyte. Their class is then found without a load from the
    /// root. This matters because a later malloc depends on the bin that a free changes.
    home: AtomicUsize,
    home_leaf: AtomicPtr<c_void>,
    /// The distance of a size's bin from `heapprof_thread`, indexed by the size's distance from the
    /// smallest size, in units of eight. A library has one block of thread-local memory, so the
    /// distance is equal in all threads.
    places: [AtomicI32; PLACES],
}

pub(crate) static TABLES: Tables = Tables {
    sizes: AtomicUsize::new(0),
    root: AtomicPtr::new(std::ptr::null_mut()),
    home: AtomicUsize::new(usize::MAX), // no address
    home_leaf: AtomicPtr::new(std::ptr::null_mut()),
    places: [const { AtomicI32::new(0) }; PLACES],
};

pub(crate) const ROOT_AT: usize = std::mem::offset_of!(Tables, root);
pub(crate) const HOME_AT: usize = std::mem::offset_of!(Tables, home);
pub(crate) const HOME_LEAF_AT: usize = std::mem::offset_of!(Tables, home_leaf);
pub(crate) const PLACES_AT: usize = std::mem::offset_of!(Tables, places);

/// Defines malloc with the operands that a macro of `arch` needs.
macro_rules! define_malloc {
    ($define:ident: $(#[$attribute:meta])* fn $name:ident; $($question:tt)*) => {
        $crate::arch::jemalloc_fast_path::$define! {
            $(#[$attribute])* fn $name;
            $($question)*
            tables = sym $crate::allocator::fast_path::operands::TABLES,
            places = const $crate::allocator::fast_path::operands::PLACES_AT,
            low_water = const $crate::allocator::fast_path::operands::LOW_WATER,
            empty = const $crate::allocator::fast_path::operands::EMPTY,
            smallest = const $crate::allocator::fast_path::operands::SMALLEST,
            large = const $crate::allocator::fast_path::operands::LARGEST_CACHED,
            words = sym $crate::allocator::fast_path::operands::THREAD_WORDS,
            allocated = const $crate::allocator::fast_path::operands::ALLOCATED,
            allocated_limit = const $crate::allocator::fast_path::operands::ALLOCATED_LIMIT,
            freed = const $crate::allocator::fast_path::operands::FREED,
            threshold = const $crate::allocator::fast_path::operands::CACHE_THRESHOLD,
            give_cache = sym $crate::allocator::fast_path::operands::give_cache,
            slow_path = sym $crate::allocator::fast_path::operands::TARGETS,
            malloc = const $crate::allocator::fast_path::operands::MALLOC_AT,
            malloc_large = sym $crate::allocator::fast_path::operands::malloc_large,
        }
    };
}

/// Defines free with the operands that a macro of `arch` needs.
macro_rules! define_free {
    ($define:ident: $(#[$attribute:meta])* fn $name:ident; $($question:tt)*) => {
        $crate::arch::jemalloc_fast_path::$define! {
            $(#[$attribute])* fn $name;
            $($question)*
            tables = sym $crate::allocator::fast_path::operands::TABLES,
            root = const $crate::allocator::fast_path::operands::ROOT_AT,
            home = const $crate::allocator::fast_path::operands::HOME_AT,
            home_leaf = const $crate::allocator::fast_path::operands::HOME_LEAF_AT,
            full = const $crate::allocator::fast_path::operands::FULL,
            most = const $crate::allocator::fast_path::operands::MOST,
            words = sym $crate::allocator::fast_path::operands::THREAD_WORDS,
            page_bits = const $crate::allocator::fast_path::operands::PAGE_BITS,
            leaf_bits = const $crate::allocator::fast_path::operands::LEAF_BITS,
            is_small = const $crate::allocator::fast_path::operands::IS_SMALL,
            class_at = const $crate::allocator::fast_path::operands::CLASS_AT,
            class_bytes = sym $crate::allocator::fast_path::operands::CLASS_BYTES,
            bins = const $crate::allocator::fast_path::operands::BINS,
            small_classes = const $crate::allocator::fast_path::operands::SMALL_CLASSES,
            allocated = const $crate::allocator::fast_path::operands::ALLOCATED,
            allocated_limit = const $crate::allocator::fast_path::operands::ALLOCATED_LIMIT,
            freed = const $crate::allocator::fast_path::operands::FREED,
            freed_limit = const $crate::allocator::fast_path::operands::FREED_LIMIT,
            threshold = const $crate::allocator::fast_path::operands::CACHE_THRESHOLD,
            give_cache = sym $crate::allocator::fast_path::operands::give_cache,
            slow_path = sym $crate::allocator::fast_path::operands::TARGETS,
            free = const $crate::allocator::fast_path::operands::FREE_AT,
            first_large = sym $crate::allocator::fast_path::operands::FIRST_CLASS,
            free_large = sym $crate::allocator::fast_path::operands::free_large,
        }
    };
}
pub(crate) use {define_free, define_malloc};

/// The functions, symbols and offsets that the macros above name.
pub(crate) mod operands {
    pub(crate) use crate::allocator::large::{
        FIRST_CLASS, free as free_large, malloc as malloc_large,
    };
    pub(crate) use crate::allocator::layout::{
        ALLOCATED, ALLOCATED_LIMIT, BINS, CLASS_AT, CLASS_BYTES, FREED, FREED_LIMIT, IS_SMALL,
        LARGEST_CACHED, LEAF_BITS, PAGE_BITS, SMALL_CLASSES, SMALLEST, THREAD_WORDS,
    };
    pub(crate) use crate::allocator::slow_path::{FREE_AT, MALLOC_AT, TARGETS};
    pub(crate) use crate::allocator::tcache_policy::{CACHE_THRESHOLD, give_cache};

    pub(crate) use super::{
        EMPTY, FULL, HOME_AT, HOME_LEAF_AT, LOW_WATER, MOST, PLACES_AT, ROOT_AT, TABLES,
    };
}

define_malloc! { cached_malloc:
    /// Returns a block of `size` bytes, at least [`SMALLEST`], or null with ENOMEM.
    ///
    /// # Safety
    /// The contract of malloc(3).
    fn malloc;
}

define_free! { cached_free:
    /// Frees a block. Null is ignored. errno is unchanged.
    ///
    /// # Safety
    /// The contract of free(3).
    fn free;
}

/// At boot, after [`rtree::learn`]: verifies jemalloc's layout, and enables the fast path if it
/// matches.
pub(crate) fn learn(is_wanted: bool) {
    let Some(root) = rtree::root().filter(|_| is_wanted) else {
        return;
    };
    let thread = thread();
    if ![32, 64].into_iter().all(|size| agrees(thread, size)) {
        return;
    }
    let mut class = 0;
    for (eights, place) in TABLES.places.iter().enumerate() {
        while rtree::size_of_class(class) < SMALLEST + 7 + eights * 8 {
            class += 1;
        }
        let distance = bin(thread, class)
            .addr()
            .wrapping_sub(thread_block().addr()) as isize;
        place.store(distance as i32, Ordering::Relaxed);
    }
    TABLES.root.store(root, Ordering::Relaxed);
    // SAFETY: a new block, which may be null, is queried and freed once.
    let home = unsafe {
        let block = sys::malloc(64);
        let home = rtree::leaf_of(block);
        sys::free(block);
        home
    };
    if let Some((home, leaf)) = home {
        // The leaf is stored first, and assembly reads it last. Another library may have started
        // threads, and a thread that sees the index must see its leaf.
        TABLES.home_leaf.store(leaf, Ordering::Relaxed);
        TABLES.home.store(home, Ordering::Release);
    }
    TABLES.sizes.store(SIZES, Ordering::Release);
}

/// Returns true if jemalloc has the layout described here.
pub(crate) fn is_known() -> bool {
    TABLES.sizes.load(Ordering::Acquire) != 0
}

/// Returns true if jemalloc takes and returns a block of `size` bytes, which is a class, as
/// described here. It uses a block of the program's arena, of a class that every program uses, so
/// no other block changes its address.
fn agrees(thread: *mut u8, size: usize) -> bool {
    // SAFETY: a new block, which may be null, is freed.
    unsafe { sys::free(sys::malloc(size)) };
    let before = CacheState::read(thread, size);
    // SAFETY: any size is allowed.
    let ptr = unsafe { sys::malloc(size) };
    let taken = CacheState::read(thread, size);
    // SAFETY: just allocated, or null.
    unsafe { sys::free(ptr) };
    let after = CacheState::read(thread, size);
    let next = |state: &CacheState| state.bin.head.wrapping_add(1);
    let bytes = |state: &CacheState| state.bin.empty.wrapping_sub(state.bin.head.addr() as u16);
    let low = before.bin.empty.wrapping_sub(before.bin.low_water);
    let room = before.bin.empty.wrapping_sub(before.bin.full);
    !ptr.is_null()
        && taken.bin.head == next(&before)
        && after.bin.head == before.bin.head
        // SAFETY: the head of a stack that has just moved as one; the word at the head is a block.
        && unsafe { *after.bin.head } == ptr
        && taken.bin.requests == before.bin.requests.wrapping_add(1)
        && taken.allocated == before.allocated.wrapping_add(size as u64)
        && after.freed == taken.freed.wrapping_add(size as u64)
        && low <= bytes(&before)
        && bytes(&before) <= room
        && usize::from(room) == usize::from(before.bin.most) * size_of::<usize>()
        && after.allocated < after.allocated_limit
        && after.freed < after.freed_limit
}

/// The words of a thread's cache at one time.
struct CacheState {
    bin: Bin,
    allocated: u64,
    allocated_limit: u64,
    freed: u64,
    freed_limit: u64,
}

impl CacheState {
    /// Reads the words of the bin for blocks of `size` bytes.
    fn read(thread: *mut u8, size: usize) -> CacheState {
        let class = (0..).find(|&class| rtree::size_of_class(class) >= size);
        let bin = bin(thread, class.unwrap_or(0));
        // SAFETY: words of this thread, within its `tsd_t`, to which no reference exists; every bit
        // pattern is a valid number.
        unsafe {
            CacheState {
                bin: bin.read(),
                allocated: word(thread, layout::ALLOCATED),
                allocated_limit: word(thread, layout::ALLOCATED_LIMIT),
                freed: word(thread, layout::FREED),
                freed_limit: word(thread, layout::FREED_LIMIT),
            }
        }
    }
}
