//! Backoff: how a hook waits for another thread that holds something for a short time.
//!
//! First it yields its processor, and then it sleeps for short times. If many threads only yielded,
//! they would keep the thread that they wait for from running.

use crate::os::{clock, sys};

/// Number of yields before the first sleep.
const OFFERS: u32 = 20;
/// Length of each sleep.
const SLEEP_NS: u64 = 50_000;

/// Limit for work that takes another thread microseconds. It allows for a wait for a processor that
/// ten other threads want.
pub(crate) const SHORT_NS: u64 = 100_000_000;

/// One wait with a limit.
pub(crate) struct Backoff {
    limit_ns: u64,
    offers: u32,
    /// Time at which the first sleep began; 0 before it.
    since_ns: u64,
}

impl Backoff {
    /// Returns a wait that ends after `limit_ns` of sleep.
    pub(crate) fn with_limit(limit_ns: u64) -> Backoff {
        Backoff {
            limit_ns,
            offers: 0,
            since_ns: 0,
        }
    }

    /// Lets other threads run for a moment. Returns false, without a pause, if the limit has
    /// passed.
    pub(crate) fn pause(&mut self) -> bool {
        if self.offers < OFFERS {
            self.offers += 1;
            sys::yield_now();
            return true;
        }
        let now = clock::now_ns();
        if self.since_ns == 0 {
            self.since_ns = now;
        }
        let is_within = now.saturating_sub(self.since_ns) <= self.limit_ns;
        if is_within {
            sys::sleep_ns(SLEEP_NS);
        }
        is_within
    }

    /// Restarts the limit, because the other thread has made progress.
    pub(crate) fn restart(&mut self) {
        self.since_ns = 0;
    }
}
