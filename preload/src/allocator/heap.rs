//! The heap of the program: its blocks, on jemalloc.
//!
//! Danger: foreign functions. What each promises is in `tikv-jemalloc-sys`; here it is bent where
//! glibc documents something else (alignment of small blocks), and nowhere else.

use std::ffi::{CStr, c_char, c_void};

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::{
    LARGE_ALIGNMENT, LARGEST_CACHED, LARGEST_SMALL, PAGE, SMALLEST, small_class_of, spacing,
};
use crate::allocator::rtree::{self, Class};
use crate::allocator::{fast_path, large};

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
        if size > LARGEST_CACHED {
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
/// (docs/lab-notes/entry-points.md): one whose size class stays the same stays where it is, and one of up to [`LARGEST_CACHED`] is moved to another of these. Larger ones may grow
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
    if usable > LARGEST_CACHED || size > LARGEST_CACHED {
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
    if size <= LARGEST_SMALL && alignment <= PAGE {
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
    if size > LARGEST_CACHED {
        let ptr = large::allocate(size, alignment.max(LARGE_ALIGNMENT), false);
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

/// Usable bytes of a block that was just allocated, or resized, for `size` bytes. Without looking it up, if the size alone
/// tells: in what jemalloc keeps about blocks, that of a new one is rarely in the cache.
///
/// # Safety
/// As [`usable`].
#[inline(always)]
pub(crate) unsafe fn usable_of_new(ptr: *mut c_void, size: usize, fit: Fit) -> usize {
    match fit {
        Fit::Plain | Fit::Resized if size <= LARGEST_SMALL => small_class_of(size),
        Fit::Plain if size <= LARGEST_CACHED && large::is_pages() => size.next_multiple_of(PAGE),
        // SAFETY: the caller's promise.
        _ => unsafe { usable(ptr) },
    }
}
