//! Allocation functions: those of glibc and C23, with the results and errno of the libc in use.
//!
//! Danger: the C boundary. Each function has three steps: what libc documents about the arguments,
//! the call of the allocator, and the call of the hook. Nothing here can panic, and the hooks catch
//! their own panics (Law 1). `C-unwind` is for another kind of unwinding: libc unwinds a thread
//! that is cancelled at the end of a hook through these frames. The exports, and functions that are
//! deliberately not exported, are listed in docs/exports.md.
//!
//! Frame 0 of every recorded stack is the address of the function here plus one. So readers find
//! the name of the allocation function there, whatever the compiler inlines or tail-calls.
//!
//! Not here: the statistics and options of glibc's allocator (`mallinfo`).

use std::ffi::{c_int, c_void};

use crate::allocator::{self, Fit};
use crate::arch::entry_stubs::with_caller;
use crate::hooks::aligned::{memalign, posix_memalign, pvalloc, valloc};
use crate::hooks::early_heap;
use crate::hooks::entry::entry;
use crate::hooks::malloc_fast::{free, malloc};
use crate::hooks::sample::{self, OldSample};
use crate::os::errno;
use crate::recording::sampled_blocks;
use crate::unwind::walk::{WalkStart, current_registers};

/// Returns the address of our malloc.
pub(crate) fn malloc_address() -> u64 {
    malloc as *const () as u64
}

with_caller! { malloc_sampled(size: usize) -> *mut c_void => malloc_called_from }
with_caller! { calloc_sampled(size: usize) -> *mut c_void => calloc_called_from }
with_caller! {
    resize_sampled(ptr: *mut c_void, size: usize, entry: u64) -> *mut c_void => resize_called_from
}

extern "C-unwind" fn malloc_called_from(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
    if early_heap::is_active() {
        return early_heap::allocate(1, size);
    }
    let ptr = allocator::malloc(size);
    // SAFETY: the first half passed its own registers.
    let here = unsafe { WalkStart::caller(sp, bp) };
    sample::on_allocation(entry!(malloc), ptr, size, Fit::PLAIN, here);
    ptr
}

extern "C-unwind" fn calloc_called_from(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
    if early_heap::is_active() {
        return early_heap::allocate(1, size);
    }
    let ptr = allocator::calloc(size);
    // SAFETY: the first half passed its own registers.
    let here = unsafe { WalkStart::caller(sp, bp) };
    sample::on_allocation(entry!(calloc), ptr, size, Fit::PLAIN, here);
    ptr
}

/// Allocates `count * size` zeroed bytes. Null with ENOMEM, also if the product overflows.
///
/// # Safety
/// As calloc(3), which holds for all functions here: as the function of that name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn calloc(count: usize, size: usize) -> *mut c_void {
    let size = count.saturating_mul(size); // a product that overflows is more than can be allocated
    if !sample::is_valid_size(size) {
        // SAFETY: as in malloc.
        return unsafe { calloc_edge_size(size) };
    }
    if sample::passes_valid(size) {
        return allocator::calloc(size);
    }
    // SAFETY: as in malloc.
    unsafe { calloc_sampled(size) }
}

/// Slow path of malloc, if the next allocator serves the program, for 0 bytes or for more than can
/// be allocated.
///
/// # Safety
/// As malloc(3).
#[cold]
#[inline(never)]
pub(super) unsafe extern "C-unwind" fn malloc_edge_size(size: usize) -> *mut c_void {
    if sample::passes(size) {
        return allocator::malloc(size);
    }
    // SAFETY: the caller's promise.
    unsafe { malloc_sampled(size) }
}

/// Slow path of [`calloc`] for 0 bytes, or for more than can be allocated.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C-unwind" fn calloc_edge_size(size: usize) -> *mut c_void {
    if sample::passes(size) {
        return allocator::calloc(size);
    }
    // SAFETY: as in malloc.
    unsafe { calloc_sampled(size) }
}

/// Slow path of [`free`], to which it jumps if the address's counter in the Bloom filter is not 0.
///
/// # Safety
/// As free(3).
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C-unwind" fn free_sampled(ptr: *mut c_void) {
    if sampled_blocks::may_be_sampled(ptr) {
        // SAFETY: the caller's promise.
        return unsafe { free_recorded(ptr) };
    }
    // SAFETY: the caller's promise.
    unsafe { allocator::free(ptr) }
}

/// Frees a sample or an early block, and rarely any other block.
///
/// # Safety
/// As free(3).
#[inline(never)]
unsafe extern "C-unwind" fn free_recorded(ptr: *mut c_void) {
    if early_heap::owns(ptr) {
        return;
    }
    sample::on_free(ptr);
    // SAFETY: the caller's promise.
    unsafe { allocator::free(ptr) }
}

/// Resizes a block. Null with ENOMEM leaves the block as it is; size 0 frees it and returns null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { resize(ptr, size, entry!(realloc)) }
}

/// Resizes a block to `count * size` bytes. Null with ENOMEM if the product overflows.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn reallocarray(
    ptr: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { resize(ptr, bytes, entry!(reallocarray)) },
        None => errno::out_of_memory(),
    }
}

#[inline(always)]
unsafe fn resize(ptr: *mut c_void, size: usize, entry: u64) -> *mut c_void {
    if !sample::is_valid_size(size) {
        // SAFETY: the caller's promise.
        return unsafe { resize_edge_size(ptr, size, entry) };
    }
    if sample::passes_valid(size) {
        if ptr.is_null() {
            // Growing arrays begin with a null pointer. Neither the Bloom filter nor the page map
            // has it.
            return allocator::malloc(size);
        }
        if !sampled_blocks::may_be_sampled(ptr) {
            // SAFETY: the caller's promise.
            return unsafe { allocator::realloc(ptr, size) };
        }
    }
    // SAFETY: as above.
    unsafe { resize_sampled(ptr, size, entry) }
}

/// Slow path of [`realloc`] for 0 bytes, or for more than can be allocated.
///
/// # Safety
/// As realloc(3).
#[cold]
#[inline(never)]
pub(super) unsafe extern "C-unwind" fn resize_edge_size(
    ptr: *mut c_void,
    size: usize,
    entry: u64,
) -> *mut c_void {
    if size == 0 && !ptr.is_null() && cfg!(target_env = "musl") {
        // musl returns a block like that of malloc(0). Null is a failure, after which a program
        // itself frees the old block.
        // SAFETY: the caller's promise.
        return unsafe { resize_to_zero(ptr, entry) };
    }
    if size == 0 && !ptr.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { free_by_resizing(ptr, entry) };
    }
    if size != 0 && allocator::has_next() && !early_heap::owns(ptr) {
        // SAFETY: the caller's promise. No allocator has so much: the block and its sample stay.
        return unsafe { allocator::realloc_elsewhere(ptr, 0, size) };
    }
    if sample::passes(size) && !sampled_blocks::may_be_sampled(ptr) {
        // SAFETY: the caller's promise; size 0 comes here only with a null pointer.
        return unsafe { allocator::realloc(ptr, size) };
    }
    // SAFETY: as above.
    unsafe { resize_sampled(ptr, size, entry) }
}

/// Resizes a block to 0 bytes as glibc does, which frees it and returns null. If the next allocator
/// serves the program, it decides whether there is a new, empty block.
///
/// # Safety
/// As realloc(3), and `ptr` is not null.
unsafe fn free_by_resizing(ptr: *mut c_void, entry: u64) -> *mut c_void {
    if early_heap::owns(ptr) {
        return std::ptr::null_mut();
    }
    if !allocator::has_next() {
        // SAFETY: the caller's promise.
        unsafe { free(ptr) };
        return std::ptr::null_mut();
    }
    if sampled_blocks::may_be_sampled(ptr) {
        sample::on_free(ptr);
    }
    // SAFETY: the caller's promise.
    let new = unsafe { allocator::realloc_elsewhere(ptr, 0, 0) };
    if !new.is_null() && !sample::passes(0) {
        // SAFETY: registers of this frame.
        sample::on_allocation(entry, new, 0, Fit::RESIZED, current_registers!());
    }
    new
}

/// Resizes a block to 0 bytes as musl does: a free, and an allocation of an empty block. Null with
/// ENOMEM leaves the old block as it is.
///
/// # Safety
/// As realloc(3), and `ptr` is not null.
unsafe fn resize_to_zero(ptr: *mut c_void, entry: u64) -> *mut c_void {
    let new = match sample::passes(0) {
        true => allocator::malloc(0),
        // SAFETY: there is no old block.
        false => unsafe { resize_sampled(std::ptr::null_mut(), 0, entry) },
    };
    if !new.is_null() {
        // SAFETY: the caller's promise.
        unsafe { free(ptr) };
    }
    new
}

/// Slow path of realloc. Law 3: take the old sample, call, and on failure put it back. The new
/// block is sampled by its own draw, independent of the old one: a realloc is a free and an
/// allocation.
extern "C-unwind" fn resize_called_from(
    ptr: *mut c_void,
    size: usize,
    entry: u64,
    sp: *const u64,
    bp: u64,
) -> *mut c_void {
    if early_heap::is_active() | early_heap::owns(ptr) {
        // SAFETY: the caller's promise; an early block never becomes another kind of block.
        return unsafe { resize_early(ptr, size) };
    }
    // SAFETY: the caller's promise.
    let class = unsafe { allocator::class(ptr) };
    let (new, old) = if class.fits(size) {
        // The sample stays this block's. No other thread may use the block meanwhile.
        (ptr, OldSample::InTable)
    } else {
        let taken = match sampled_blocks::may_be_sampled(ptr) {
            true => sampled_blocks::take(ptr),
            false => None,
        };
        // SAFETY: the caller's promise.
        let new = unsafe { allocator::realloc_elsewhere(ptr, class.bytes(), size) };
        match taken {
            Some(taken) if new.is_null() => {
                taken.put_back();
                (new, OldSample::None)
            }
            Some(taken) => (new, OldSample::Taken(taken)),
            None => (new, OldSample::None),
        }
    };
    // The caller has advanced the sampler by these bytes. The sampler knows if a mark fell on them.
    if sample::is_due() {
        // SAFETY: the first half passed its own registers.
        let here = unsafe { WalkStart::caller(sp, bp) };
        sample::on_reallocation(entry, new, size, Fit::RESIZED, here, old);
    } else {
        old.end(new);
    }
    if new.is_null() {
        return errno::out_of_memory();
    }
    new
}

/// Resizes to or from an early block. The old block stays where it is.
///
/// # Safety
/// `ptr` is null or an early block.
#[cold]
unsafe fn resize_early(ptr: *mut c_void, size: usize) -> *mut c_void {
    let new = if early_heap::is_active() {
        early_heap::allocate(1, size)
    } else {
        allocator::malloc(size)
    };
    if !ptr.is_null() {
        // SAFETY: the caller's promise, and a new block of that size.
        unsafe { early_heap::copy(ptr, new, size) };
    }
    new
}

/// Frees a block (C23). The size is not trusted: a wrong one is a bug of the program and must do no
/// harm.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn free_sized(ptr: *mut c_void, _size: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// Frees a block (C23), as [`free_sized`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn free_aligned_sized(
    ptr: *mut c_void,
    _alignment: usize,
    _size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// Frees a block, under the oldest name of free.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn cfree(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// glibc's internal names of the same functions. Old programs and other interposers call them, and
/// their blocks come to our free.
macro_rules! other_names {
    ($(
        $(#[$doc:meta])*
        $name:ident = $function:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;
    )*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) $(-> $result)? {
                // SAFETY: the caller's promise.
                unsafe { $function($($argument),*) }
            }
        )*
    };
}

other_names! {
    /// As malloc.
    __libc_malloc = malloc(size: usize) -> *mut c_void;
    /// As calloc.
    __libc_calloc = calloc(count: usize, size: usize) -> *mut c_void;
    /// As realloc.
    __libc_realloc = realloc(ptr: *mut c_void, size: usize) -> *mut c_void;
    /// As reallocarray.
    __libc_reallocarray = reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void;
    /// As free.
    __libc_free = free(ptr: *mut c_void);
    /// As memalign.
    __libc_memalign = memalign(alignment: usize, size: usize) -> *mut c_void;
    /// As valloc.
    __libc_valloc = valloc(size: usize) -> *mut c_void;
    /// As pvalloc.
    __libc_pvalloc = pvalloc(size: usize) -> *mut c_void;
    /// As posix_memalign.
    __posix_memalign =
        posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
}

/// Returns the usable bytes of a block; 0 for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    if early_heap::owns(ptr) {
        return early_heap::usable(ptr);
    }
    // SAFETY: the caller's promise.
    unsafe { allocator::usable(ptr) }
}
