//! Asking for lines of the cache before they are needed.
//!
//! Danger: assembly.

use std::arch::asm;

/// Asks for the line at `place`, to write to it soon. Goes on at once, wherever the line is.
#[inline(always)]
pub(crate) fn to_write(place: *const u8) {
    // SAFETY: a hint, which changes nothing and never faults, wherever it leads. Processors of 64 bits that do not know it take it for no
    // operation.
    unsafe { asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly)) };
}
