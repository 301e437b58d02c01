//! The time stamp counter.

use std::arch::x86_64::{_mm_lfence, _rdtsc};

/// Reads the counter. Without a barrier, the processor may read it some instructions early or late.
#[inline(always)]
pub(crate) fn read() -> u64 {
    // SAFETY: every x86-64 has the instruction, and the kernel's own vDSO executes it for the same
    // question. A process for which it faults (PR_SET_TSC) has stopped recording before.
    unsafe { _rdtsc() }
}

/// Waits for all instructions before it, and has all behind it wait (Intel's manual, volume 2,
/// LFENCE; AMD's processors since their kernels set it so).
#[inline(always)]
pub(crate) fn barrier() {
    // SAFETY: every x86-64 has the instruction.
    unsafe { _mm_lfence() };
}
