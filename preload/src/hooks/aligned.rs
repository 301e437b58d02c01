//! Aligned allocation: `posix_memalign` and its relatives.
//!
//! Danger: the C boundary, as in `malloc`.

use std::ffi::{c_int, c_void};

use crate::allocator::{self, Fit};
use crate::arch::entry_stubs::with_caller;
use crate::hooks::entry::entry;
use crate::hooks::{early_heap, sample};
use crate::os::{errno, sys};
use crate::unwind::walk::WalkStart;

const PAGE: usize = sys::PAGE as usize;
/// glibc's smallest alignment of memalign: twice the size of a word.
pub(crate) const MIN_ALIGN: usize = 16;

/// The stack and frame pointers of the program's call.
type Registers = (*const u64, u64);

/// Allocates an aligned block. `entry` is the PC of the exported function.
#[inline(always)]
fn aligned(alignment: usize, size: usize, entry: u64, at: Registers) -> *mut c_void {
    if sample::passes(size) {
        return allocator::aligned(alignment, size);
    }
    aligned_sampled(alignment, size, entry, at)
}

#[inline(never)]
fn aligned_sampled(alignment: usize, size: usize, entry: u64, (sp, bp): Registers) -> *mut c_void {
    if early_heap::is_active() {
        return early_heap::allocate(alignment, size);
    }
    let ptr = allocator::aligned(alignment, size);
    // SAFETY: the exported function passed its own registers.
    let here = unsafe { WalkStart::caller(sp, bp) };
    sample::on_allocation(entry, ptr, size, Fit::ALIGNED, here);
    ptr
}

/// Allocates as glibc's memalign does. An alignment that is no power of two is rounded up to one,
/// and an alignment beyond half the address space is EINVAL.
#[inline(always)]
fn memalign_as_glibc(alignment: usize, size: usize, entry: u64, at: Registers) -> *mut c_void {
    if alignment > usize::MAX / 2 + 1 {
        errno::set(libc::EINVAL);
        return std::ptr::null_mut();
    }
    let ptr = aligned(
        alignment.max(MIN_ALIGN).next_power_of_two(),
        size,
        entry,
        at,
    );
    if ptr.is_null() {
        return errno::out_of_memory();
    }
    ptr
}

/// Returns true if the libc in use refuses this alignment in aligned_alloc. musl refuses all but
/// powers of two and 0, in memalign, too.
#[cfg(target_env = "musl")]
fn libc_refuses(alignment: usize) -> bool {
    alignment & alignment.wrapping_neg() != alignment
}

/// Returns true if the libc in use refuses this alignment in aligned_alloc. glibc has refused all
/// but powers of two from 2.38 on.
#[cfg(target_env = "gnu")]
#[inline]
fn libc_refuses(alignment: usize) -> bool {
    !alignment.is_power_of_two() && glibc_refuses_it()
}

#[cfg(target_env = "gnu")]
#[cold]
#[inline(never)]
fn glibc_refuses_it() -> bool {
    if early_heap::is_active() {
        return false; // in an IFUNC resolver: libc cannot be reached from here yet
    }
    // SAFETY: libc's own text, like `2.36`, which lives as long as libc does.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let Some(minor) = version.to_bytes().strip_prefix(b"2.") else {
        return true; // newer than every 2.x
    };
    let digits = minor.iter().take_while(|byte| byte.is_ascii_digit());
    let ten_and = |n: u32, digit: &u8| n.saturating_mul(10).saturating_add((digit - b'0').into());
    digits.fold(0, ten_and) >= 38
}

with_caller! {
    /// Allocates an aligned block into `*out`. Returns 0, EINVAL (not a power of two, or not a
    /// multiple of a word) or ENOMEM. On failure `*out` is unchanged; errno is preserved as far as
    /// [`allocator::aligned`] says.
    #[unsafe(no_mangle)]
    posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int
        => posix_memalign_called_from
}

unsafe extern "C-unwind" fn posix_memalign_called_from(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
    sp: *const u64,
    bp: u64,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let entry = entry!(posix_memalign);
    let ptr = aligned(alignment.max(MIN_ALIGN), size, entry, (sp, bp));
    if ptr.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { *out = ptr };
    0
}

with_caller! {
    /// Allocates an aligned block as the glibc in use does. Old versions round an alignment that is
    /// no power of two up; for new versions it is EINVAL.
    #[unsafe(no_mangle)]
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void => aligned_alloc_called_from
}

extern "C-unwind" fn aligned_alloc_called_from(
    alignment: usize,
    size: usize,
    sp: *const u64,
    bp: u64,
) -> *mut c_void {
    if libc_refuses(alignment) {
        errno::set(libc::EINVAL);
        return std::ptr::null_mut();
    }
    memalign_as_glibc(alignment, size, entry!(aligned_alloc), (sp, bp))
}

with_caller! {
    /// Allocates an aligned block. Null with ENOMEM or EINVAL.
    #[unsafe(no_mangle)]
    memalign(alignment: usize, size: usize) -> *mut c_void => memalign_called_from
}

extern "C-unwind" fn memalign_called_from(
    alignment: usize,
    size: usize,
    sp: *const u64,
    bp: u64,
) -> *mut c_void {
    if cfg!(target_env = "musl") && libc_refuses(alignment) {
        errno::set(libc::EINVAL);
        return std::ptr::null_mut();
    }
    memalign_as_glibc(alignment, size, entry!(memalign), (sp, bp))
}

with_caller! {
    /// Allocates a page-aligned block.
    #[unsafe(no_mangle)]
    valloc(size: usize) -> *mut c_void => valloc_called_from
}

extern "C-unwind" fn valloc_called_from(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
    memalign_as_glibc(PAGE, size, entry!(valloc), (sp, bp))
}

with_caller! {
    /// Allocates a page-aligned block of whole pages. The recorded size is what the program asked
    /// for, before the rounding.
    #[unsafe(no_mangle)]
    pvalloc(size: usize) -> *mut c_void => pvalloc_called_from
}

extern "C-unwind" fn pvalloc_called_from(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
    let sampled = !sample::passes(size);
    if sampled && early_heap::is_active() {
        return early_heap::allocate(PAGE, size);
    }
    let ptr = match size.checked_next_multiple_of(PAGE) {
        Some(rounded) => allocator::aligned(PAGE, rounded),
        None => std::ptr::null_mut(),
    };
    if sampled {
        // SAFETY: pvalloc passed its own registers.
        let here = unsafe { WalkStart::caller(sp, bp) };
        sample::on_allocation(entry!(pvalloc), ptr, size, Fit::ALIGNED, here);
    }
    if ptr.is_null() {
        return errno::out_of_memory();
    }
    ptr
}
