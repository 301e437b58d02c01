//! pthread_atfork: the order of the handlers that libc calls around a fork.
//!
//! libc calls the handlers in the order of registration, and those before the fork in reverse. Ours
//! must come between jemalloc's, which take and release its locks, and all others, which may
//! allocate:
//!
//! ```text
//!  before:      the program's ── ours ── jemalloc's
//!  afterwards:  jemalloc's ── ours ── the program's
//! ```
//!
//! A library may register handlers before any allocation, or before our constructor. So we export
//! the function that registers handlers, and it registers jemalloc's and ours first. It is another
//! function in each libc.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::allocator;

#[cfg(target_env = "gnu")]
#[path = "atfork/glibc.rs"]
mod platform;
#[cfg(target_env = "musl")]
#[path = "atfork/musl.rs"]
mod platform;

/// A handler, or null.
type Handler = *mut c_void;

/// True if our handlers are registered.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers our handlers, at boot or before the first foreign registration.
pub(crate) fn register_ours() {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        platform::register_ours();
    }
}

/// Registers jemalloc's handlers and ours. Called before another library registers its own.
fn register_ours_and_jemallocs() {
    // In its first allocation jemalloc registers its handlers.
    allocator::initialize();
    register_ours();
}
