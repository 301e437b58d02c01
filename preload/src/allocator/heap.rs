//! jemalloc: its blocks, those of the program and our own. What else calls it: `allocator/fast_path.rs`, for small blocks of the program's, `allocator/mallctl.rs` for its
//! values, `allocator/private_symbols.rs`, `allocator/large.rs`, `allocator/rtree.rs`, `allocator/tcache_policy.rs`, `allocator/spare_arena.rs`.
//!
//! Danger: foreign functions. What each promises is in `tikv-jemalloc-sys`; here it is bent where
//! glibc documents something else (alignment of small blocks), and nowhere else.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::rtree::Class;
use crate::allocator::{fast_path, large, mallctl, private_symbols, rtree};

/// Options compiled in. Read by jemalloc before its first allocation; the variable
/// `_RJEM_MALLOC_CONF` can still override them.
///
/// * `abort_conf:false`: a wrong option in the environment must not end the program.
/// * `oversize_threshold:33554432`: jemalloc gives free ranges of 8 MiB and more back to the kernel at once, and the program
///   gets them back page fault by page fault: 1.7 times glibc's CPU time for blocks of 64 KiB to 16 MiB. From 32 MiB on,
///   it is a twentieth. What is smaller goes back after ten seconds unused, as all else (docs/lab-notes/jemalloc-options.md).
#[unsafe(no_mangle)]
#[used]
static _rjem_malloc_conf: Options =
    Options(c"abort_conf:false,oversize_threshold:33554432".as_ptr());

/// A `const char *` that a C library reads.
#[repr(transparent)]
struct Options(*const c_char);
// SAFETY: points to a literal, which nobody writes.
unsafe impl Sync for Options {}

/// jemalloc's smallest class is 8 bytes, aligned to 8; glibc documents 16 for every block. A request
/// of 9 is the smallest that gets 16.
pub(crate) const SMALLEST: usize = 9;

/// At boot: what jemalloc has to say goes our way, and not to whatever is descriptor 2.
pub(crate) fn be_quiet() {
    extern "C" fn hear(_: *mut c_void, words: *const c_char) {
        // SAFETY: jemalloc passes a C string.
        let words = unsafe { CStr::from_ptr(words) }.to_bytes();
        if words.starts_with(b"<jemalloc>: Failed to allocate") {
            return; // it gets on without, and whoever wanted memory is told by a null
        }
        crate::os::diagnostics::bytes(words); // jemalloc may hold its locks: nothing is allocated
    }
    // SAFETY: a variable that jemalloc reads before each message; no other thread runs yet, or they say nothing
    // worth hearing.
    unsafe { sys::malloc_message = Some(hear) };
}

/// At boot: learns of what size large blocks are.
pub(crate) fn learn() {
    LARGE_IS_PAGES.store(private_symbols::is_large_pages(), Ordering::Relaxed);
}

#[inline(always)]
pub(crate) fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size is allowed.
    unsafe { fast_path::malloc(size.max(SMALLEST)) }
}

/// Zeroed.
///
/// A small block is zeroed here, all that can be used of it, as jemalloc does: its calloc lacks the short way that its malloc has.
#[inline(always)]
pub(crate) fn calloc(size: usize) -> *mut c_void {
    if size > LARGEST_SMALL {
        if size > large::LARGEST_CACHED {
            let ptr = large::calloc(size);
            if !ptr.is_null() {
                return ptr;
            }
        }
        // SAFETY: any size is allowed.
        return unsafe { sys::calloc(1, size) };
    }
    let ptr = malloc(size);
    if !ptr.is_null() {
        // SAFETY: a new block, of which so much can be used.
        unsafe { ptr.cast::<u8>().write_bytes(0, small_class_of(size)) };
    }
    ptr
}

/// Resizes a block. What jemalloc's realloc does, in a fraction of its instructions
/// (docs/lab-notes/entry-points.md): one whose size class stays the same stays where it is, and one of up to [`large::LARGEST_CACHED`] is moved to another of these. Larger ones may grow
/// in place; that is left to jemalloc.
///
/// # Safety
/// `ptr` is null or a live block of ours; `size` is not 0 unless `ptr` is null.
#[inline(always)]
pub(crate) unsafe fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    if unsafe { rtree::class(ptr) }.fits(size) {
        return ptr;
    }
    // SAFETY: the caller's promise.
    unsafe { realloc_on(ptr, size) }
}

/// The same, for what is large or does not stay: a function of its own, so that the frequent way needs no stack.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn realloc_on(ptr: *mut c_void, size: usize) -> *mut c_void {
    if ptr.is_null() {
        return malloc(size); // as growing arrays begin: jemalloc's realloc would take its long way
    }
    // SAFETY: the caller's promise.
    let class = unsafe { class(ptr) };
    if class.fits(size) {
        return ptr;
    }
    // SAFETY: the caller's promise.
    unsafe { realloc_elsewhere(ptr, class.bytes(), size) }
}

/// The class of a block; of a large one, what jemalloc's size classes would be, if it had them. That of null fits nothing.
///
/// # Safety
/// `ptr` is null or a live block of ours.
#[inline(always)]
pub(crate) unsafe fn class(ptr: *mut c_void) -> Class {
    // SAFETY: the caller's promise.
    let known = unsafe { rtree::class(ptr) };
    if known.bytes() != 0 || ptr.is_null() {
        return known;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { large::usable(ptr) };
    Class::new(bytes.wrapping_sub(spacing(bytes)), bytes)
}

/// The rest of [`realloc`]: of a block that has `usable` bytes and does not stay in place.
///
/// # Safety
/// As there.
#[inline(always)]
pub(crate) unsafe fn realloc_elsewhere(
    ptr: *mut c_void,
    usable: usize,
    size: usize,
) -> *mut c_void {
    if usable == 0 {
        return malloc(size); // there was none
    }
    if usable > large::LARGEST_CACHED || size > large::LARGEST_CACHED {
        // SAFETY: the caller's promise.
        return unsafe { sys::realloc(ptr, size.max(SMALLEST)) };
    }
    let new = malloc(size);
    if !new.is_null() {
        // SAFETY: both blocks have that many bytes and are two; the old one is not used hereafter.
        unsafe {
            new.cast::<u8>()
                .copy_from_nonoverlapping(ptr.cast(), usable.min(size));
            fast_path::free(ptr);
        }
    }
    new
}

/// jemalloc's largest small class (its bins end there), in bytes.
pub(crate) const LARGEST_SMALL: usize = 14336;

/// How far the class of a block of `size` bytes is from the next smaller one.
///
/// jemalloc's classes (jemalloc(3), "Implementation notes"): multiples of 16 up to 128, then four to each doubling. So the
/// class below one in (2^k, 2^(k+1)] is 2^(k-2) smaller.
#[inline(always)]
fn spacing(size: usize) -> usize {
    (1usize << (usize::BITS - 1 - (size.wrapping_sub(1) | 64).leading_zeros())) >> 2
}

/// Usable bytes of a small block that was asked for by its size.
#[inline(always)]
fn small_class_of(size: usize) -> usize {
    let size = size.max(SMALLEST);
    size.wrapping_add(spacing(size) - 1) & !(spacing(size) - 1)
}

/// # Safety
/// `ptr` is null or a live block of ours, not used hereafter.
#[inline(always)]
pub(crate) unsafe fn free(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { fast_path::free(ptr) }
}

/// A block aligned to `alignment`, a power of two and no less than glibc promises of every block; null when there is no memory.
/// errno is left alone, but where the block would be small, and there is none, as glibc leaves it.
///
/// Blocks of a small class lie one behind another from the beginning of a page, so each is aligned to whatever power of two up to a page
/// divides its class. And `alignment` divides the class of any multiple of it: where classes are as far apart as that, or farther, it divides them
/// all, and where they are closer the multiple is a class. jemalloc reckons the same, but not on the short way that its malloc has.
#[inline(always)]
pub(crate) fn aligned(alignment: usize, size: usize) -> *mut c_void {
    if size <= LARGEST_SMALL && alignment <= mallctl::PAGE {
        let multiple = (size.max(1) + (alignment - 1)) & !(alignment - 1);
        if multiple <= LARGEST_SMALL {
            return malloc(multiple);
        }
    }
    aligned_and_large(alignment, size)
}

#[inline(never)]
fn aligned_and_large(alignment: usize, size: usize) -> *mut c_void {
    // No block can be larger, and sizes near usize::MAX would wrap when rounded up.
    if size > isize::MAX as usize || alignment > isize::MAX as usize {
        return std::ptr::null_mut();
    }
    if size > large::LARGEST_CACHED {
        let ptr = large::allocate(size, alignment.max(large::ALIGNMENT), false);
        if !ptr.is_null() {
            return ptr;
        }
    }
    // SAFETY: mallocx wants a size above 0 and an alignment that is a power of two.
    unsafe { sys::mallocx(size.max(SMALLEST), sys::MALLOCX_ALIGN(alignment)) }
}

/// Bytes that may be used of a block.
///
/// # Safety
/// `ptr` is null or a live block of ours.
#[inline]
pub(crate) unsafe fn usable(ptr: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    match unsafe { rtree::class(ptr) }.bytes() {
        // SAFETY: the caller's promise.
        0 => unsafe { large::usable(ptr) },
        bytes => bytes,
    }
}

/// How a block was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// By its size alone.
    Plain,
    /// By an alignment, too.
    Aligned,
    /// By its size, but there was one already: if large, it may have stayed what it was.
    Resized,
}

/// Whether a large block that was asked for by its size has as many pages as that takes, and no more. So it is unless an option of
/// jemalloc's says otherwise (`disable_large_size_classes`).
static LARGE_IS_PAGES: AtomicBool = AtomicBool::new(false);

/// See [`LARGE_IS_PAGES`]; to be asked after [`learn`].
pub(crate) fn large_is_pages() -> bool {
    LARGE_IS_PAGES.load(Ordering::Relaxed)
}

/// Usable bytes of a block that was just allocated, or resized, for `size` bytes. Without looking it up, if the size alone
/// tells: in what jemalloc keeps about blocks, that of a new one is rarely in the cache.
///
/// # Safety
/// As [`usable`].
#[inline(always)]
pub(crate) unsafe fn usable_of_new(ptr: *mut c_void, size: usize, fit: Fit) -> usize {
    match fit {
        Fit::Plain | Fit::Resized if size <= LARGEST_SMALL => small_class_of(size),
        Fit::Plain if size <= large::LARGEST_CACHED && LARGE_IS_PAGES.load(Ordering::Relaxed) => {
            size.next_multiple_of(mallctl::PAGE)
        }
        // SAFETY: the caller's promise.
        _ => unsafe { usable(ptr) },
    }
}

/// Our own arena, apart from the program's: its blocks never pass through the exports.
static OWN_ARENA: AtomicI32 = AtomicI32::new(0);

/// Its number, once it was made.
pub(crate) fn own_arena() -> Option<c_int> {
    Some(OWN_ARENA.load(Ordering::Relaxed)).filter(|&arena| arena > 0)
}

fn own_flags() -> c_int {
    let mut arena = OWN_ARENA.load(Ordering::Relaxed);
    if arena == 0 {
        arena = private_symbols::create_arena().unwrap_or(-1);
        // Two threads that come here at once make one arena or two; one is used from then on, and blocks
        // of the other are freed by their address all the same.
        OWN_ARENA.store(arena, Ordering::Relaxed);
    }
    // No thread cache: ours must not hold the program's blocks, nor the program's ours.
    let arena = if arena > 0 {
        sys::MALLOCX_ARENA(arena as usize)
    } else {
        0
    };
    arena | sys::MALLOCX_TCACHE_NONE
}

/// A block of our own.
pub(crate) fn own_alloc(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    let zero = if zeroed { sys::MALLOCX_ZERO } else { 0 };
    let flags = sys::MALLOCX_ALIGN(alignment) | zero | own_flags();
    // SAFETY: the global allocator never asks for 0 bytes, and alignments are powers of two.
    unsafe { sys::mallocx(size.max(1), flags).cast() }
}

/// # Safety
/// `ptr` is a live block from [`own_alloc`].
pub(crate) unsafe fn own_realloc(ptr: *mut u8, size: usize, alignment: usize) -> *mut u8 {
    let flags = sys::MALLOCX_ALIGN(alignment) | own_flags();
    // SAFETY: the caller's promise.
    unsafe { sys::rallocx(ptr.cast(), size.max(1), flags).cast() }
}

/// # Safety
/// `ptr` is a live block from [`own_alloc`], not used hereafter.
pub(crate) unsafe fn own_free(ptr: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { sys::dallocx(ptr.cast(), sys::MALLOCX_TCACHE_NONE) }
}
