//! Asynchronous cancellation: deferred while a thread is in this library's code.
//!
//! A thread with `PTHREAD_CANCEL_ASYNCHRONOUS` may end between any two instructions. In the middle
//! of a hook that would leave a seat taken for ever. It could also leave a claimed place of a queue
//! unfilled, at which the writer would wait. So a hook defers cancellation. A cancellation that is
//! requested meanwhile happens at the hook's end, or at the program's next cancellation point.
//!
//! Hardly any thread has this type, and libc offers no query for it, only an exchange. So boot
//! determines which bit of the thread descriptor an exchange changes, and a hook reads that bit.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::arch::registers::descriptor_byte;

unsafe extern "C-unwind" {
    // POSIX.1-2008; the thread may be unwound from here. In glibc this is an exchange on the
    // thread's own descriptor, without a lock or an allocation.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// A region in which cancellation of this thread is deferred.
pub(crate) struct DeferredCancellation(c_int);

impl DeferredCancellation {
    #[inline]
    pub(crate) fn begin() -> DeferredCancellation {
        if is_known_to_be_deferred() {
            return DeferredCancellation(DEFERRED);
        }
        let mut old = DEFERRED;
        // SAFETY: writes one int.
        unsafe { pthread_setcanceltype(DEFERRED, &raw mut old) };
        DeferredCancellation(old)
    }
}

impl Drop for DeferredCancellation {
    #[inline]
    fn drop(&mut self) {
        if self.0 == ASYNCHRONOUS {
            // SAFETY: reads nothing, and writes nothing of ours. The thread may end here; the owner
            // of a `DeferredCancellation` drops it last.
            unsafe { pthread_setcanceltype(ASYNCHRONOUS, std::ptr::null_mut()) };
        }
    }
}

/// Number of the descriptor's bytes that are searched. In glibc the type lies in the first 800
/// bytes of a descriptor twice as long; musl's descriptor is 200 bytes long.
const DESCRIPTOR_BYTES: usize = if cfg!(target_env = "musl") { 192 } else { 1024 };

/// Place of the bit in the descriptor that means "asynchronous". The upper 24 bits have the offset
/// of the byte, the lower 8 bits the mask. 0 means that it is unknown.
static PLACE: AtomicU32 = AtomicU32::new(0);

/// Returns true if this thread's cancellation type is known to be deferred already. False means
/// unknown.
#[inline(always)]
fn is_known_to_be_deferred() -> bool {
    let place = PLACE.load(Ordering::Relaxed);
    place != 0 && byte_of_descriptor(place as usize >> 8) & place as u8 == 0
}

#[inline(always)]
fn byte_of_descriptor(at: usize) -> u8 {
    // SAFETY: within `DESCRIPTOR_BYTES` of this thread's descriptor, where libc's own function
    // reads, too.
    // reads, too.
    unsafe { descriptor_byte(at) }
}

/// At boot, in the program's first thread, which no thread can cancel yet: finds the bit of the
/// type. The place stays unknown if not exactly one bit changes.
pub(crate) fn learn() {
    let one = bit_of_the_type();
    let again = bit_of_the_type(); // another bit may change by chance, but not twice
    if one == again {
        PLACE.store(one.unwrap_or(0), Ordering::Relaxed);
    }
}

/// Returns the place of the one bit that is set with the asynchronous type, and clear without.
fn bit_of_the_type() -> Option<u32> {
    let mut old = ASYNCHRONOUS;
    let before = descriptor();
    // SAFETY: writes one int. No thread cancels this one before the next exchange: see `learn`.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut old) };
    let with = descriptor();
    // SAFETY: the same argument; writes nothing of ours.
    unsafe { pthread_setcanceltype(old, std::ptr::null_mut()) };
    if old != DEFERRED || descriptor() != before {
        return None;
    }
    let mut changed = (0..DESCRIPTOR_BYTES).filter(|&at| before[at] != with[at]);
    let (Some(at), None) = (changed.next(), changed.next()) else {
        return None;
    };
    let is_one_bit = (before[at] ^ with[at]).is_power_of_two() && before[at] < with[at];
    is_one_bit.then(|| (at as u32) << 8 | u32::from(before[at] ^ with[at]))
}

fn descriptor() -> [u8; DESCRIPTOR_BYTES] {
    std::array::from_fn(byte_of_descriptor)
}
