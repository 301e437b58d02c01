//! The rendezvous of a thread that changes its ids with the writer, which takes on the same rights first.
//!
//! ```text
//!          calling thread                          writer
//!  Free ──> Claimed ── its rights ──> Asked ──> Taking ── the same ──> Free
//!                                      └── it did not come in time: Free, and the call goes on as without us
//! ```
//!
//! Not here: why (`host/setid.rs`). Nothing here takes a lock or memory: POSIX allows these functions in
//! signal handlers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::os::credentials::Rights;
use crate::os::{clock, sys};
use crate::recording::session::Session;
use crate::state::thread::{self, Inside};

/// The writer's ids and bits, as [`Rights::to_words`] has them. Its capabilities can be asked for.
static KNOWN: [AtomicU64; 4] = [const { AtomicU64::new(u64::MAX) }; 4];

pub(crate) fn know(rights: Rights) {
    for (place, word) in KNOWN.iter().zip(rights.to_words()) {
        place.store(word, Ordering::SeqCst);
    }
}

pub(crate) fn is_known(rights: Rights) -> bool {
    let mut words = KNOWN.iter().zip(rights.to_words());
    words.all(|(place, word)| place.load(Ordering::SeqCst) == word)
}

/// For the writer, when it begins and when its rights have changed.
pub(crate) fn remember() {
    if let Ok(mine) = Rights::mine() {
        know(mine);
    }
}

/// How long a thread waits for the writer, which may be in the middle of a large dump, or wait for a disk. Without it, the
/// process might be ended.
const PATIENCE_NS: u64 = 10_000_000_000;
/// In a signal handler that interrupted a hook: what that was in the middle of, the writer may be waiting for.
const PATIENCE_INSIDE_NS: u64 = 100_000_000;
/// Between two looks whether the writer has ended.
const LOOK_NS: u64 = 100_000_000;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const ASKED: u32 = 2;
const TAKING: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(FREE);
/// The rights that are to be taken, from `Asked` to the end of `Taking`.
static WANTED: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];

/// Moves the state, and wakes whoever waits for that.
fn turn(from: u32, to: u32) -> Result<(), u32> {
    let moved = STATE.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    if moved.is_ok() {
        sys::futex_wake(&STATE);
    }
    moved.map(drop)
}

/// Has the writer take on this thread's rights, which are these, and waits for that.
pub(crate) fn ask(session: &Session, mine: Rights) {
    let patience = match thread::current().inside.get() {
        Inside::No => PATIENCE_NS,
        _ => PATIENCE_INSIDE_NS,
    };
    let deadline = clock::now_ns() + patience;
    let wait = |state| {
        let now = clock::now_ns();
        let ended = session.finish.load(Ordering::SeqCst) | session.finished.load(Ordering::SeqCst);
        let over = now >= deadline || ended != 0;
        if !over {
            sys::futex_wait(&STATE, state, Some((deadline - now).min(LOOK_NS)));
        }
        !over
    };
    while let Err(now) = turn(FREE, CLAIMED) {
        if !wait(now) {
            return;
        }
    }
    for (place, word) in WANTED.iter().zip(mine.to_words()) {
        place.store(word, Ordering::Relaxed);
    }
    STATE.store(ASKED, Ordering::SeqCst);
    session.wake();
    loop {
        let now = STATE.load(Ordering::SeqCst);
        // Free; or claimed by another thread since.
        if now < ASKED {
            return;
        }
        if !wait(now) {
            let _ = turn(ASKED, FREE);
            return;
        }
    }
}

/// For the writer: whether a thread waits for it.
pub(crate) fn is_asked() -> bool {
    STATE.load(Ordering::SeqCst) == ASKED
}

/// For the writer: takes on what is wanted.
pub(crate) fn serve() {
    if turn(ASKED, TAKING).is_err() {
        return; // withdrawn
    }
    let words = std::array::from_fn(|n| WANTED[n].load(Ordering::Relaxed));
    // If the kernel refuses, the program's call goes on as without us.
    let _ = Rights::from_words(words).take();
    remember();
    let _ = turn(TAKING, FREE);
}

/// In a forked child.
pub(crate) fn after_fork() {
    STATE.store(FREE, Ordering::SeqCst);
}
