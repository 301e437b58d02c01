//! Slabs: how many blocks are free in the slab of a block.
//!
//! Danger: private memory of another library, read while other threads change it. jemalloc's own
//! query (`experimental.utilization.batch_query`) loads the description of a slab twice. A slab
//! that is given back between the two leads it beyond the end of a table. So this file loads the
//! word with all numbers once, and uses a class only if it exists. jemalloc's query serves to
//! verify the layout, on blocks of this library, which are not given back meanwhile.
//!
//! No lock is taken, and no block is read.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::allocator::layout::{
    self, BinInfo, FREE_BLOCKS_AT, FREE_BLOCKS_BITS, IS_SLAB_AT, IS_SMALL, LARGEST_SMALL,
    SLAB_CLASS_AT, SLAB_CLASS_BITS, SMALL_CLASSES, SMALLEST,
};
use crate::allocator::{mallctl, next, own_arena, rtree};

/// Result of the verification.
static LAYOUT: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const VERIFIED: u8 = 1;
const OTHER: u8 = 2;

/// Tries to verify a size: the numbers of a slab change as other threads use it.
const TRIES: u32 = 100;

/// Returns true if slabs are known. The first call verifies the layout, and takes some memory of
/// our arena.
pub(crate) fn are_known() -> bool {
    if next::is_chosen() {
        return false; // jemalloc has no block of the program
    }
    if LAYOUT.load(Ordering::Relaxed) == UNKNOWN {
        // The smallest class, one with a slab of several pages, and the largest.
        let agree = [SMALLEST, 1700, LARGEST_SMALL].into_iter().all(agrees);
        let layout = if agree { VERIFIED } else { OTHER };
        LAYOUT.store(layout, Ordering::Relaxed);
    }
    LAYOUT.load(Ordering::Relaxed) == VERIFIED
}

/// Returns the numbers of free and of live blocks in the slab of a block of that address. A free
/// block in a thread's cache is live. `None`: the block is in no slab, or is gone.
pub(crate) fn of_block(address: u64) -> Option<(u32, u32)> {
    if LAYOUT.load(Ordering::Relaxed) != VERIFIED {
        return None;
    }
    look_up(address)
}

fn look_up(address: u64) -> Option<(u32, u32)> {
    let block = std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
    // SAFETY: the address was that of a block in use, or of another allocator's block, so it is
    // within the 48 bits of the map. Leaves are never freed, and an entry is one word.
    let entry = unsafe { rtree::entry(block) }.filter(|entry| entry & IS_SMALL != 0)?;
    let extent = rtree::extent(entry).cast::<AtomicU64>();
    if extent.is_null() {
        return None;
    }
    // SAFETY: jemalloc never unmaps the description of an extent, and reuses it for extents alone.
    // Its first member is a word (`e_bits`).
    let word = unsafe { &*extent }.load(Ordering::Relaxed);
    let field = |at: u32, bits: u32| (word >> at) & ((1 << bits) - 1);
    let class = field(SLAB_CLASS_AT, SLAB_CLASS_BITS) as usize;
    if field(IS_SLAB_AT, 1) == 0 || class >= SMALL_CLASSES {
        return None;
    }
    // SAFETY: an array with an element for each small class, constant once blocks exist.
    let BinInfo { blocks, .. } = unsafe { (&raw const layout::BIN_INFOS).add(class).read() };
    let free = field(FREE_BLOCKS_AT, FREE_BLOCKS_BITS) as u32;
    let live = blocks.checked_sub(free).filter(|&live| live > 0)?;
    Some((free, live))
}

/// Returns true if both ways give the same answer for a block of `size` bytes, of our own arena.
fn agrees(size: usize) -> bool {
    let block = own_arena::allocate(size, 1, false);
    if block.is_null() {
        return false;
    }
    let is_same = |_| {
        let found = look_up(block as u64);
        found.is_some() && found == mallctl::slab_of(block)
    };
    let agree = (0..TRIES).any(is_same);
    // SAFETY: allocated above, and freed once.
    unsafe { own_arena::free(block) };
    agree
}
