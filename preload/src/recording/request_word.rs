//! Request word: the requests of the program's threads to the writer, one bit for each kind.
//!
//! ```text
//!  thread                                   writer
//!  ask: sets the bit, wakes the writer ───> take: clears the bit
//!       waits for `served`  <────────────── tell_served
//!       └── on timeout it clears the bit itself (withdraws), if the writer has not taken it
//! ```
//!
//! The writer goes to sleep (on the wake word, `state/wakeup.rs`) only if this word is 0. So no
//! kind of request can be forgotten.
//!
//! Not here: requests with answers in text (`requests`), and the work for a request (`writer`).

use std::sync::atomic::{AtomicU32, Ordering};

use crate::os::sys;
use crate::state::wakeup;

/// The process ends: the writer finishes. Never taken.
pub(crate) const FINISH: u32 = 1;
/// The recording ends and the writer's thread with it, while the program goes on. Never taken.
pub(crate) const END: u32 = 1 << 1;
/// The writer is to be without a thread for a while ([`THREAD_STOP`]).
const STOP_THREAD: u32 = 1 << 2;
/// The writer takes on the rights of the thread that asks ([`RIGHTS`]).
const TAKE_RIGHTS: u32 = 1 << 3;
/// The process may become another program: everything so far is written ([`EXEC_FLUSH`]).
const FLUSH_FOR_EXEC: u32 = 1 << 4;
/// The process may end past our exit: everything so far is written ([`END_FLUSH`]).
const FLUSH_FOR_END: u32 = 1 << 8;
/// A dump, asked for by a signal.
pub(crate) const DUMP: u32 = 1 << 5;
/// A question waits in the session's queue.
pub(crate) const QUEUED_REQUEST: u32 = 1 << 6;
/// A seat is missing, or a walker needs room for more rules.
pub(crate) const SEATS: u32 = 1 << 7;

static ASKED: AtomicU32 = AtomicU32::new(0);

/// The writer's thread ends for a while. Served when the thread has handed the writer back.
pub(crate) static THREAD_STOP: Rendezvous = Rendezvous::new(STOP_THREAD);
/// The writer takes on a thread's rights.
pub(crate) static RIGHTS: Rendezvous = Rendezvous::new(TAKE_RIGHTS);
/// The writer writes everything so far, because the process may become another program.
pub(crate) static EXEC_FLUSH: Rendezvous = Rendezvous::new(FLUSH_FOR_EXEC);
/// The writer writes everything so far, because the process may end past our exit functions.
pub(crate) static END_FLUSH: Rendezvous = Rendezvous::new(FLUSH_FOR_END);

/// Sets these bits and wakes the writer. It needs two atomics and a system call, so a signal
/// handler may call it.
pub(crate) fn post(bits: u32) {
    // Sequentially consistent, like the writer's store of its state before its last look at this
    // word: either the writer sees the bits, or the wake finds the writer asleep.
    ASKED.fetch_or(bits, Ordering::SeqCst);
    wakeup::ring();
}

/// Returns true if one of these bits is set.
pub(crate) fn is_asked(bits: u32) -> bool {
    ASKED.load(Ordering::SeqCst) & bits != 0
}

/// Returns true if any bit is set.
pub(crate) fn is_any_asked() -> bool {
    is_asked(u32::MAX)
}

/// Clears these bits. Returns true if one of them was set.
pub(crate) fn take(bits: u32) -> bool {
    is_asked(bits) && ASKED.fetch_and(!bits, Ordering::SeqCst) & bits != 0
}

/// Clears all requests in a forked child, whose threads have made none.
pub(crate) fn after_fork() {
    ASKED.store(0, Ordering::SeqCst);
}

/// A kind of request for which the thread waits.
pub(crate) struct Rendezvous {
    bit: u32,
    /// How many requests the writer has served.
    served: AtomicU32,
}

impl Rendezvous {
    const fn new(bit: u32) -> Rendezvous {
        Rendezvous {
            bit,
            served: AtomicU32::new(0),
        }
    }

    /// Asks the writer, and waits until it has served the request, until `deadline_ns` of the
    /// monotonic clock, or until `is_over`, called every `look_ns`. Returns false if the request
    /// was withdrawn. A request that the writer has taken cannot be withdrawn: it counts as served
    /// even if the wait ends.
    pub(crate) fn ask(
        &self,
        deadline_ns: u64,
        look_ns: u64,
        is_over: impl FnMut() -> bool,
    ) -> bool {
        let before = self.served.load(Ordering::SeqCst);
        post(self.bit);
        sys::wait_for_change_or(&self.served, before, deadline_ns, look_ns, is_over)
            || !take(self.bit)
    }

    /// Returns true if a thread asks. For the writer.
    pub(crate) fn is_asked(&self) -> bool {
        is_asked(self.bit)
    }

    /// Takes the request. Returns false if there is none, or it was withdrawn. For the writer.
    pub(crate) fn take(&self) -> bool {
        take(self.bit)
    }

    /// Announces that the taken request is served. For the writer.
    pub(crate) fn tell_served(&self) {
        self.served.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&self.served);
    }
}
