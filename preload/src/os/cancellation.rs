//! Asynchronous cancellation: not while a thread is in one of our pieces of code.
//!
//! A thread with `PTHREAD_CANCEL_ASYNCHRONOUS` may be ended between any two instructions. In the middle of a hook
//! that would leave a seat taken for ever, and perhaps a place in the channel of what comes seldom claimed and never filled, at which
//! the writer would wait. So a hook is deferred, and what was asked for meanwhile happens at its
//! end, or at the program's next cancellation point.
//!
//! Hardly any thread is of that type, and libc has no question for it, only an exchange. So at boot we look which bit of the
//! thread's descriptor an exchange changes, and a hook asks that bit.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::arch::registers::descriptor_byte;

unsafe extern "C-unwind" {
    // POSIX.1-2008; the thread may be unwound from here. In glibc an exchange on the thread's own descriptor; no lock, no allocation.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// Cancellation of this thread is deferred while this lives.
pub(crate) struct Deferred(c_int);

impl Deferred {
    #[inline]
    pub(crate) fn begin() -> Deferred {
        if is_known_to_be_deferred() {
            return Deferred(DEFERRED);
        }
        let mut old = DEFERRED;
        // SAFETY: writes one int.
        unsafe { pthread_setcanceltype(DEFERRED, &raw mut old) };
        Deferred(old)
    }
}

impl Drop for Deferred {
    #[inline]
    fn drop(&mut self) {
        if self.0 == ASYNCHRONOUS {
            // SAFETY: reads nothing, writes nothing of ours. The thread may end here: whoever holds a
            // `Deferred` drops it last.
            unsafe { pthread_setcanceltype(ASYNCHRONOUS, std::ptr::null_mut()) };
        }
    }
}

/// How much of the descriptor is looked at. It has had the type in its first 800 bytes, and itself twice as many, since glibc 2.3; musl's is
/// 200 bytes long.
const LOOKED_AT: usize = if cfg!(target_env = "musl") { 192 } else { 1024 };

/// Where the descriptor says that the type is asynchronous: the offset of the byte in the upper 24 bits, and in the lower 8 the bit of
/// that byte. 0: not known.
static PLACE: AtomicU32 = AtomicU32::new(0);

/// Whether this thread's cancellation is deferred as it is. False: it may be.
#[inline(always)]
fn is_known_to_be_deferred() -> bool {
    let place = PLACE.load(Ordering::Relaxed);
    place != 0 && byte_of_descriptor(place as usize >> 8) & place as u8 == 0
}

#[inline(always)]
fn byte_of_descriptor(at: usize) -> u8 {
    // SAFETY: within `LOOKED_AT` of this thread's descriptor: libc, asked for the type, reads there too.
    unsafe { descriptor_byte(at) }
}

/// At boot, in the program's first thread, which nobody knows yet to cancel it: finds out where the type is. What is not
/// found, or not in one bit, is not known.
pub(crate) fn learn() {
    let one = bit_of_the_type();
    let again = bit_of_the_type(); // something else may have changed, too, and not twice
    if one == again {
        PLACE.store(one.unwrap_or(0), Ordering::Relaxed);
    }
}

/// The place of the one bit that is set with the asynchronous type, and clear without.
fn bit_of_the_type() -> Option<u32> {
    let mut old = ASYNCHRONOUS;
    let before = descriptor();
    // SAFETY: writes one int. Nobody cancels this thread before the next exchange: see `learn`.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut old) };
    let with = descriptor();
    // SAFETY: as above; writes nothing of ours.
    unsafe { pthread_setcanceltype(old, std::ptr::null_mut()) };
    if old != DEFERRED || descriptor() != before {
        return None;
    }
    let mut changed = (0..LOOKED_AT).filter(|&at| before[at] != with[at]);
    let (Some(at), None) = (changed.next(), changed.next()) else {
        return None;
    };
    let is_one_bit = (before[at] ^ with[at]).is_power_of_two() && before[at] < with[at];
    is_one_bit.then(|| (at as u32) << 8 | u32::from(before[at] ^ with[at]))
}

fn descriptor() -> [u8; LOOKED_AT] {
    std::array::from_fn(byte_of_descriptor)
}
