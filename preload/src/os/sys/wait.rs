//! Waits: for a change of a word, for time to pass, and for other threads to run.

use std::sync::atomic::{AtomicU32, Ordering};

use super::syscall;
use crate::os::clock;

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

/// Waits until `word` differs from `value`, until `deadline_ns` of the monotonic clock at most.
/// Returns true if the word differs.
pub(crate) fn wait_for_change(word: &AtomicU32, value: u32, deadline_ns: u64) -> bool {
    wait_for_change_or(word, value, deadline_ns, u64::MAX, || false)
}

/// Waits like [`wait_for_change`], or until `is_over`, called every `look_ns`.
pub(crate) fn wait_for_change_or(
    word: &AtomicU32,
    value: u32,
    deadline_ns: u64,
    look_ns: u64,
    mut is_over: impl FnMut() -> bool,
) -> bool {
    // Acquire: the caller sees what the other thread did before it changed the word.
    while word.load(Ordering::Acquire) == value {
        let now = clock::now_ns();
        if now >= deadline_ns || is_over() {
            return false;
        }
        futex_wait(word, value, Some(look_ns.min(deadline_ns - now)));
    }
    true
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
