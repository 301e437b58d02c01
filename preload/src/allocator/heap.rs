//! The heap of the program: its blocks, in jemalloc.
//!
//! Danger: foreign functions. `tikv-jemalloc-sys` documents their promises. This file deviates only
//! where glibc documents another behaviour (alignment of small blocks).

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tikv_jemalloc_sys as sys;

use crate::allocator::layout::{
    LARGE_ALIGNMENT, LARGEST_CACHED, LARGEST_SMALL, PAGE, SMALLEST, small_class_of, spacing,
};
use crate::allocator::next;
use crate::allocator::rtree::{self, Class};
use crate::allocator::{fast_path, large, reclaim};
use crate::os::diagnostics;

/// Compiled-in options. jemalloc reads them before its first allocation; the variable
/// `_RJEM_MALLOC_CONF` can override them.
///
/// * `abort_conf:false`: an invalid option in the environment must not end the program.
/// * `oversize_threshold:33554432`: by default jemalloc returns free ranges of 8 MiB and more to
///   the kernel at once, and each reuse costs page faults. With this threshold, smaller ranges
///   decay like all other pages (docs/lab-notes/jemalloc-options.md).
/// * `lg_extent_max_active_fit:32`: by default jemalloc cuts no block out of a free range that is
///   64 times larger, and maps new memory. A program that frees all of its blocks, and allocates
///   as many again, would take as much new memory each time.
#[unsafe(no_mangle)]
#[used]
static _rjem_malloc_conf: Options =
    Options(c"abort_conf:false,oversize_threshold:33554432,lg_extent_max_active_fit:32".as_ptr());

/// A `const char *` that a C library reads.
#[repr(transparent)]
struct Options(*const c_char);
// SAFETY: points to a literal, which is never written.
unsafe impl Sync for Options {}

/// At boot: sends jemalloc's messages through our diagnostics, instead of to descriptor 2.
pub(crate) fn redirect_messages() {
    static HAS_TOLD_OF_MUNMAP: AtomicBool = AtomicBool::new(false);
    extern "C" fn print_message(_: *mut c_void, words: *const c_char) {
        // SAFETY: jemalloc passes a C string.
        let words = unsafe { CStr::from_ptr(words) }.to_bytes();
        if words.starts_with(b"<jemalloc>: Failed to allocate") {
            return; // jemalloc continues, and the caller gets a null
        }
        // The kernel refuses to split a mapping if the process has as many as it may have.
        // jemalloc has a line for each refusal; one is enough.
        let is_munmap = words.starts_with(b"<jemalloc>: Error in munmap");
        if is_munmap && HAS_TOLD_OF_MUNMAP.swap(true, Relaxed) {
            return;
        }
        // Allocates nothing: jemalloc may hold its locks.
        diagnostics::put_notice(format_args!("{}", words.trim_ascii().escape_ascii()));
    }
    // SAFETY: a variable that jemalloc reads before each message. No other thread runs yet, or its
    // messages may be lost.
    unsafe { sys::malloc_message = Some(print_message) };
}

/// Initializes jemalloc by its first allocation, in which it also registers its handlers for forks.
/// This library's own memory needs both, too, if the next allocator serves the program.
pub(crate) fn initialize() {
    // SAFETY: a block that no other code has.
    unsafe { sys::free(sys::malloc(1)) };
}

/// The bounds that the inlined code below compares sizes with. They are variables so that the next
/// allocator costs jemalloc's path no comparison more. They are 0 until boot, and stay so if the
/// next allocator serves the program.
struct Bounds {
    /// The least size of a request.
    least: AtomicUsize,
    /// The number of sizes, from 0 on, that jemalloc's small classes serve.
    small: AtomicUsize,
}

static BOUNDS: Bounds = Bounds {
    least: AtomicUsize::new(0),
    small: AtomicUsize::new(0),
};

/// At boot: jemalloc serves the program.
pub(crate) fn enable_bounds() {
    BOUNDS.least.store(SMALLEST, Ordering::Relaxed);
    BOUNDS.small.store(LARGEST_SMALL + 1, Ordering::Relaxed);
}

#[inline(always)]
fn is_small(size: usize) -> bool {
    size < BOUNDS.small.load(Ordering::Relaxed)
}

#[inline(always)]
pub(crate) fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size is allowed.
    unsafe { fast_path::malloc(size.max(BOUNDS.least.load(Ordering::Relaxed))) }
}

/// Returns a block of jemalloc's. The caller knows that jemalloc serves the program.
#[inline(always)]
fn malloc_from_jemalloc(size: usize) -> *mut c_void {
    // SAFETY: any size is allowed.
    unsafe { fast_path::malloc(size.max(SMALLEST)) }
}

/// Returns a zeroed block.
///
/// A small block is zeroed here, all its usable bytes, as jemalloc does. jemalloc's calloc lacks
/// the fast path of its malloc.
#[inline(always)]
pub(crate) fn calloc(size: usize) -> *mut c_void {
    if !is_small(size) {
        return calloc_not_small(size);
    }
    let ptr = malloc_from_jemalloc(size);
    if !ptr.is_null() {
        // SAFETY: a new block with this number of usable bytes.
        unsafe { ptr.cast::<u8>().write_bytes(0, small_class_of(size)) };
    }
    ptr
}

#[inline(never)]
fn calloc_not_small(size: usize) -> *mut c_void {
    if let Some(next) = next::chosen() {
        // SAFETY: any size is allowed.
        return unsafe { (next.calloc)(1, size) };
    }
    if size > LARGEST_CACHED {
        let ptr = large::calloc(size);
        if !ptr.is_null() {
            return ptr;
        }
    }
    // SAFETY: any size is allowed.
    let allocate = || unsafe { sys::calloc(1, size) };
    let ptr = allocate();
    if ptr.is_null() {
        return reclaim::retry(size, allocate);
    }
    ptr
}

/// Resizes a block, with the result of jemalloc's realloc in fewer instructions
/// (docs/lab-notes/entry-points.md). If the size class stays the same, the block stays in place.
/// Otherwise a block of up to [`LARGEST_CACHED`] is moved to another such block. Larger blocks may
/// grow in place, which is left to jemalloc.
///
/// # Safety
/// `ptr` is null or a live block of ours. `size` is not 0, unless `ptr` is null.
#[inline(always)]
pub(crate) unsafe fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    if unsafe { rtree::class(ptr) }.fits(size) {
        return ptr;
    }
    // SAFETY: the caller's promise.
    unsafe { realloc_slow(ptr, size) }
}

/// Slow path of [`realloc`], for large blocks and blocks that do not stay in place. It is a
/// separate function so that the fast path needs no stack.
///
/// # Safety
/// The contract of [`realloc`].
#[inline(never)]
unsafe fn realloc_slow(ptr: *mut c_void, size: usize) -> *mut c_void {
    if ptr.is_null() {
        return malloc(size); // growing arrays begin with null: jemalloc's realloc would be slow
    }
    // SAFETY: the caller's promise.
    let class = unsafe { class(ptr) };
    if class.fits(size) {
        return ptr;
    }
    // SAFETY: the caller's promise.
    unsafe { realloc_elsewhere(ptr, class.bytes(), size) }
}

/// Returns the class of a block. For a large block it is the class that jemalloc's size classes
/// would give. Nothing fits the class of null. No size up to `isize::MAX` but 0 fits that of a
/// block of the next allocator.
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
    let bytes = unsafe { large::usable_of_jemalloc(ptr) };
    Class::new(bytes.wrapping_sub(spacing(bytes)), bytes)
}

/// Resizes a block of `usable` bytes that does not stay in place; 0: null, or a block of the next
/// allocator, which decides, for a size of 0 as well.
///
/// # Safety
/// The contract of [`realloc`].
#[inline(always)]
pub(crate) unsafe fn realloc_elsewhere(
    ptr: *mut c_void,
    usable: usize,
    size: usize,
) -> *mut c_void {
    if usable == 0 {
        // SAFETY: the caller's promise.
        return unsafe { realloc_unknown(ptr, size) };
    }
    if usable > LARGEST_CACHED || size > LARGEST_CACHED {
        // SAFETY: the caller's promise; a failure leaves the block as it is.
        let resize = || unsafe { sys::realloc(ptr, size.max(SMALLEST)) };
        let moved = resize();
        return if moved.is_null() {
            reclaim::retry(size, resize)
        } else {
            moved
        };
    }
    let new = malloc_from_jemalloc(size);
    if !new.is_null() {
        // SAFETY: two distinct blocks of at least that many bytes; the old one is not used
        // afterwards.
        unsafe {
            new.cast::<u8>()
                .copy_from_nonoverlapping(ptr.cast(), usable.min(size));
            fast_path::free(ptr);
        }
    }
    new
}

/// Resizes a block whose class is unknown: null, or a block of the next allocator.
///
/// # Safety
/// The contract of [`realloc`].
unsafe fn realloc_unknown(ptr: *mut c_void, size: usize) -> *mut c_void {
    match next::chosen() {
        // SAFETY: the caller's promise.
        Some(next) => unsafe { (next.realloc)(ptr, size) },
        None => malloc(size), // null: there is no old block
    }
}

/// Frees a block.
///
/// # Safety
/// `ptr` is null or a live block of ours, not used afterwards.
#[inline(always)]
pub(crate) unsafe fn free(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { fast_path::free(ptr) }
}

/// Returns a block aligned to `alignment`, or null if there is no memory. `alignment` is a power of
/// two, and at least glibc's alignment of every block. errno is set only if the block would be
/// small and there is no memory, as in glibc.
///
/// Blocks of a small class lie consecutively from the start of a page. So each is aligned to every
/// power of two, up to a page, that divides its class. `alignment` divides the class of each
/// multiple of `alignment`. If classes there are at least `alignment` apart, it divides all of
/// them; if they are closer, the multiple is itself a class. jemalloc uses the same argument, but
/// not in the fast path of its malloc.
#[inline(always)]
pub(crate) fn aligned(alignment: usize, size: usize) -> *mut c_void {
    if is_small(size) && alignment <= PAGE {
        let multiple = (size.max(1) + (alignment - 1)) & !(alignment - 1);
        if multiple <= LARGEST_SMALL {
            return malloc_from_jemalloc(multiple);
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
    if let Some(next) = next::chosen() {
        return next.aligned(alignment, size);
    }
    if size > LARGEST_CACHED {
        let ptr = large::allocate(size, alignment.max(LARGE_ALIGNMENT), false);
        if !ptr.is_null() {
            return ptr;
        }
    }
    // SAFETY: mallocx requires a size above 0 and an alignment that is a power of two.
    let allocate = || unsafe { sys::mallocx(size.max(SMALLEST), sys::MALLOCX_ALIGN(alignment)) };
    let ptr = allocate();
    if ptr.is_null() {
        return reclaim::retry(size, allocate);
    }
    ptr
}

/// Returns the usable bytes of a block; 0 if the next allocator serves the program and does not
/// tell.
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

/// How a block was requested; or its usable bytes, if its allocator has told them. One word, since
/// each sample passes it on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit(usize);

impl Fit {
    /// By its size alone.
    pub(crate) const PLAIN: Fit = Fit(usize::MAX);
    /// By its size and an alignment.
    pub(crate) const ALIGNED: Fit = Fit(usize::MAX - 1);
    /// By its size, for an existing block: a large block may have kept its pages.
    pub(crate) const RESIZED: Fit = Fit(usize::MAX - 2);
    /// Most usable bytes: no block has more.
    const MOST: usize = isize::MAX as usize;

    /// From an allocator of the program's own, which has so many usable bytes for it.
    pub(crate) fn reported(usable: usize) -> Fit {
        Fit(usable.min(Fit::MOST))
    }
}

/// Returns the usable bytes of a block that has just been allocated or resized for `size` bytes. If
/// the size alone tells, the map is not read, because jemalloc's entry of a new block is rarely in
/// the processor's cache.
///
/// # Safety
/// The contract of [`usable`].
#[inline(always)]
pub(crate) unsafe fn usable_of_new(ptr: *mut c_void, size: usize, fit: Fit) -> usize {
    match fit {
        Fit::PLAIN | Fit::RESIZED if is_small(size) => small_class_of(size),
        Fit::PLAIN if size <= LARGEST_CACHED && large::has_exact_pages() => {
            size.next_multiple_of(PAGE)
        }
        Fit(usable) if usable <= Fit::MOST => usable,
        // SAFETY: the caller's promise.
        _ => unsafe { usable(ptr) },
    }
}
