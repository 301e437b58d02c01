//! Random bytes.

use super::syscall;

/// Returns eight random bytes from the kernel, or bytes derived from the clock if the kernel has
/// none.
pub(crate) fn random_u64() -> u64 {
    let mut word = 0u64;
    // SAFETY: writes at most eight bytes into `word`. GRND_NONBLOCK: early in boot the call fails
    // at once.
    let answer = unsafe {
        syscall(
            libc::SYS_getrandom,
            [
                std::ptr::from_mut(&mut word) as u64,
                8,
                u64::from(libc::GRND_NONBLOCK),
                0,
                0,
                0,
            ],
        )
    };
    match answer {
        Ok(8) => word,
        _ => crate::os::clock::now_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}
