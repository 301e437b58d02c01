//! Memory instructions: a prefetch, and a copy that calls no function.

use std::arch::asm;

/// Asks for the cache line at `place`, to write to it soon. Returns at once, wherever the line is.
#[inline(always)]
pub(crate) fn prefetch_to_write(place: *const u8) {
    // SAFETY: a hint, which changes nothing and never faults, wherever it leads. A processor that does
    // not know the instruction takes it for no operation.
    unsafe { asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly)) };
}

/// Copies `len` bytes by one instruction: a call of memcpy goes through the GOT, which may not be
/// relocated yet.
///
/// # Safety
/// Both blocks have so many bytes and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_without_a_call(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
