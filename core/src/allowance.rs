//! Allowance: how long to wait for another thread, counted by what the machine gives that thread.
//!
//! Glossary: allowance.
//!
//! A busy machine breaks a deadline by the clock: the other thread may not have run at all by then.
//! So when the patience is over by the clock, the waiting thread looks at the other one repeatedly.
//! It continues to wait while the other thread is kept from a processor. The other thread gets as
//! much time on a processor as the patience is long.
//!
//! ```text
//!  patience        looks, each a fraction of the patience after the one before
//! ├───────────────┼──┼──┼──┼──┼──┼─ …             runnable without a processor: its time counts
//!                 ├──┤                             running, or blocked: the clock counts
//! ```
//!
//! Not here: how a thread is looked at, and what follows when the allowance is used up.

/// The whole wait is at most so many times the patience: a thread with less than a hundredth of a
/// processor is given up.
const MOST_TIMES: u64 = 100;
/// The clock may go on for this part of the patience while the thread is not kept from a processor.
const SPARE_PART: u64 = 8;
/// Looks in a patience.
const LOOKS: u64 = 16;

/// How a thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadProgress {
    /// The time, by the monotonic clock.
    pub now_ns: u64,
    /// Time on a processor so far.
    pub ran_ns: u64,
    /// True if the thread runs or waits for a processor, and for nothing else.
    pub is_runnable: bool,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Allowance {
    patience_ns: u64,
    latest_ns: u64,
    /// Time on a processor that is left.
    left_ns: u64,
    /// Time by the clock that is left while nothing keeps the thread from a processor.
    spare_ns: u64,
    /// True if it was seen to be kept from one.
    was_starved: bool,
    last: Option<ThreadProgress>,
}

impl Allowance {
    /// Begins at that time.
    #[must_use]
    pub fn new(start_ns: u64, patience_ns: u64) -> Allowance {
        Allowance {
            patience_ns,
            latest_ns: start_ns.saturating_add(patience_ns.saturating_mul(MOST_TIMES)),
            left_ns: patience_ns,
            spare_ns: patience_ns / SPARE_PART,
            was_starved: false,
            last: None,
        }
    }

    /// The time between two looks.
    #[must_use]
    pub fn look_ns(&self) -> u64 {
        (self.patience_ns / LOOKS).max(1)
    }

    /// Returns whether to go on waiting, once the patience is over by the clock. `None`: the thread
    /// cannot be looked at.
    pub fn may_continue(&mut self, progress: Option<ThreadProgress>) -> bool {
        let Some(progress) = progress.filter(|it| it.now_ns < self.latest_ns) else {
            return false;
        };
        let Some(last) = self.last.replace(progress) else {
            return progress.is_runnable;
        };
        let passed_ns = progress.now_ns.saturating_sub(last.now_ns);
        let ran_ns = progress.ran_ns.saturating_sub(last.ran_ns);
        // A thread that has a processor to itself runs for all of the time, but for interruptions.
        if progress.is_runnable && ran_ns < passed_ns / 4 * 3 {
            if !self.was_starved {
                // On a busy machine a write may take long, too.
                self.was_starved = true;
                self.spare_ns = self.patience_ns;
            }
            self.left_ns = self.left_ns.saturating_sub(ran_ns);
        } else {
            self.spare_ns = self.spare_ns.saturating_sub(passed_ns);
        }
        self.left_ns > 0 && self.spare_ns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks at a thread every 5 ms after a patience of 80 ms. Returns how long the wait took.
    fn waited_ms(mut at: impl FnMut(u64) -> (u64, bool)) -> u64 {
        let mut allowance = Allowance::new(0, 80 * MS);
        assert_eq!(allowance.look_ns(), 5 * MS);
        let mut now_ms = 80;
        loop {
            let (ran_us, is_runnable) = at(now_ms);
            let progress = ThreadProgress {
                now_ns: now_ms * MS,
                ran_ns: ran_us * 1_000,
                is_runnable,
            };
            if !allowance.may_continue(Some(progress)) {
                return now_ms;
            }
            now_ms += 5;
        }
    }

    #[test]
    fn a_thread_that_is_blocked_gets_nothing_more() {
        assert_eq!(waited_ms(|_| (0, false)), 80);
    }

    #[test]
    fn a_thread_that_runs_all_the_time_gets_little_more() {
        assert_eq!(waited_ms(|now_ms| (now_ms * 1_000, true)), 90);
    }

    #[test]
    fn a_thread_that_is_kept_from_a_processor_gets_its_patience_of_processor_time() {
        // 2.5 % of a processor: 80 ms of it are 3.2 s.
        assert_eq!(waited_ms(|now_ms| (now_ms * 25, true)), 80 + 3_200);
    }

    #[test]
    fn a_thread_without_any_processor_is_given_up_in_the_end() {
        assert_eq!(waited_ms(|_| (0, true)), 8_000);
    }

    #[test]
    fn a_starved_thread_may_block_for_as_long_as_the_patience() {
        let blocks_from_ms = 120;
        let waited = waited_ms(|now_ms| (0, now_ms < blocks_from_ms));
        assert_eq!(waited, blocks_from_ms - 5 + 80);
    }

    #[test]
    fn without_progress_or_patience_there_is_no_more() {
        assert!(!Allowance::new(0, 80 * MS).may_continue(None));
        let progress = ThreadProgress {
            now_ns: 1,
            ran_ns: 0,
            is_runnable: true,
        };
        assert!(!Allowance::new(0, 0).may_continue(Some(progress)));
    }
}
