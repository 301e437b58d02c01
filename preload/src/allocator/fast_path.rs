//! The fast path: blocks of up to [`layout::LARGEST_CACHED`] bytes out of a thread's cache and back into it.
//!
//! Danger: memory laid out by another library (`layout`), changed by machine code on the way of every
//! allocation (`arch`). What is done is what jemalloc calls its own fast path (`imalloc_fastpath`,
//! `free_fastpath`); but jemalloc's ends at 4 KiB for malloc, and with small classes for free. Where the
//! cache does not suffice, nothing has been changed yet, and jemalloc's own function is called.
//!
//! It serves only where all of this holds; elsewhere every call is jemalloc's:
//!
//! * the user has not switched it off (`HEAPPROF_FAST_PATH=0`);
//! * at boot two blocks, allocated and freed by jemalloc, change a thread's words as described;
//! * no option wants more done (`junk`, `tcache`): then jemalloc's limits are 0;
//! * the thread has a cache: without one its bins are zero, empty and full at once.
//!
//! What is left out is counting. jemalloc adds up the bytes that a thread allocates and frees, and requests
//! by class, which nobody here asks for, and looks through the cache every 64 KiB of them. That is done
//! at the end of each of the sampler's strides (`cache_gc`), and where a bin is full.
//!
//! Why it is faster: a size leads to its bin in one step, from the thread-local word that is needed anyway;
//! what both hooks and jemalloc ask of a size is asked once; one count is kept, and not four; there is no
//! jump to jemalloc.

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
const _: () = assert!(size_of::<Bin>() == 24); // `put_into_bin` multiplies by that
const _: () = assert!(layout::CLASS_AT == 48); // and reads the class as a word's last two bytes

/// The largest request that has a place in the table: what a thread's cache has. (jemalloc's own ends at a page, `SC_LOOKUP_MAXCLASS`.)
const LARGEST: usize = layout::LARGEST_CACHED;
/// So many sizes are served, and eight that follow each other have a place in common: classes are multiples of eight.
const SIZES: usize = LARGEST - SMALLEST + 1;
const PLACES: usize = SIZES.div_ceil(8);
const _: () = assert!(SMALLEST % 8 == 1);

/// What is known of jemalloc; all zero until it is. In the order in which assembly reaches it with short instructions.
#[repr(C, align(64))]
pub(crate) struct Known {
    /// How many sizes are served, from [`SMALLEST`] on.
    sizes: AtomicUsize,
    /// The root of the map of addresses; null: no block is taken back.
    root: AtomicPtr<c_void>,
    /// Where the first block is, as the root counts addresses, and the leaf of the map for that. Most blocks of most programs are there, in a gibibyte, and their class is
    /// found without waiting for the root: until a free knows its bin, no later malloc can be sure of its own.
    home: AtomicUsize,
    home_leaf: AtomicPtr<c_void>,
    /// By what a size is above the smallest, in eights: where the bin is, from `heapprof_thread` on (`state/thread.rs`). In the one block of thread-local
    /// memory that a library has, the same in all threads.
    places: [AtomicI32; PLACES],
}

pub(crate) static KNOWN: Known = Known {
    sizes: AtomicUsize::new(0),
    root: AtomicPtr::new(std::ptr::null_mut()),
    home: AtomicUsize::new(usize::MAX), // no address
    home_leaf: AtomicPtr::new(std::ptr::null_mut()),
    places: [const { AtomicI32::new(0) }; PLACES],
};

pub(crate) const ROOT_AT: usize = std::mem::offset_of!(Known, root);
pub(crate) const HOME_AT: usize = std::mem::offset_of!(Known, home);
pub(crate) const HOME_LEAF_AT: usize = std::mem::offset_of!(Known, home_leaf);
pub(crate) const PLACES_AT: usize = std::mem::offset_of!(Known, places);

/// Defines malloc with these operands: all that a macro of `arch` is told.
macro_rules! define_malloc {
    ($define:ident: $(#[$attribute:meta])* fn $name:ident; $($question:tt)*) => {
        $crate::arch::jemalloc_fast_path::$define! {
            $(#[$attribute])* fn $name;
            $($question)*
            known = sym $crate::allocator::fast_path::operands::KNOWN,
            places = const $crate::allocator::fast_path::operands::PLACES_AT,
            low_water = const $crate::allocator::fast_path::operands::LOW_WATER,
            empty = const $crate::allocator::fast_path::operands::EMPTY,
            smallest = const $crate::allocator::fast_path::operands::SMALLEST,
            large = const $crate::allocator::fast_path::operands::LARGEST_CACHED,
            words = sym $crate::allocator::fast_path::operands::THREAD_WORDS,
            allocated = const $crate::allocator::fast_path::operands::ALLOCATED,
            allocated_limit = const $crate::allocator::fast_path::operands::ALLOCATED_LIMIT,
            freed = const $crate::allocator::fast_path::operands::FREED,
            enough = const $crate::allocator::fast_path::operands::ENOUGH,
            give_cache = sym $crate::allocator::fast_path::operands::give_cache,
            malloc = sym $crate::allocator::fast_path::operands::malloc,
            malloc_large = sym $crate::allocator::fast_path::operands::malloc_large,
        }
    };
}

/// Defines free, as [`define_malloc`].
macro_rules! define_free {
    ($define:ident: $(#[$attribute:meta])* fn $name:ident; $($question:tt)*) => {
        $crate::arch::jemalloc_fast_path::$define! {
            $(#[$attribute])* fn $name;
            $($question)*
            known = sym $crate::allocator::fast_path::operands::KNOWN,
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
            enough = const $crate::allocator::fast_path::operands::ENOUGH,
            give_cache = sym $crate::allocator::fast_path::operands::give_cache,
            free = sym $crate::allocator::fast_path::operands::free,
            first_large = sym $crate::allocator::fast_path::operands::FIRST_CLASS,
            free_large = sym $crate::allocator::fast_path::operands::free_large,
        }
    };
}
pub(crate) use {define_free, define_malloc};

/// What the macros above name: functions, symbols, offsets.
pub(crate) mod operands {
    pub(crate) use crate::allocator::large::{
        FIRST_CLASS, free as free_large, malloc as malloc_large,
    };
    pub(crate) use crate::allocator::layout::{
        ALLOCATED, ALLOCATED_LIMIT, BINS, CLASS_AT, CLASS_BYTES, FREED, FREED_LIMIT, IS_SMALL,
        LARGEST_CACHED, LEAF_BITS, PAGE_BITS, SMALL_CLASSES, SMALLEST, THREAD_WORDS,
    };
    pub(crate) use crate::allocator::tcache_policy::{ENOUGH, give_cache};
    pub(crate) use tikv_jemalloc_sys::{free, malloc};

    pub(crate) use super::{
        EMPTY, FULL, HOME_AT, HOME_LEAF_AT, KNOWN, LOW_WATER, MOST, PLACES_AT, ROOT_AT,
    };
}

define_malloc! { cached_malloc:
    /// A block of `size` bytes, which are [`SMALLEST`] at least; null with ENOMEM.
    ///
    /// # Safety
    /// As malloc(3).
    fn malloc;
}

define_free! { cached_free:
    /// Frees a block; null is nothing. errno is left alone.
    ///
    /// # Safety
    /// As free(3).
    fn free;
}

/// At boot, after [`rtree::learn`]: whether jemalloc is as described here.
pub(crate) fn learn(is_wanted: bool) {
    let Some(root) = rtree::root().filter(|_| is_wanted) else {
        return;
    };
    let thread = thread();
    if ![32, 64].into_iter().all(|size| agrees(thread, size)) {
        return;
    }
    let mut class = 0;
    for (eights, place) in KNOWN.places.iter().enumerate() {
        while rtree::size_of_class(class) < SMALLEST + 7 + eights * 8 {
            class += 1;
        }
        let distance = bin(thread, class)
            .addr()
            .wrapping_sub(thread_block().addr()) as isize;
        place.store(distance as i32, Ordering::Relaxed);
    }
    KNOWN.root.store(root, Ordering::Relaxed);
    // SAFETY: a new block, which may be null, asked about and freed once.
    let home = unsafe {
        let block = sys::malloc(64);
        let home = rtree::leaf_of(block);
        sys::free(block);
        home
    };
    if let Some((home, leaf)) = home {
        // The leaf first, and `put_asm` reads it last: another library may have threads by now, and who sees the address sees its leaf.
        KNOWN.home_leaf.store(leaf, Ordering::Relaxed);
        KNOWN.home.store(home, Ordering::Release);
    }
    KNOWN.sizes.store(SIZES, Ordering::Release);
}

/// Returns true if jemalloc is as described here.
pub(crate) fn is_known() -> bool {
    KNOWN.sizes.load(Ordering::Acquire) != 0
}

/// Whether a block of `size` bytes, a class, is taken and put back as described here. The program's own, of a class that every program
/// uses: nothing else of its heap's lies elsewhere for it.
fn agrees(thread: *mut u8, size: usize) -> bool {
    // SAFETY: a new block, which may be null, and is freed.
    unsafe { sys::free(sys::malloc(size)) };
    let before = Look::at(thread, size);
    // SAFETY: any size is allowed.
    let ptr = unsafe { sys::malloc(size) };
    let taken = Look::at(thread, size);
    // SAFETY: just allocated, or null.
    unsafe { sys::free(ptr) };
    let after = Look::at(thread, size);
    let behind = |look: &Look| look.bin.head.wrapping_add(1);
    let bytes = |look: &Look| look.bin.empty.wrapping_sub(look.bin.head.addr() as u16);
    let low = before.bin.empty.wrapping_sub(before.bin.low_water);
    let room = before.bin.empty.wrapping_sub(before.bin.full);
    !ptr.is_null()
        && taken.bin.head == behind(&before)
        && after.bin.head == before.bin.head
        // SAFETY: a stack's head, since it moved as one: the word below it is another block.
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

/// What was looked at.
struct Look {
    bin: Bin,
    allocated: u64,
    allocated_limit: u64,
    freed: u64,
    freed_limit: u64,
}

impl Look {
    /// At the bin of blocks of `size` bytes.
    fn at(thread: *mut u8, size: usize) -> Look {
        let class = (0..).find(|&class| rtree::size_of_class(class) >= size);
        let bin = bin(thread, class.unwrap_or(0));
        // SAFETY: words of this thread's, more than 1,000 bytes of them, to which nobody holds a reference; as numbers they have no invalid values.
        unsafe {
            Look {
                bin: bin.read(),
                allocated: word(thread, layout::ALLOCATED),
                allocated_limit: word(thread, layout::ALLOCATED_LIMIT),
                freed: word(thread, layout::FREED),
                freed_limit: word(thread, layout::FREED_LIMIT),
            }
        }
    }
}
