//! Seeds: where each thread's random numbers begin.
//!
//! Model: a process draws one number from the kernel, and its threads' seeds from that, one after another: no two begin alike, nor do a parent's and
//! a child's. A call of the kernel's for each thread would be a hundredth of what a short one costs.

use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_core::Rng;

use crate::sys;

/// What this process draws its seeds from; 0: nothing yet.
static ROOT: AtomicU64 = AtomicU64::new(0);
/// How many it has drawn.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// One that no thread of this process had.
pub(crate) fn next() -> u64 {
    let root = match ROOT.load(Ordering::Relaxed) {
        0 => begin(),
        root => root,
    };
    let number = DRAWN.fetch_add(1, Ordering::Relaxed);
    Rng::nth(root, number)
}

#[cold]
fn begin() -> u64 {
    let root = sys::random_u64() | 1;
    let begun = ROOT.compare_exchange(0, root, Ordering::Relaxed, Ordering::Relaxed);
    begun.map_or_else(|before| before, |_| root)
}

/// In a forked child.
pub(crate) fn after_fork() {
    ROOT.store(0, Ordering::Relaxed);
}
