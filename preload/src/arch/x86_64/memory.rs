//! Memory instructions: a prefetch, and a copy that calls no function.

use std::arch::asm;

/// Prefetches the cache line at `place` for writing. Returns without waiting for the line.
#[inline(always)]
pub(crate) fn prefetch_to_write(place: *const u8) {
    // SAFETY: a hint, which changes nothing and never faults for any address. A processor without
    // the instruction executes it as a no-op.
    unsafe { asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly)) };
}

/// Copies `len` bytes by one instruction. A call of memcpy goes through the GOT, which may not be
/// relocated yet.
///
/// # Safety
/// Both blocks have `len` bytes and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_inline(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
