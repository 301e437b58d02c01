//! The writer's doorbell: the word that it sleeps on, and how to ring it.
//!
//! The word lies on the page that another process can reach (`recording/requests.rs`), so that one
//! wake reaches the writer from either side.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use heapprof_format::WRITER_AWAKE;

use crate::os::sys;

/// The state of the writer while it is awake. Each other value means that it sleeps.
pub(crate) const AWAKE: u32 = WRITER_AWAKE;

/// The word of the session in force; null: there is no writer to wake.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// A session begins, whose writer sleeps on that word.
pub(crate) fn install(word: &'static AtomicU32) {
    WORD.store(std::ptr::from_ref(word).cast_mut(), Ordering::Release);
}

/// In a forked child: the parent's writer is not there.
pub(crate) fn after_fork() {
    WORD.store(std::ptr::null_mut(), Ordering::Release);
}

/// Wakes the writer, if there is one and it sleeps. Two atomics and a system call: a signal handler
/// may ring.
#[cold]
pub(crate) fn ring() {
    // SAFETY: null, or a word that is never unmapped (`requests::make_page`).
    if let Some(word) = unsafe { WORD.load(Ordering::Acquire).as_ref() } {
        wake(word);
    }
}

/// Wakes the writer that sleeps on that word.
#[cold]
pub(crate) fn wake(word: &AtomicU32) {
    if word.swap(AWAKE, Ordering::SeqCst) != AWAKE {
        sys::futex_wake_shared(word);
    }
}
