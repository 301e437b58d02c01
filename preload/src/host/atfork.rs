//! `pthread_atfork`: whose handlers are called when a process forks, and in which order.
//!
//! libc calls the handlers in their order, those before the fork in reverse. Ours (`host/fork.rs`) must come between
//! jemalloc's, which take and give back its locks, and all others, which may allocate:
//!
//! ```text
//!  before:      the program's ── ours ── jemalloc's
//!  afterwards:  jemalloc's ── ours ── the program's
//! ```
//!
//! A library may register its own before anything has allocated, or before our constructor. So what registers them is
//! exported, and sees to it that ours and jemalloc's are there. That is another function in each libc.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::allocator;
use crate::os::libc_trampolines;

#[cfg(target_env = "gnu")]
#[path = "atfork/glibc.rs"]
mod over;
#[cfg(target_env = "musl")]
#[path = "atfork/musl.rs"]
mod over;

/// A handler, or null.
type Handler = *mut c_void;

/// Whether our handlers are registered.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// libc's own function, once it is found: with jemalloc's first allocation, at boot at the latest.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// At boot, or when somebody else registers handlers before.
pub(crate) fn register_ours() {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        over::register_ours();
    }
}

/// Before anybody else's are registered.
fn register_ours_and_jemallocs() {
    // Its first allocation has jemalloc register its handlers.
    // SAFETY: a block that nobody else has.
    unsafe { allocator::free(allocator::malloc(1)) };
    register_ours();
}

/// libc's own function of that name; null: it has none.
fn real(name: &CStr) -> *mut c_void {
    let mut real = REAL.load(Ordering::Acquire);
    if real.is_null() {
        real = libc_trampolines::in_libc(name).unwrap_or(0) as *mut c_void;
        REAL.store(real, Ordering::Release);
    }
    real
}
