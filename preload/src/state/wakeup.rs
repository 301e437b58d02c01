//! The writer's wake word: the futex word that the writer sleeps on.
//!
//! The word lies on the page that `heapprof ctl` can map, so hooks and other processes wake the
//! writer in the same way.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use heapprof_format::WRITER_AWAKE;

use crate::os::sys;

/// The state of the writer while it is awake. Any other value means that it sleeps.
pub(crate) const AWAKE: u32 = WRITER_AWAKE;

/// The word of the session in force; null: there is no writer to wake.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// At the start of a session: stores the word that its writer sleeps on.
pub(crate) fn install(word: &'static AtomicU32) {
    WORD.store(std::ptr::from_ref(word).cast_mut(), Ordering::Release);
}

/// In a forked child: removes the word, because the parent's writer does not run here.
pub(crate) fn after_fork() {
    WORD.store(std::ptr::null_mut(), Ordering::Release);
}

/// Wakes the writer, if there is one and it sleeps. It takes two atomic instructions and a system
/// call, so signal handlers may call it.
#[cold]
pub(crate) fn ring() {
    // SAFETY: null, or a word that is never unmapped, because its page is not.
    if let Some(word) = unsafe { WORD.load(Ordering::Acquire).as_ref() } {
        wake(word);
    }
}

/// Wakes the writer that sleeps on this word.
#[cold]
pub(crate) fn wake(word: &AtomicU32) {
    if word.swap(AWAKE, Ordering::SeqCst) != AWAKE {
        sys::futex_wake_shared(word);
    }
}
