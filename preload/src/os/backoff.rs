//! Patience: how a hook waits for another thread that is at something short.
//!
//! First it offers its processor, then it sleeps a moment at a time: threads that only offer theirs, and are many, keep the one
//! that they wait for from running.

use crate::os::{clock, sys};

/// How often the processor is offered first.
const OFFERS: u32 = 20;
/// How long each sleep is then.
const SLEEP_NS: u64 = 50_000;

/// What suffices for anything that takes another thread microseconds, and which may have to wait for a processor that ten others
/// want.
pub(crate) const SHORT_NS: u64 = 100_000_000;

/// One wait, with an end.
pub(crate) struct Patience {
    limit_ns: u64,
    offers: u32,
    /// When the first sleep began; 0: none has.
    since_ns: u64,
}

impl Patience {
    /// One that ends after sleeping for so long.
    pub(crate) fn of(limit_ns: u64) -> Patience {
        Patience {
            limit_ns,
            offers: 0,
            since_ns: 0,
        }
    }

    /// Lets others run for a moment. False, and at once: it has ended.
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
        let goes_on = now.saturating_sub(self.since_ns) <= self.limit_ns;
        if goes_on {
            sys::sleep_ns(SLEEP_NS);
        }
        goes_on
    }

    /// What is waited for got on: the end is as far away as it was at first.
    pub(crate) fn renew(&mut self) {
        self.since_ns = 0;
    }
}
