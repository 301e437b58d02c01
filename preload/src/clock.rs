//! The clock: monotonic nanoseconds.
//!
//! Read through libc's vDSO entry: 20 ns, no system call. A program that replaces `clock_gettime`
//! (libfaketime) changes our times too, which is what its user would expect of a fake time.

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000) + time.tv_nsec as u64
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}
