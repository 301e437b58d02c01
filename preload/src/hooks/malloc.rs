//! The exports: every allocation function of glibc and C23, with glibc's results and errno. (What glibc's allocator says of itself, and
//! is told, is in `hooks/mallinfo.rs`.)
//!
//! Danger: the C boundary. Each function is three steps: what glibc documents about the arguments, the
//! call of jemalloc, and the hook's question. Nothing here can panic, and the hooks catch their own
//! panics (Law 1); `C-unwind` is for the other kind of unwinding: a thread that is cancelled at the end
//! of a hook (`os/cancellation.rs`) is unwound by libc through these frames. docs/exports.md lists what is exported
//! and what is deliberately not.
//!
//! Frame 0 of every recorded stack is the address of the function here plus one, so that readers
//! find the allocation function's name there whatever the compiler inlined or tail-called.

use std::ffi::{c_int, c_void};

use crate::allocator::{self, Fit};
use crate::arch::entry_stubs::with_caller;
use crate::hooks::aligned::{memalign, posix_memalign, pvalloc, valloc};
use crate::hooks::early_heap;
use crate::hooks::entry::{entry, out_of_memory};
use crate::hooks::malloc_fast::{free, malloc};
use crate::hooks::sample::{self, Before};
use crate::recording::sampled_blocks;
use crate::unwind::walk::Here;

/// Where our malloc is.
pub(crate) fn malloc_address() -> u64 {
    malloc as *const () as u64
}

with_caller! { malloc_sampled(size: usize) -> *mut c_void; "rsi", "rdx" => malloc_called_from }
with_caller! { calloc_sampled(size: usize) -> *mut c_void; "rsi", "rdx" => calloc_called_from }
with_caller! {
    resize_sampled(ptr: *mut c_void, size: usize, entry: u64) -> *mut c_void;
    "rcx", "r8" => resize_called_from
}

extern "C-unwind" fn malloc_called_from(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
    if early_heap::is_now() {
        return early_heap::allocate(1, size);
    }
    let ptr = allocator::malloc(size);
    // SAFETY: the first half passed its own registers.
    let here = unsafe { Here::caller(sp, bp) };
    sample::allocated(entry!(malloc), ptr, size, Fit::Plain, here);
    ptr
}

extern "C-unwind" fn calloc_called_from(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
    if early_heap::is_now() {
        return early_heap::allocate(1, size);
    }
    let ptr = allocator::calloc(size);
    // SAFETY: the first half passed its own registers.
    let here = unsafe { Here::caller(sp, bp) };
    sample::allocated(entry!(calloc), ptr, size, Fit::Plain, here);
    ptr
}

/// Allocates `count * size` zeroed bytes. Null with ENOMEM, also when the product overflows.
///
/// # Safety
/// As calloc(3); so for all functions here.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn calloc(count: usize, size: usize) -> *mut c_void {
    let size = count.saturating_mul(size); // a product that overflows is more than can be had
    if !sample::is_some(size) {
        // SAFETY: as in malloc.
        return unsafe { calloc_rarely(size) };
    }
    if sample::passes_some(size) {
        return allocator::calloc(size);
    }
    // SAFETY: as in malloc.
    unsafe { calloc_sampled(size) }
}

/// The same of no bytes, or of more than can be had.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn calloc_rarely(size: usize) -> *mut c_void {
    if sample::passes(size) {
        return allocator::calloc(size);
    }
    // SAFETY: as in malloc.
    unsafe { calloc_sampled(size) }
}

/// What [`free`] jumps to when the counter of the address is not 0.
///
/// # Safety
/// As free(3).
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C-unwind" fn free_sampled(ptr: *mut c_void) {
    if sampled_blocks::may_be_sampled(ptr) {
        // SAFETY: the caller's promise.
        return unsafe { free_known(ptr) };
    }
    // SAFETY: the caller's promise.
    unsafe { allocator::free(ptr) }
}

/// The rest of it, for what is a sample or an early block, and hardly anything else.
///
/// # Safety
/// As free(3).
#[inline(never)]
unsafe extern "C-unwind" fn free_known(ptr: *mut c_void) {
    if early_heap::owns(ptr) {
        return;
    }
    sample::freed(ptr);
    // SAFETY: the caller's promise.
    unsafe { allocator::free(ptr) }
}

/// Resizes a block. Null with ENOMEM leaves it as it was; size 0 frees it and returns null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { resize(ptr, size, entry!(realloc)) }
}

/// realloc of `count * size` bytes; null with ENOMEM when the product overflows.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn reallocarray(
    ptr: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { resize(ptr, bytes, entry!(reallocarray)) },
        None => out_of_memory(),
    }
}

#[inline(always)]
unsafe fn resize(ptr: *mut c_void, size: usize, entry: u64) -> *mut c_void {
    if !sample::is_some(size) {
        // SAFETY: the caller's promise.
        return unsafe { resize_rarely(ptr, size, entry) };
    }
    if sample::passes_some(size) {
        if ptr.is_null() {
            return allocator::malloc(size); // as growing arrays begin: neither filter nor map knows anything of it
        }
        if !sampled_blocks::may_be_sampled(ptr) {
            // SAFETY: the caller's promise.
            return unsafe { allocator::realloc(ptr, size) };
        }
    }
    // SAFETY: as above.
    unsafe { resize_sampled(ptr, size, entry) }
}

/// # Safety
/// As realloc(3), with a size of 0, or of more than can be had.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn resize_rarely(
    ptr: *mut c_void,
    size: usize,
    entry: u64,
) -> *mut c_void {
    if size == 0 && !ptr.is_null() && cfg!(target_env = "musl") {
        // There it is a block like that of malloc(0), and null a failure, after which a program frees the old one itself.
        // SAFETY: the caller's promise.
        return unsafe { resize_to_nothing(ptr, entry) };
    }
    if size == 0 && !ptr.is_null() {
        // SAFETY: the caller's promise.
        unsafe { free(ptr) };
        return std::ptr::null_mut();
    }
    if sample::passes(size) && !sampled_blocks::may_be_sampled(ptr) {
        // SAFETY: the caller's promise; an empty block is asked for only where there is no other.
        return unsafe { allocator::realloc(ptr, size) };
    }
    // SAFETY: as above.
    unsafe { resize_sampled(ptr, size, entry) }
}

/// musl's realloc to no bytes: a free, and an allocation of an empty block. null with ENOMEM leaves the old one as it was.
///
/// # Safety
/// As realloc(3), with a block.
unsafe fn resize_to_nothing(ptr: *mut c_void, entry: u64) -> *mut c_void {
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

/// Law 3: take the old sample, call, and on failure put it back. The new block is sampled by a draw
/// of its own, whatever the old one was: a realloc is a free and an allocation.
extern "C-unwind" fn resize_called_from(
    ptr: *mut c_void,
    size: usize,
    entry: u64,
    sp: *const u64,
    bp: u64,
) -> *mut c_void {
    if early_heap::is_now() | early_heap::owns(ptr) {
        // SAFETY: the caller's promise; an early block is never anything else.
        return unsafe { resize_early(ptr, size) };
    }
    // SAFETY: the caller's promise.
    let class = unsafe { allocator::class(ptr) };
    let (new, before) = if class.fits(size) {
        // It goes on being this block's, and nobody else can meet it here.
        (ptr, Before::Here)
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
                (new, Before::Nothing)
            }
            Some(taken) => (new, Before::Taken(taken)),
            None => (new, Before::Nothing),
        }
    };
    // The caller laid the bytes on the line; whether a mark fell on them is still to be seen there.
    if sample::is_due() {
        // SAFETY: the first half passed its own registers.
        let here = unsafe { Here::caller(sp, bp) };
        sample::reallocated(entry, new, size, here, before);
    } else {
        before.end(new);
    }
    if new.is_null() {
        return out_of_memory();
    }
    new
}

/// realloc to or from an early block: the old one stays where it is.
///
/// # Safety
/// `ptr` is null or an early block.
#[cold]
unsafe fn resize_early(ptr: *mut c_void, size: usize) -> *mut c_void {
    let new = if early_heap::is_now() {
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

/// C23. The size is not trusted: a wrong one is the program's error, and must not become ours.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn free_sized(ptr: *mut c_void, _size: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// C23. As [`free_sized`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn free_aligned_sized(
    ptr: *mut c_void,
    _alignment: usize,
    _size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// The oldest name of free.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn cfree(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(ptr) }
}

/// glibc's own names of the same functions: old programs and other interposers call them, and their blocks
/// meet our free.
macro_rules! other_names {
    ($($(#[$doc:meta])* $name:ident = $function:ident ( $($argument:ident : $kind:ty),* ) $(-> $result:ty)?;)*) => {
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
    __posix_memalign = posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
}

/// Bytes that may be used of a block; 0 for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    if early_heap::owns(ptr) {
        return early_heap::usable(ptr);
    }
    // SAFETY: the caller's promise.
    unsafe { allocator::usable(ptr) }
}
