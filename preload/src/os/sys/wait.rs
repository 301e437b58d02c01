//! Waits: for a change of a word, for time to pass, and for other threads to run.

use std::sync::atomic::AtomicU32;

use super::syscall;

/// Waits until `word` differs from `expected`, until a wake, or for `timeout_ns` (`None`: without a
/// limit).
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    wait(word, operation, expected, timeout_ns);
}

/// Wakes all threads that wait on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    wake(word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
}

/// Waits like [`futex_wait`], on a word that another process may wake.
pub(crate) fn futex_wait_shared(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    wait(word, libc::FUTEX_WAIT, expected, timeout_ns);
}

/// Wakes like [`futex_wake`], and includes threads of other processes.
pub(crate) fn futex_wake_shared(word: &AtomicU32) {
    wake(word, libc::FUTEX_WAKE);
}

fn wait(word: &AtomicU32, operation: i32, expected: u32, timeout_ns: Option<u64>) {
    let time = timeout_ns.map(timespec);
    let time = time.as_ref().map_or(0, |t| std::ptr::from_ref(t) as u64);
    // SAFETY: the word is valid and aligned, and the timespec lives until the call is over.
    let _ = unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as u64,
                operation as u64,
                u64::from(expected),
                time,
                0,
                0,
            ],
        )
    };
}

fn wake(word: &AtomicU32, operation: i32) {
    let all = i32::MAX as u64;
    // SAFETY: the word is valid; the kernel uses only its address.
    let _ = unsafe {
        syscall(
            libc::SYS_futex,
            [word.as_ptr() as u64, operation as u64, all, 0, 0, 0],
        )
    };
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Sleeps, or returns early on a signal.
pub(crate) fn sleep_ns(ns: u64) {
    let time = timespec(ns);
    // SAFETY: reads the timespec, writes nothing.
    let _ = unsafe {
        syscall(
            libc::SYS_nanosleep,
            [std::ptr::from_ref(&time) as u64, 0, 0, 0, 0, 0],
        )
    };
}

/// Yields the processor to another thread.
pub(crate) fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}
