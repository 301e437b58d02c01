//! jemalloc's map of addresses: of which class a block is, in eighteen instructions.
//!
//! Danger: memory laid out by another library, which does not promise how. jemalloc's own question, `malloc_usable_size`,
//! is a function of forty instructions with room for 384 bytes on the stack, which is more than all the rest of a realloc that
//! stays where it is. So we read what it reads, a tree of two levels over the 48 bits of an address (jemalloc 5.3,
//! `internal/rtree.h`; what is above is that of the exact version in Cargo.lock). At boot blocks of several classes are asked
//! for both ways, and where the answers differ the map is not read.
//!
//! A class is what the map has for a small block, and for a large one of up to eight pages. Larger ones have as many pages as
//! they take, of which the map says nothing (`disable_large_size_classes`, jemalloc's default).

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::{
    self, CLASS_AT, CLASSES, EXTENT_ALIGNMENT, IS_SMALL, LARGEST_SMALL, LARGEST_TOLD_BY_CLASS,
    LEAF_BITS, PAGE_BITS, ROOT_AT, SMALLEST,
};
use crate::allocator::own_arena;

/// So many there are at least, up to that one and beyond.
const CLASSES_AT_LEAST: usize = 64;

/// By class; all zero until the map is known.
static SIZES: [AtomicClass; CLASSES] = [const { AtomicClass::new() }; CLASSES];

/// A [`Class`] that is set once.
struct AtomicClass {
    least: AtomicUsize,
    span: AtomicUsize,
}

impl AtomicClass {
    const fn new() -> AtomicClass {
        AtomicClass {
            least: AtomicUsize::new(0),
            span: AtomicUsize::new(0),
        }
    }
}

/// What sizes a block is for. Kept so that one comparison tells whether a size is among them.
#[derive(Clone, Copy)]
pub(crate) struct Class {
    /// The smallest, in bytes: one more than the next smaller class has.
    least: usize,
    /// How many there are. 0: nothing is known, and nothing fits.
    span: usize,
}

impl Class {
    const UNKNOWN: Class = Class { least: 0, span: 0 };

    /// The class of `bytes` bytes that is above one of `below`.
    #[inline(always)]
    pub(crate) fn new(below: usize, bytes: usize) -> Class {
        Class {
            least: below.wrapping_add(1),
            span: bytes.wrapping_sub(below),
        }
    }

    /// Usable bytes, which are its largest size. 0: nothing is known.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        match self.span {
            0 => 0,
            span => self.least.wrapping_add(span - 1),
        }
    }

    /// Whether a request of `size` bytes, which are not 0, belongs into it: then a block of this class is resized to it by leaving it as it is. Were
    /// the class wrong, a block would be larger than need be, or moved without need, never too small.
    #[inline(always)]
    pub(crate) fn fits(self, size: usize) -> bool {
        size.wrapping_sub(self.least) < self.span
    }
}

/// The root, once it is known that it is one.
static ROOT: AtomicPtr<AtomicPtr<AtomicUsize>> = AtomicPtr::new(std::ptr::null_mut());

/// The class of a block.
///
/// # Safety
/// `ptr` is null or a live block of jemalloc's.
#[inline(always)]
pub(crate) unsafe fn class(ptr: *mut c_void) -> Class {
    let root = ROOT.load(Ordering::Relaxed);
    if root.is_null() {
        return Class::UNKNOWN;
    }
    // SAFETY: the root, as `learn` has seen.
    let entry = unsafe { look_up(root, ptr) };
    // SAFETY: the caller's promise; an entry names a class, and there are fewer.
    let size = entry.map(|entry| unsafe { SIZES.get_unchecked(entry >> CLASS_AT) });
    size.map_or(Class::UNKNOWN, |size| Class {
        least: size.least.load(Ordering::Relaxed),
        span: size.span.load(Ordering::Relaxed),
    })
}

/// What the map has of a block; `None`: nothing, or it is not known.
///
/// # Safety
/// As [`class`].
#[inline(always)]
pub(crate) unsafe fn entry(ptr: *mut c_void) -> Option<usize> {
    let root = ROOT.load(Ordering::Relaxed);
    if root.is_null() {
        return None;
    }
    // SAFETY: the root, as `learn` has seen.
    unsafe { look_up(root, ptr) }
}

/// The part of the map that a block is in: its place in the root, and the leaf, which is there for good. `None`: it is not known.
///
/// # Safety
/// As [`class`].
pub(crate) unsafe fn leaf_of(ptr: *mut c_void) -> Option<(usize, *mut c_void)> {
    let root = ROOT.load(Ordering::Relaxed);
    let in_root = ptr.addr() >> (PAGE_BITS + LEAF_BITS);
    if root.is_null() || ptr.is_null() {
        return None;
    }
    // SAFETY: as in `look_up`.
    let leaf = unsafe { (*root.add(in_root)).load(Ordering::Relaxed) };
    (!leaf.is_null()).then_some((in_root, leaf.cast()))
}

/// What the map has of a block. Of null that is nothing, or 0.
///
/// # Safety
/// As [`class`]; `root` is the root of a map as described above.
#[inline(always)]
unsafe fn look_up(root: *const AtomicPtr<AtomicUsize>, ptr: *mut c_void) -> Option<usize> {
    let page = ptr.addr() >> PAGE_BITS;
    let in_root = page >> LEAF_BITS;
    let in_leaf = page & ((1 << LEAF_BITS) - 1);
    // SAFETY: the index is below the root's length, since no address in use has more than 48 bits. A leaf is never taken away, and the entry of a page where a live block begins is written
    // before the block is handed out, and then by its owner only, in a realloc: whoever has the block has seen it, and so may read it relaxed.
    let leaf = unsafe { (*root.add(in_root)).load(Ordering::Relaxed) };
    if leaf.is_null() {
        return None;
    }
    // SAFETY: as above.
    Some(unsafe { (*leaf.add(in_leaf)).load(Ordering::Relaxed) })
}

/// What describes the pages of a block (`edata_t`), of which the map has that entry: its bits but for those of the class, and the lowest, which have other meanings
/// (`rtree_leaf_elm_bits_decode`).
#[inline(always)]
pub(crate) fn extent(entry: usize) -> *mut c_void {
    let above = usize::BITS - CLASS_AT;
    let address = ((entry << above) as isize >> above) as usize & !(EXTENT_ALIGNMENT - 1);
    std::ptr::with_exposed_provenance_mut(address)
}

/// At boot: whether the map is what we take it for, and what its classes are.
pub(crate) fn learn(is_wanted: bool) {
    if !is_wanted {
        return;
    }
    let map = &raw const layout::EMAP;
    let root: *const AtomicPtr<AtomicUsize> = map.wrapping_add(ROOT_AT).cast();
    // The smallest class, one of a few pages, the last with several blocks in a page, the first without, and the last that tells.
    let asked = [SMALLEST, 1700, 14336, 14337, LARGEST_TOLD_BY_CLASS];
    if !asked.into_iter().all(|size| agrees(root, size)) {
        return;
    }
    let mut below = 0;
    for (number, size) in SIZES.iter().enumerate() {
        let bytes = size_of_class(number);
        if bytes > LARGEST_TOLD_BY_CLASS {
            break;
        }
        // Of less than our smallest request no block is asked for: the first class that has that much is for all that is less. The one
        // below it, number 0, remains unknown: that number is what the map has where there is nothing, and so of null, where blocks are
        // near to it (valgrind puts them there).
        if bytes >= SMALLEST {
            let class = Class::new(below, bytes);
            size.least.store(class.least, Ordering::Relaxed);
            size.span.store(class.span, Ordering::Relaxed);
            below = bytes;
        }
    }
    ROOT.store(root.cast_mut(), Ordering::Relaxed);
}

/// The root; `None`: it is not known.
pub(crate) fn root() -> Option<*mut c_void> {
    let root = ROOT.load(Ordering::Relaxed);
    (!root.is_null()).then_some(root.cast())
}

/// Bytes of a class, of those that there are.
pub(crate) fn size_of_class(number: usize) -> usize {
    let sizes = &raw const layout::CLASS_BYTES;
    // SAFETY: jemalloc's table has a place for each class, in order of their sizes, up to sizes that no block can have, and is constant once
    // there are any. Nobody asks for one beyond the first that is above `LARGEST_TOLD_BY_CLASS`.
    unsafe { *sizes.add(number) }
}

/// Whether both ways give the same answer about a block of `size` bytes, `LARGEST_TOLD_BY_CLASS` at most. One of our own: of the program's arena, whose
/// thread cache takes several of a class at once, they would be 170 KiB, and its heap would not lie as it does without us.
fn agrees(root: *const AtomicPtr<AtomicUsize>, size: usize) -> bool {
    let block = own_arena::allocate(size, 1, false);
    if block.is_null() {
        return false;
    }
    // SAFETY: a live block may be asked about, and freed once. What is found is used as an index only if it is one of the table's.
    unsafe {
        let usable = sys::malloc_usable_size(block.cast());
        let entry = look_up(root, block.cast()).unwrap_or(0);
        own_arena::free(block);
        let (number, is_small) = (entry >> CLASS_AT, entry & IS_SMALL != 0);
        number < CLASSES_AT_LEAST
            && size_of_class(number) == usable
            && is_small == (size <= LARGEST_SMALL)
    }
}
