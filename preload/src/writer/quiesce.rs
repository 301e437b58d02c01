//! The hold: the writer stands still while the process forks, so that its memory is whole in the child.
//!
//! ```text
//!          forking thread            writer                 forking thread, in the parent
//!  Free ───────────────────> Asked ─────────────> Held ─────────────────────────────────> Free
//!                              └── nobody came in time: Free, and the fork goes on without
//! ```
//!
//! The child of a fork has a copy of the ledger, but may use it only if the writer was not in the middle of
//! changing it (Law 7). So whoever forks asks the writer first to take in what is queued and to stop, and
//! waits for that, usually some tens of microseconds, at most [`PATIENCE_NS`]. If the writer is too
//! busy, or another thread is forking, the fork goes on without, and the child's dumps say what they lack.
//! Nobody is asked where no account is kept from the start (`HEAPPROFILE`, `HEAPPROF_MAX_LOG`): the reader of logs needs none of this.
//!
//! The writer waits [`WRITER_PATIENCE_NS`] at most, and after that never stops again. The child trusts a hold
//! only if it is younger than half of that.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::os::{clock, sys};
use crate::recording::session::Session;

/// A fork waits for the writer at most that long.
const PATIENCE_NS: u64 = 100_000_000;
/// The writer waits for a fork at most that long. Copying the page tables of a terabyte takes a second or two.
const WRITER_PATIENCE_NS: u64 = 20_000_000_000;

const FREE: u32 = 0;
const ASKED: u32 = 1;
const HELD: u32 = 2;
/// The writer waited in vain once: no more of this.
const BROKEN: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(FREE);

/// In a thread about to fork: has the writer stop. True: it stands still until [`release`].
pub(crate) fn ask(session: &Session) -> bool {
    let deadline = clock::now_ns() + PATIENCE_NS;
    while let Err(now) = STATE.compare_exchange(FREE, ASKED, Ordering::SeqCst, Ordering::SeqCst) {
        if now == BROKEN || !wait_until(now, deadline) {
            return false;
        }
    }
    session.wake();
    while STATE.load(Ordering::SeqCst) == ASKED {
        if !wait_until(ASKED, deadline) {
            // If this fails, it has come after all.
            let withdrawn = STATE.compare_exchange(ASKED, FREE, Ordering::SeqCst, Ordering::SeqCst);
            return withdrawn.is_err();
        }
    }
    true
}

/// Waits for the state to be another, or for a moment. False: the time is over.
fn wait_until(state: u32, deadline_ns: u64) -> bool {
    let now = clock::now_ns();
    if now >= deadline_ns {
        return false;
    }
    sys::futex_wait(&STATE, state, Some(deadline_ns - now));
    true
}

/// In the parent, after its fork: the writer goes on.
pub(crate) fn release() {
    let _ = STATE.compare_exchange(HELD, FREE, Ordering::SeqCst, Ordering::SeqCst);
    sys::futex_wake(&STATE);
}

/// In the child: whether a hold that began then (0: there was none) was still in force when the copy was made. Free again.
pub(crate) fn held_until_now(since_ns: u64) -> bool {
    STATE.store(FREE, Ordering::SeqCst);
    since_ns > 0 && clock::now_ns().saturating_sub(since_ns) < WRITER_PATIENCE_NS / 2
}

/// For the writer: whether a fork waits for it to stop.
pub(crate) fn is_asked() -> bool {
    STATE.load(Ordering::SeqCst) == ASKED
}

/// For the writer, when it has taken in what there was and is about to touch nothing more: stands still until
/// the fork is made.
pub(crate) fn stand_still() {
    if STATE
        .compare_exchange(ASKED, HELD, Ordering::SeqCst, Ordering::SeqCst)
        .is_err()
    {
        return; // withdrawn
    }
    sys::futex_wake(&STATE);
    let deadline = clock::now_ns() + WRITER_PATIENCE_NS;
    while STATE.load(Ordering::SeqCst) == HELD {
        if !wait_until(HELD, deadline) {
            let _ = STATE.compare_exchange(HELD, BROKEN, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}
