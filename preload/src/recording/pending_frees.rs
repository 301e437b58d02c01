//! Pending frees: frees that happen before there is a session.
//!
//! Only a forked child has pending frees: those of blocks that it inherited. A child that only
//! frees begins no session and leaves no file. A child that begins a session must not lose them
//! (Law 4).

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::os::clock::Ticks;

/// The list, newest first.
static PENDING: AtomicPtr<PendingFree> = AtomicPtr::new(std::ptr::null_mut());

/// The end of an inherited block.
pub(crate) struct PendingFree {
    pub(crate) at: Ticks,
    pub(crate) id: u64,
    older: *mut PendingFree,
}

/// Adds a free to the list.
#[cold]
pub(crate) fn push(at: Ticks, id: u64) {
    let free = Box::into_raw(Box::new(PendingFree {
        at,
        id,
        older: PENDING.load(Ordering::Relaxed),
    }));
    loop {
        // SAFETY: made above, and not yet in the list.
        let older = unsafe { (*free).older };
        match PENDING.compare_exchange_weak(older, free, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            // SAFETY: as above.
            Err(now) => unsafe { (*free).older = now },
        }
    }
}

/// Returns true if there are pending frees.
pub(crate) fn exist() -> bool {
    !PENDING.load(Ordering::Acquire).is_null()
}

/// Takes all pending frees, oldest first.
pub(crate) fn take_all() -> impl Iterator<Item = PendingFree> {
    let mut all = Vec::new();
    let mut next = PENDING.swap(std::ptr::null_mut(), Ordering::AcqRel);
    while !next.is_null() {
        // SAFETY: made by `push`; the swap made the list ours.
        let free = *unsafe { Box::from_raw(next) };
        next = free.older;
        all.push(free);
    }
    all.into_iter().rev()
}
