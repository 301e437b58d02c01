//! The rendezvous of a thread that changes its ids with the writer, which takes on the same rights first.
//!
//! Not here: why (`host/setid.rs`). Nothing here takes a lock or memory: POSIX allows these functions in
//! signal handlers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::os::credentials::Rights;
use crate::os::{clock, sys};
use crate::recording::request_word::{self, FINISH, RIGHTS};
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

/// 1 while [`WANTED`] belongs to a request: from before it is asked until it is withdrawn or served.
static CLAIM: AtomicU32 = AtomicU32::new(0);
/// The rights that are to be taken.
static WANTED: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];

/// Takes the claim, or waits for it until the deadline. Returns false if it is still another's.
fn claim(deadline_ns: u64, is_over: impl Fn() -> bool) -> bool {
    while CLAIM.swap(1, Ordering::SeqCst) != 0 {
        let now = clock::now_ns();
        if now >= deadline_ns || is_over() {
            return false;
        }
        sys::futex_wait(&CLAIM, 1, Some((deadline_ns - now).min(LOOK_NS)));
    }
    true
}

fn free_claim() {
    CLAIM.store(0, Ordering::SeqCst);
    sys::futex_wake(&CLAIM);
}

/// Has the writer take on this thread's rights, which are these, and waits for that.
pub(crate) fn ask(session: &Session, mine: Rights) {
    let patience = match thread::current().inside.get() {
        Inside::No => PATIENCE_NS,
        _ => PATIENCE_INSIDE_NS,
    };
    let deadline = clock::now_ns() + patience;
    let is_over = || request_word::is_asked(FINISH) || session.finished.load(Ordering::SeqCst) != 0;
    if !claim(deadline, is_over) {
        return;
    }
    for (place, word) in WANTED.iter().zip(mine.to_words()) {
        place.store(word, Ordering::Relaxed);
    }
    if !RIGHTS.ask(deadline, LOOK_NS, is_over) {
        free_claim(); // withdrawn; otherwise the writer frees it when it has read what is wanted
    }
}

/// For the writer: takes on what is wanted, if a thread asks.
pub(crate) fn serve() {
    if !RIGHTS.take() {
        return;
    }
    let words = std::array::from_fn(|n| WANTED[n].load(Ordering::Relaxed));
    // If the kernel refuses, the program's call goes on as without us.
    let _ = Rights::from_words(words).take();
    remember();
    free_claim();
    RIGHTS.tell_served();
}

/// In a forked child.
pub(crate) fn after_fork() {
    CLAIM.store(0, Ordering::SeqCst);
}
