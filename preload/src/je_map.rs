//! jemalloc's map of addresses: what a block's class is, in eighteen instructions.
//!
//! Danger: memory laid out by another library, which does not promise how. jemalloc's own question, `malloc_usable_size`,
//! is a function of forty instructions with room for 384 bytes on the stack, which is more than all the rest of a realloc that
//! stays where it is. So we read what it reads, a tree of two levels over the 48 bits of an address (jemalloc 5.3,
//! `internal/rtree.h`; what is above is that of the exact version in Cargo.lock). At boot blocks of several classes are asked
//! for both ways, and where the answers differ the map is not read.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::je;

unsafe extern "C" {
    /// `emap_t arena_emap_global`: an `rtree_t`, which ends in its root.
    static _rjem_je_arena_emap_global: u8;
    /// `size_t sz_index2size_tab[]`: bytes of each class; its first place.
    static _rjem_je_sz_index2size_tab: usize;
}

/// Where the root is in the map, behind the pointer to what it is allocated from and a mutex.
const ROOT_AT: usize = 0x78;
/// Bits of an address below the page number; of the page number in a leaf, and in the root.
const PAGE_BITS: u32 = 12;
const LEAF_BITS: u32 = 18;
const ROOT_BITS: u32 = 18;
/// Where a page's entry has the class of what is in it.
const CLASS_AT: u32 = 48;
/// In a page's entry: that it is a part of several small blocks.
const IS_SMALL: usize = 1;

/// The root, once it is known that it is one.
static ROOT: AtomicPtr<AtomicPtr<AtomicUsize>> = AtomicPtr::new(std::ptr::null_mut());

/// Usable bytes of a small block; 0: it may be large, or null, or nothing is known.
///
/// # Safety
/// `ptr` is null or a live block of jemalloc's.
#[inline(always)]
pub(crate) unsafe fn small(ptr: *mut c_void) -> usize {
    let root = ROOT.load(Ordering::Relaxed);
    if root.is_null() {
        return 0;
    }
    // SAFETY: the root, as `learn` has seen.
    unsafe { look_up(root, ptr) }
}

/// # Safety
/// As [`small`]; `root` is the root of a map as described above.
#[inline(always)]
unsafe fn look_up(root: *const AtomicPtr<AtomicUsize>, ptr: *mut c_void) -> usize {
    let page = ptr.addr() >> PAGE_BITS;
    let in_root = page >> LEAF_BITS & ((1 << ROOT_BITS) - 1);
    let in_leaf = page & ((1 << LEAF_BITS) - 1);
    // SAFETY: the index is below the root's length. A leaf is never taken away, and the entry of a page with a live block in it is written
    // before the block is handed out, and not again: whoever has the block has seen it, and so may read it relaxed.
    let leaf = unsafe { (*root.add(in_root)).load(Ordering::Relaxed) };
    if leaf.is_null() {
        return 0;
    }
    // SAFETY: as above.
    let entry = unsafe { (*leaf.add(in_leaf)).load(Ordering::Relaxed) };
    if entry & IS_SMALL == 0 {
        return 0;
    }
    let sizes = &raw const _rjem_je_sz_index2size_tab;
    // SAFETY: jemalloc's table has a place for each class that an entry names, and is constant once there are any.
    unsafe { *sizes.add(entry >> CLASS_AT) }
}

/// At boot: whether the map is what we take it for.
pub(crate) fn learn() {
    let map = &raw const _rjem_je_arena_emap_global;
    let root: *const AtomicPtr<AtomicUsize> = map.wrapping_add(ROOT_AT).cast();
    // The smallest class, one of a few pages, the last with several blocks in a page, and the first without.
    if [1, 1700, 14336, 14337]
        .into_iter()
        .all(|size| agrees(root, size))
    {
        ROOT.store(root.cast_mut(), Ordering::Relaxed);
    }
}

/// Whether both ways give the same answer about a block of `size` bytes.
fn agrees(root: *const AtomicPtr<AtomicUsize>, size: usize) -> bool {
    // SAFETY: any size is allowed; a live block or null may be asked about, and freed once.
    unsafe {
        let block = sys::malloc(size);
        let usable = sys::malloc_usable_size(block);
        let is_small = usable <= je::LARGEST_SMALL;
        let seen = look_up(root, block);
        sys::free(block);
        !block.is_null() && seen == if is_small { usable } else { 0 }
    }
}
