//! Credential adoption: a thread that changes its ids first makes the writer take on its rights.
//!
//! Not here: the reason for it (set*id). Nothing here takes a lock or memory: POSIX allows
//! these functions in signal handlers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::os::credentials::Rights;
use crate::os::{clock, sys};
use crate::recording::request_word::{self, FINISH, RIGHTS};
use crate::recording::session::Session;
use crate::state::thread::{self, RunningCode};

/// The writer's ids and bits, as [`Rights::to_words`] has them. Its capabilities can be queried.
static KNOWN: [AtomicU64; 4] = [const { AtomicU64::new(u64::MAX) }; 4];

pub(crate) fn set_known(rights: Rights) {
    for (slot, word) in KNOWN.iter().zip(rights.to_words()) {
        slot.store(word, Ordering::SeqCst);
    }
}

pub(crate) fn is_known(rights: Rights) -> bool {
    let mut words = KNOWN.iter().zip(rights.to_words());
    words.all(|(slot, word)| slot.load(Ordering::SeqCst) == word)
}

/// Notes the writer's rights. Called by the writer when it starts and when its rights have changed.
pub(crate) fn note_own() {
    if let Ok(mine) = Rights::of_this_thread() {
        set_known(mine);
    }
}

/// How long a thread waits for the writer, which may be in the middle of a large dump, or wait for
/// a disk. If the writer does not adopt the rights, libc may end the process.
const TIMEOUT_NS: u64 = 10_000_000_000;
/// How long a signal handler waits that interrupted a hook. The writer may be waiting for that
/// hook.
const TIMEOUT_INSIDE_NS: u64 = 100_000_000;
/// The time between two checks if the writer has ended.
const POLL_NS: u64 = 100_000_000;

/// 1 while [`WANTED`] belongs to a request: from before it is made until it is withdrawn or served.
static CLAIM: AtomicU32 = AtomicU32::new(0);
/// The rights that the writer is to adopt.
static WANTED: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];

/// Takes the claim, or waits for it until the deadline. Returns false if another thread still has
/// it.
fn claim(deadline_ns: u64, is_over: impl Fn() -> bool) -> bool {
    while CLAIM.swap(1, Ordering::SeqCst) != 0 {
        let now = clock::now_ns();
        if now >= deadline_ns || is_over() {
            return false;
        }
        sys::futex_wait(&CLAIM, 1, Some((deadline_ns - now).min(POLL_NS)));
    }
    true
}

fn free_claim() {
    CLAIM.store(0, Ordering::SeqCst);
    sys::futex_wake(&CLAIM);
}

/// Makes the writer adopt this thread's rights, which are `mine`, and waits for it.
pub(crate) fn request(session: &Session, mine: Rights) {
    let timeout = match thread::current().running_code.get() {
        RunningCode::Program => TIMEOUT_NS,
        _ => TIMEOUT_INSIDE_NS,
    };
    let deadline = clock::now_ns() + timeout;
    let is_over = || request_word::is_asked(FINISH) || session.finished.load(Ordering::SeqCst) != 0;
    if !claim(deadline, is_over) {
        return;
    }
    for (slot, word) in WANTED.iter().zip(mine.to_words()) {
        slot.store(word, Ordering::Relaxed);
    }
    if !RIGHTS.ask(deadline, POLL_NS, is_over) {
        // Withdrawn. Otherwise the writer frees the claim when it has read the rights.
        free_claim();
    }
}

/// Adopts the rights of a thread that asks. For the writer.
pub(crate) fn adopt_if_asked() {
    if !RIGHTS.take() {
        return;
    }
    let words = std::array::from_fn(|n| WANTED[n].load(Ordering::Relaxed));
    // If the kernel refuses, the program's call goes on as without us.
    let _ = Rights::from_words(words).apply();
    note_own();
    free_claim();
    RIGHTS.tell_served();
}

/// Frees the claim in a forked child.
pub(crate) fn after_fork() {
    CLAIM.store(0, Ordering::SeqCst);
}
