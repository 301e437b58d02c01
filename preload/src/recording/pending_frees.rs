//! Frees before there is a session.
//!
//! Only a forked child has any: of blocks that it inherited. One that only frees never begins a session, and leaves no file; one
//! that does must not lose them (Law 4).

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::os::clock::Ticks;

/// Newest first.
static KEPT: AtomicPtr<EarlyFree> = AtomicPtr::new(std::ptr::null_mut());

/// The end of an inherited block.
pub(crate) struct EarlyFree {
    pub(crate) at: Ticks,
    pub(crate) id: u64,
    older: *mut EarlyFree,
}

/// Keeps one until there is a session.
#[cold]
pub(crate) fn keep(at: Ticks, id: u64) {
    let free = Box::into_raw(Box::new(EarlyFree {
        at,
        id,
        older: KEPT.load(Ordering::Relaxed),
    }));
    loop {
        // SAFETY: made above, and not yet in the list.
        let older = unsafe { (*free).older };
        match KEPT.compare_exchange_weak(older, free, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            // SAFETY: as above.
            Err(now) => unsafe { (*free).older = now },
        }
    }
}

/// Whether there are any.
pub(crate) fn are_kept() -> bool {
    !KEPT.load(Ordering::Acquire).is_null()
}

/// Takes all of them, oldest first.
pub(crate) fn take() -> impl Iterator<Item = EarlyFree> {
    let mut all = Vec::new();
    let mut next = KEPT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    while !next.is_null() {
        // SAFETY: made by `keep`; the swap made the list ours.
        let free = *unsafe { Box::from_raw(next) };
        next = free.older;
        all.push(free);
    }
    all.into_iter().rev()
}
