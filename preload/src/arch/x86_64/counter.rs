//! The time stamp counter.

use std::arch::x86_64::{_mm_lfence, _rdtsc};

/// Reads the counter. Without a barrier, the processor may read it some instructions earlier or
/// later.
#[inline(always)]
pub(crate) fn read() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and the kernel's vDSO executes it to read
    // the clock. A process for which it faults (PR_SET_TSC) has already stopped recording.
    unsafe { _rdtsc() }
}

/// Waits for all earlier instructions, and delays all later ones until they have ended (Intel's
/// manual, volume 2, LFENCE). On AMD's processors the kernel configures this behaviour.
#[inline(always)]
pub(crate) fn barrier() {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _mm_lfence() };
}
