//! Census: jemalloc's counts of blocks and pages, read without waiting for a lock.
//!
//! Danger: private memory of another library, read while other threads change it. jemalloc's own
//! statistics (`mallctl`, "epoch") wait for every lock of every arena. A thread of the program may
//! be stopped while it holds one (a garbage collector stops threads by signals), and our thread
//! must not wait for it. So each count is loaded as the word that it is. Counts of one census may
//! be some allocations apart.
//!
//! Thread caches are a list that changes as threads end. Its lock is tried once per arena, and the
//! bytes in caches are unknown if another thread has it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicUsize, Ordering};

use crate::allocator::counts::Census;
use crate::allocator::layout::{self, Bin, BinInfo, PAGE};
use crate::allocator::{next, own_arena};

/// Most caches of an arena that are read. The lock of their list is held meanwhile.
const MOST_CACHES: usize = 4096;

/// Takes a census. If the next allocator serves the program, all arenas are this library's.
pub(crate) fn take() -> Census {
    let mut census = Census {
        cached: Some(0),
        ..Census::default()
    };
    let ours = own_arena::number().and_then(|number| usize::try_from(number).ok());
    for (number, arena) in arenas().enumerate() {
        let Some(arena) = arena else {
            continue;
        };
        let (active, dirty, muzzy) = pages_of(arena);
        let metadata = metadata_of(arena);
        if next::chosen().is_some() || ours == Some(number) {
            census.own += active + dirty + muzzy + metadata;
            continue;
        }
        let (large, padding) = large_of(arena);
        // Blocks of jemalloc's own, as a thread's cache, are large ones.
        let internal = arena.word(layout::ARENA_INTERNAL_AT).min(large);
        census.active += active - internal.min(active);
        census.dirty += dirty;
        census.muzzy += muzzy;
        census.metadata += metadata + internal;
        census.retained += retained_of(arena);
        census.small += small_of(arena);
        census.large += large - internal;
        census.padding += padding;
        census.cached = census.cached.zip(cached_of(arena)).map(|(a, b)| a + b);
    }
    census
}

/// An arena. It lives as long as the process.
#[derive(Clone, Copy)]
struct Arena(*const u8);

fn arenas() -> impl Iterator<Item = Option<Arena>> {
    // SAFETY: there is a word for each number that jemalloc has given. jemalloc sets each word
    // once, when the arena is ready.
    let arenas = unsafe {
        std::slice::from_raw_parts(&raw const layout::ARENAS, layout::arenas_total() as usize)
    };
    arenas.iter().map(|arena| {
        let arena = arena.load(Ordering::Acquire);
        (!arena.is_null()).then_some(Arena(arena.cast()))
    })
}

impl Arena {
    /// Returns the word at that offset of the arena, a value of `layout`.
    fn word(self, at: usize) -> u64 {
        word(self.0.wrapping_add(at))
    }
}

/// Returns a word of jemalloc's. All words that this file reads are aligned, in memory that
/// jemalloc never unmaps: arenas, their bins and their bases.
fn word(at: *const u8) -> u64 {
    // SAFETY: the text above. jemalloc changes these words by plain or atomic stores of whole
    // words.
    unsafe { &*at.cast::<AtomicUsize>() }.load(Ordering::Relaxed) as u64
}

/// Returns the bytes of pages in use, and of free pages by their state: dirty and muzzy.
fn pages_of(arena: Arena) -> (u64, u64, u64) {
    let (mut threads, mut kind) = (0, std::ptr::null());
    let (mut dirty_decay, mut muzzy_decay) = (0, 0);
    let (mut active, mut dirty, mut muzzy) = (0, 0, 0);
    // SAFETY: adds atomic counts of the arena to these places, and takes no lock. The function does
    // not use the thread, which may be null.
    unsafe {
        layout::arena_basic_stats_merge(
            std::ptr::null_mut(),
            arena.0.cast_mut().cast(),
            &raw mut threads,
            &raw mut kind,
            &raw mut dirty_decay,
            &raw mut muzzy_decay,
            &raw mut active,
            &raw mut dirty,
            &raw mut muzzy,
        );
    }
    let bytes = |pages: usize| pages as u64 * PAGE as u64;
    (bytes(active), bytes(dirty), bytes(muzzy))
}

/// Returns the resident bytes of the arena's base, which has jemalloc's own data.
fn metadata_of(arena: Arena) -> u64 {
    let base = arena.word(layout::ARENA_BASE_AT) as *const u8;
    match base.is_null() {
        true => 0,
        false => word(base.wrapping_add(layout::BASE_RESIDENT_AT)),
    }
}

fn retained_of(arena: Arena) -> u64 {
    let pages = layout::ARENA_RETAINED_AT.map(|at| arena.word(at));
    pages.iter().sum::<u64>() * PAGE as u64
}

/// Returns the usable bytes of small blocks.
fn small_of(arena: Arena) -> u64 {
    let of_class = |class: usize| {
        // SAFETY: arrays with an element for each small class, which jemalloc fills before it makes
        // the first arena.
        let (info, first) = unsafe {
            (
                (&raw const layout::BIN_INFOS).add(class).read(),
                (&raw const layout::ARENA_BIN_OFFSETS).add(class).read(),
            )
        };
        let blocks = |shard: usize| {
            let bin = arena
                .0
                .wrapping_add(first as usize + shard * layout::BIN_BYTES);
            word(bin.wrapping_add(layout::BIN_BLOCKS_AT))
        };
        let BinInfo { block, shards, .. } = info;
        (0..shards as usize).map(blocks).sum::<u64>() * block as u64
    };
    (0..layout::SMALL_CLASSES).map(of_class).sum()
}

/// Returns the usable bytes of large blocks, and those of the pages that jemalloc adds to them, one
/// each (`sz_large_pad`).
fn large_of(arena: Arena) -> (u64, u64) {
    let of_class = |class: usize| {
        let class = layout::ARENA_LARGE_AT + class * layout::LARGE_BYTES;
        let frees = arena.word(class + layout::LARGE_FREES_AT);
        let blocks = (arena.word(class + layout::LARGE_ALLOCATIONS_AT)).saturating_sub(frees);
        (
            arena.word(class + layout::LARGE_ACTIVE_AT),
            blocks * PAGE as u64,
        )
    };
    let classes = (0..layout::LARGE_CLASSES).map(of_class);
    classes.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

/// Returns the usable bytes in the caches of the arena's threads. `None`: another thread has the
/// lock.
fn cached_of(arena: Arena) -> Option<u64> {
    let lock = arena
        .0
        .wrapping_add(layout::ARENA_CACHES_LOCK_AT)
        .cast_mut();
    let lock = lock.cast::<libc::pthread_mutex_t>();
    // SAFETY: the mutex of the arena's list of caches, as jemalloc has initialized it. Both calls
    // lead to libc's own functions.
    if unsafe { libc::pthread_mutex_trylock(lock) } != 0 {
        return None;
    }
    let bytes = cached_under_lock(arena);
    // SAFETY: locked above. jemalloc's hint beside the mutex, that it is held, stays false.
    unsafe { libc::pthread_mutex_unlock(lock) };
    Some(bytes)
}

/// The caller has the lock of the list: no cache of the list ends meanwhile.
fn cached_under_lock(arena: Arena) -> u64 {
    let first = arena.word(layout::ARENA_CACHES_AT) as *const u8;
    let mut bytes = 0;
    let mut at = first;
    for _ in 0..MOST_CACHES {
        if at.is_null() {
            break;
        }
        let bins = word(at.wrapping_add(layout::CACHE_BINS_AT)) as *const Bin;
        bytes += (0..layout::CACHED_CLASSES)
            .map(|class| cached_in(bins.wrapping_add(class)) * class_bytes(class))
            .sum::<u64>();
        at = word(at) as *const u8; // the next one in a ring
        if at == first {
            break;
        }
    }
    bytes
}

/// Returns the number of blocks in a bin, which its thread changes meanwhile.
fn cached_in(bin: *const Bin) -> u64 {
    // SAFETY: a bin of a cache that does not end, in aligned memory. Its thread writes the head by
    // single stores, and the end once.
    let (head, empty) = unsafe {
        let head = &*(&raw const (*bin).head).cast::<AtomicPtr<c_void>>();
        let empty = &*(&raw const (*bin).empty).cast::<AtomicU16>();
        (head.load(Ordering::Relaxed), empty.load(Ordering::Relaxed))
    };
    u64::from(empty.wrapping_sub(head.addr() as u16)) / size_of::<*const c_void>() as u64
}

fn class_bytes(class: usize) -> u64 {
    // SAFETY: an element for each class, which jemalloc fills before it makes the first cache.
    unsafe { (&raw const layout::CLASS_BYTES).add(class).read() as u64 }
}
