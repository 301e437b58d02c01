//! jemalloc's map of addresses: from a block's address to its class.
//!
//! Danger: another library's memory, whose layout is not guaranteed. `malloc_usable_size`,
//! jemalloc's own query, costs more instructions and stack than all the rest of a realloc in place.
//! So this file reads the data behind it: a tree of two levels over the 48 bits of an address
//! (jemalloc's `internal/rtree.h`). At boot, blocks of several classes are looked up in both ways;
//! if a result differs, the map is never read.
//!
//! The map tells the class of small blocks, and of large blocks up to [`LARGEST_SIZED_BY_CLASS`].
//! Larger blocks have exactly their pages, and the map does not tell their number
//! (`disable_large_size_classes`, jemalloc's default).

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::{
    self, CLASS_AT, CLASSES, EXTENT_ALIGNMENT, IS_SMALL, LARGEST_SIZED_BY_CLASS, LARGEST_SMALL,
    LEAF_BITS, PAGE_BITS, ROOT_AT, SMALLEST,
};
use crate::allocator::own_arena;

/// Number of classes that certainly exist. The largest class that tells its size is among them.
const MIN_CLASSES: usize = 64;

/// The sizes of each class; all zero until the map is verified.
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

/// A size class: the range of sizes for which a block is large enough and not too large. One
/// comparison tells whether a size is in it.
#[derive(Clone, Copy)]
pub(crate) struct Class {
    /// The smallest size, in bytes: one more than the next smaller class has.
    least: usize,
    /// Number of sizes. 0: the class is unknown, and nothing fits.
    span: usize,
}

impl Class {
    const UNKNOWN: Class = Class { least: 0, span: 0 };

    /// Returns the class of `bytes` bytes that follows a class of `below` bytes.
    #[inline(always)]
    pub(crate) fn new(below: usize, bytes: usize) -> Class {
        Class {
            least: below.wrapping_add(1),
            span: bytes.wrapping_sub(below),
        }
    }

    /// Returns the usable bytes, which are the largest size. 0: the class is unknown.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        match self.span {
            0 => 0,
            span => self.least.wrapping_add(span - 1),
        }
    }

    /// Returns true if a request of `size` bytes, not 0, belongs to this class. Then a block of
    /// this class can stay in place when it is resized. If the class is wrong, a block is larger
    /// than needed or moved without need, but never too small.
    #[inline(always)]
    pub(crate) fn fits(self, size: usize) -> bool {
        size.wrapping_sub(self.least) < self.span
    }
}

/// The root, once the map is verified.
static ROOT: AtomicPtr<AtomicPtr<AtomicUsize>> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the class of a block.
///
/// # Safety
/// `ptr` is null or a live block of jemalloc.
#[inline(always)]
pub(crate) unsafe fn class(ptr: *mut c_void) -> Class {
    let root = ROOT.load(Ordering::Relaxed);
    if root.is_null() {
        return Class::UNKNOWN;
    }
    // SAFETY: the root, as `learn` has verified.
    let entry = unsafe { look_up(root, ptr) };
    // SAFETY: the caller's promise; an entry names an existing class, and `SIZES` has more.
    let size = entry.map(|entry| unsafe { SIZES.get_unchecked(entry >> CLASS_AT) });
    size.map_or(Class::UNKNOWN, |size| Class {
        least: size.least.load(Ordering::Relaxed),
        span: size.span.load(Ordering::Relaxed),
    })
}

/// Returns the class of an entry that was loaded before.
pub(crate) fn class_of_entry(entry: usize) -> Class {
    let size = SIZES.get(entry >> CLASS_AT);
    size.map_or(Class::UNKNOWN, |size| Class {
        least: size.least.load(Ordering::Relaxed),
        span: size.span.load(Ordering::Relaxed),
    })
}

/// Returns a block's entry in the map. `None`: there is no entry, or the map is not verified.
///
/// # Safety
/// The contract of [`class`].
#[inline(always)]
pub(crate) unsafe fn entry(ptr: *mut c_void) -> Option<usize> {
    let root = ROOT.load(Ordering::Relaxed);
    if root.is_null() {
        return None;
    }
    // SAFETY: the root, as `learn` has verified.
    unsafe { look_up(root, ptr) }
}

/// Returns a block's index in the root, and its leaf, which is never freed. `None`: the map is not
/// verified.
///
/// # Safety
/// The contract of [`class`].
pub(crate) unsafe fn leaf_of(ptr: *mut c_void) -> Option<(usize, *mut c_void)> {
    let root = ROOT.load(Ordering::Relaxed);
    let in_root = ptr.addr() >> (PAGE_BITS + LEAF_BITS);
    if root.is_null() || ptr.is_null() {
        return None;
    }
    // SAFETY: the argument of `look_up`.
    let leaf = unsafe { (*root.add(in_root)).load(Ordering::Relaxed) };
    (!leaf.is_null()).then_some((in_root, leaf.cast()))
}

/// Returns a block's entry in the map. For null it is `None` or 0.
///
/// # Safety
/// The contract of [`class`]; `root` is the root of a map as described above.
#[inline(always)]
unsafe fn look_up(root: *const AtomicPtr<AtomicUsize>, ptr: *mut c_void) -> Option<usize> {
    let page = ptr.addr() >> PAGE_BITS;
    let in_root = page >> LEAF_BITS;
    let in_leaf = page & ((1 << LEAF_BITS) - 1);
    // SAFETY: the index is below the root's length, because no address in use has more than 48
    // bits. A leaf is never freed. The entry of a live block's first page is written before the
    // block is returned. Later only the block's owner changes it, in a realloc. So a thread that
    // has the block has seen the entry, and a relaxed read suffices.
    let leaf = unsafe { (*root.add(in_root)).load(Ordering::Relaxed) };
    if leaf.is_null() {
        return None;
    }
    // SAFETY: the same argument.
    Some(unsafe { (*leaf.add(in_leaf)).load(Ordering::Relaxed) })
}

/// Returns the extent (`edata_t`) of an entry: its bits without the class and the lowest bits,
/// which have other meanings (`rtree_leaf_elm_bits_decode`).
#[inline(always)]
pub(crate) fn extent(entry: usize) -> *mut c_void {
    let above = usize::BITS - CLASS_AT;
    let address = ((entry << above) as isize >> above) as usize & !(EXTENT_ALIGNMENT - 1);
    std::ptr::with_exposed_provenance_mut(address)
}

/// At boot: verifies the map, and reads the sizes of its classes.
pub(crate) fn learn(is_wanted: bool) {
    if !is_wanted {
        return;
    }
    let map = &raw const layout::EMAP;
    let root: *const AtomicPtr<AtomicUsize> = map.wrapping_add(ROOT_AT).cast();
    // The smallest class, one with a slab of a few pages, the largest small class, the smallest
    // large class, and the largest class that tells its size.
    let asked = [SMALLEST, 1700, 14336, 14337, LARGEST_SIZED_BY_CLASS];
    if !asked.into_iter().all(|size| agrees(root, size)) {
        return;
    }
    let mut below = 0;
    for (number, size) in SIZES.iter().enumerate() {
        let bytes = size_of_class(number);
        if bytes > LARGEST_SIZED_BY_CLASS {
            break;
        }
        // No block is requested below our smallest request, so the first class of at least that
        // size covers all smaller sizes. Class 0, below it, stays unknown. The map has that number
        // where there is no block, and so for null, if blocks are near address 0 (valgrind puts
        // them there).
        if bytes >= SMALLEST {
            let class = Class::new(below, bytes);
            size.least.store(class.least, Ordering::Relaxed);
            size.span.store(class.span, Ordering::Relaxed);
            below = bytes;
        }
    }
    ROOT.store(root.cast_mut(), Ordering::Relaxed);
}

/// Returns the root; `None`: the map is not verified.
pub(crate) fn root() -> Option<*mut c_void> {
    let root = ROOT.load(Ordering::Relaxed);
    (!root.is_null()).then_some(root.cast())
}

/// Returns the bytes of an existing class.
pub(crate) fn size_of_class(number: usize) -> usize {
    let sizes = &raw const layout::CLASS_BYTES;
    // SAFETY: jemalloc's table has an element for each class, in the order of their sizes, up to
    // sizes that no block can have. It is constant once blocks exist. No caller asks for a class
    // beyond the first one above `LARGEST_SIZED_BY_CLASS`.
    unsafe { *sizes.add(number) }
}

/// Returns true if both ways give the same answer for a block of `size` bytes, at most
/// `LARGEST_SIZED_BY_CLASS`. It uses a block of our own arena. In the program's arena, the thread
/// cache would take several blocks of each class, and the program's blocks would get other
/// addresses.
fn agrees(root: *const AtomicPtr<AtomicUsize>, size: usize) -> bool {
    let block = own_arena::allocate(size, 1, false);
    if block.is_null() {
        return false;
    }
    // SAFETY: a live block may be queried, and freed once. The result is used as an index only if
    // it is within the table.
    unsafe {
        let usable = sys::malloc_usable_size(block.cast());
        let entry = look_up(root, block.cast()).unwrap_or(0);
        own_arena::free(block);
        let (number, is_small) = (entry >> CLASS_AT, entry & IS_SMALL != 0);
        number < MIN_CLASSES
            && size_of_class(number) == usable
            && is_small == (size <= LARGEST_SMALL)
    }
}
