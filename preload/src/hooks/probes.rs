//! Probes: the samples as OpenTelemetry's memory probes report them to a tracer.
//!
//! A tracer sees what the log gets, at the same time: a recorded sample with its weight, and the
//! end of a sampled block. A realloc is an end and then a sample. Without a listener a probe costs
//! the load of its semaphore.
//!
//! Samples from before the listener began are unknown to it. So it may see ends without a sample.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use heapprof_core::Weight;

use crate::arch::probes;
use crate::recording::sampled_blocks::address_of;

/// The part of a byte that was not reported yet, in units of 2^-32. A probe reports whole bytes, so
/// the rest is carried to the next report: the sum of all reports is the sum of all weights. With
/// half a byte at the beginning, that sum is rounded to the nearest.
static UNREPORTED: AtomicU32 = AtomicU32::new(1 << 31);

/// Reports a recorded sample: a block of `size` bytes at `ptr`, chosen under a mean interval of
/// `interval` bytes.
#[inline(always)]
pub(crate) fn sampled(ptr: *mut c_void, size: usize, interval: u64) {
    // Relaxed: a listener may miss the first events.
    if probes::ALLOC_LISTENERS.load(Ordering::Relaxed) != 0 {
        tell_sampled(ptr, size, interval);
    }
}

#[cold]
#[inline(never)]
fn tell_sampled(ptr: *mut c_void, size: usize, interval: u64) {
    let (whole, rest) = Weight::of(size as u64, interval).bytes_fixed().split();
    // Relaxed: the word is all that threads share, and the addition is one step.
    let before = UNREPORTED.fetch_add(rest, Ordering::Relaxed);
    let carried = before.checked_add(rest).is_none();
    let weighted = whole.saturating_add(u64::from(carried));
    probes::alloc(address_of(ptr as u64), size as u64, weighted);
}

/// Reports the end of the sampled block at `address`.
#[inline(always)]
pub(crate) fn ended(address: u64) {
    if probes::FREE_LISTENERS.load(Ordering::Relaxed) != 0 {
        tell_ended(address);
    }
}

#[cold]
#[inline(never)]
fn tell_ended(address: u64) {
    probes::free(address_of(address));
}
