//! Budget: an interval that follows the load, so that the samples a second stay below a number.
//!
//! Model: time is cut into windows of a second. A window with too many samples raises the interval,
//! before its end if that is clear. A window with few samples lowers the interval again, step by
//! step, down to the requested one. Estimates stay unbiased. An interval depends only on past
//! samples; each block is sampled with the probability of the interval then in force, and the
//! interval is stored with it.
//!
//! It is a budget and no hard limit: the allocation rate is known only from the samples. A sudden
//! load costs some more samples until it is noticed.

/// A window.
const WINDOW_NS: u64 = 1_000_000_000;
/// So many samples tell a rate to within a quarter: enough to act before the window is over.
const ENOUGH: u64 = 16;
/// Largest step up. A rate that rests on few samples may be far off, and small intervals do not
/// follow the rate: blocks larger than the interval are sampled whatever it is.
const MOST_UP: f64 = 16.0;
/// Largest step down in a window: a pause between two bursts should not cost the second one's
/// budget.
const MOST_DOWN: f64 = 0.125;
/// Below that share of the budget the interval is lowered; between it and the budget, left alone.
const LOW: f64 = 0.75;
/// Beyond that no interval makes sense.
const MOST: f64 = (1u64 << 40) as f64;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Samples a second that are wanted at most.
    per_second: u64,
    /// Bytes: what was asked for, and the least there may be.
    asked: u64,
    /// Bytes: what is in force.
    interval: u64,
    /// When the window began.
    since_ns: u64,
    /// Samples in it that were taken under `interval`.
    samples: u64,
}

impl Budget {
    /// At most `per_second` samples a second, and no interval below `asked` bytes.
    pub fn new(per_second: u64, asked: u64, now_ns: u64) -> Budget {
        Budget {
            per_second: per_second.max(1),
            asked: asked.max(1),
            interval: asked.max(1),
            since_ns: now_ns,
            samples: 0,
        }
    }

    /// Takes another requested interval, in bytes. The knowledge of the load stays.
    pub fn ask(&mut self, asked: u64, now_ns: u64) {
        let asked = asked.max(1);
        if asked != self.asked {
            // A raised interval stays raised: a request does not lower the load.
            let raised = self.interval > self.asked;
            self.asked = asked;
            let interval = if raised { self.interval } else { 0 };
            self.go(interval.max(asked), now_ns);
        }
    }

    /// The interval that should be in force, in bytes.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// A sample was taken under that interval. One that was drawn under another one says nothing
    /// about this.
    #[inline]
    pub fn sampled(&mut self, interval: u64) {
        self.samples += u64::from(interval == self.interval);
    }

    /// To be asked now and then, and at [`due_ns`](Self::due_ns): the new interval in bytes, if it
    /// changes.
    pub fn adapt(&mut self, now_ns: u64) -> Option<u64> {
        let elapsed = now_ns.saturating_sub(self.since_ns);
        let over = elapsed >= WINDOW_NS;
        if elapsed == 0 || !over && self.samples < ENOUGH.max(self.per_second / 4) {
            return None;
        }
        let seconds = elapsed as f64 / WINDOW_NS as f64;
        let used = self.samples as f64 / seconds / self.per_second as f64;
        let before = self.interval;
        let wanted = if used > 1.0 {
            // Before the window is over, only what is no accident.
            if !over && used < 1.5 {
                return None;
            }
            before as f64 * used.min(MOST_UP)
        } else if !over {
            return None;
        } else if used < LOW {
            before as f64 * used.max(libm::pow(MOST_DOWN, seconds))
        } else {
            before as f64
        };
        let interval = (libm::ceil(wanted.min(MOST)) as u64).max(self.asked);
        self.go(interval, now_ns);
        (interval != before).then_some(interval)
    }

    /// Nothing is sampled now, so nothing is learnt about the load: to be said instead of
    /// [`adapt`](Self::adapt).
    pub fn rest(&mut self, now_ns: u64) {
        self.go(self.interval, now_ns);
    }

    /// When to ask again although no sample came: the interval is higher than it was asked to be,
    /// so there may be none for long. `None`: there is no need.
    pub fn due_ns(&self) -> Option<u64> {
        (self.interval > self.asked).then(|| self.since_ns.saturating_add(WINDOW_NS))
    }

    fn go(&mut self, interval: u64, now_ns: u64) {
        self.interval = interval;
        self.since_ns = now_ns;
        self.samples = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A program that allocates `rate` bytes a second for so many seconds, looked at every 20 ms.
    /// Returns the samples of the last second.
    fn run(budget: &mut Budget, now_ns: &mut u64, rate: f64, seconds: u64) -> u64 {
        let mut due = 0.0;
        let mut last_second = 0;
        for step in 0..seconds * 50 {
            due += rate / 50.0 / budget.interval() as f64;
            while due >= 1.0 {
                due -= 1.0;
                budget.sampled(budget.interval());
                last_second += u64::from(step >= (seconds - 1) * 50);
            }
            *now_ns += 20 * MS;
            budget.adapt(*now_ns);
        }
        last_second
    }

    #[test]
    fn a_load_is_kept_within_the_budget_and_gone_it_costs_nothing() {
        let mut now = 5;
        let mut budget = Budget::new(100, 4096, now);
        // 10 samples a second: nothing to do.
        run(&mut budget, &mut now, 40_960.0, 5);
        assert_eq!((budget.interval(), budget.due_ns()), (4096, None));
        // 250,000 a second.
        let last = run(&mut budget, &mut now, 1e9, 5);
        assert!((75..=100).contains(&last), "{last}");
        assert!(budget.interval() >= 10_000_000);
        // None at all: it is asked for as long as it has to come down, and no longer.
        let mut wakes = 0;
        while let Some(due) = budget.due_ns() {
            budget.adapt(due);
            wakes += 1;
            assert!(wakes < 10);
        }
        assert_eq!(budget.interval(), 4096);
    }

    #[test]
    fn a_burst_costs_little_more_than_the_budget() {
        let mut now = 5;
        let mut budget = Budget::new(1000, 4096, now);
        let mut samples = 0;
        let mut due = 0.0;
        for _ in 0..1000 {
            // 1 GB/s, looked at every millisecond.
            due += 1e6 / budget.interval() as f64;
            while due >= 1.0 {
                due -= 1.0;
                samples += 1;
                budget.sampled(budget.interval());
            }
            now += MS;
            budget.adapt(now);
        }
        assert!(samples < 2500, "{samples}");
    }

    #[test]
    fn a_rest_is_no_sign_of_a_small_load() {
        let mut now = 5;
        let mut budget = Budget::new(100, 4096, now);
        run(&mut budget, &mut now, 1e9, 5);
        let raised = budget.interval();
        budget.rest(now + 3600 * WINDOW_NS);
        assert_eq!(budget.adapt(now + 3600 * WINDOW_NS + 20 * MS), None);
        assert_eq!(budget.interval(), raised);
    }

    #[test]
    fn samples_of_another_interval_do_not_count() {
        let mut budget = Budget::new(10, 4096, 0);
        let many = if cfg!(miri) { 2_000 } else { 100_000 };
        (0..many).for_each(|_| budget.sampled(1));
        assert_eq!(budget.adapt(WINDOW_NS), None);
    }

    #[test]
    fn another_question_keeps_what_the_load_demands() {
        let mut now = 5;
        let mut budget = Budget::new(100, 4096, now);
        run(&mut budget, &mut now, 1e9, 5);
        let raised = budget.interval();
        budget.ask(1, now);
        assert_eq!(budget.interval(), raised);
        budget.ask(1 << 30, now);
        assert_eq!((budget.interval(), budget.due_ns()), (1 << 30, None));
        budget.ask(4096, now);
        assert_eq!(budget.interval(), 4096);
    }

    /// Takes so many samples, and asks.
    fn after(budget: &mut Budget, samples: u64, now_ns: u64) -> Option<u64> {
        (0..samples).for_each(|_| budget.sampled(budget.interval()));
        budget.adapt(now_ns)
    }

    #[test]
    fn before_a_second_is_over_only_what_is_clear_counts() {
        let mut budget = Budget::new(100, 4096, 0);
        // Never at once: a rate needs a time.
        assert_eq!(after(&mut budget, 24, 0), None);
        // 240 a second, but a quarter of the budget is not used up.
        assert_eq!(budget.adapt(100 * MS), None);
        assert_eq!(after(&mut budget, 1, 100 * MS), Some(10_240));
        // From here on it counts anew.
        assert_eq!(after(&mut budget, 24, 200 * MS), None);
        assert_eq!(after(&mut budget, 1, 200 * MS), Some(25_600));

        // 149 a second may be an accident for a while, 150 are none.
        let mut budget = Budget::new(100, 4096, 0);
        assert_eq!(after(&mut budget, 29, 200 * MS), None);
        assert_eq!(after(&mut budget, 1, 200 * MS), Some(6144));
        let mut budget = Budget::new(100, 4096, 0);
        assert_eq!(after(&mut budget, 120, 999 * MS), None);
        assert_eq!(after(&mut budget, 1, WINDOW_NS), Some(4957));
        // With a small budget, sixteen samples are enough to tell.
        let mut budget = Budget::new(10, 4096, 0);
        assert_eq!(after(&mut budget, 15, 500 * MS), None);
        assert_eq!(after(&mut budget, 1, 500 * MS), Some(13_108));
    }

    #[test]
    fn a_raised_interval_comes_down_by_what_was_left_of_the_budget() {
        let raised = || {
            let mut budget = Budget::new(100, 4096, 0);
            assert_eq!(after(&mut budget, 1600, WINDOW_NS), Some(65_536));
            budget
        };
        // Not before the second is over, and not when three quarters are used.
        assert_eq!(after(&mut raised(), 30, WINDOW_NS + 999 * MS), None);
        assert_eq!(after(&mut raised(), 75, 2 * WINDOW_NS), None);
        assert_eq!(after(&mut raised(), 50, 2 * WINDOW_NS), Some(32_768));
        // Down to an eighth in a second, and as often as there are seconds.
        assert_eq!(after(&mut raised(), 1, 2 * WINDOW_NS), Some(8192));
        let mut long = Budget::new(100, 1, 0);
        assert_eq!(after(&mut long, 1600, WINDOW_NS), Some(16));
        assert_eq!(after(&mut long, 1600, 2 * WINDOW_NS), Some(256));
        assert_eq!(after(&mut long, 0, 4 * WINDOW_NS), Some(4));
        // A second in which it stayed is over.
        let mut stays = raised();
        assert_eq!(after(&mut stays, 80, 2 * WINDOW_NS), None);
        assert_eq!(after(&mut stays, 50, 3 * WINDOW_NS), Some(32_768));
    }

    #[test]
    fn no_budget_and_no_interval_are_the_least_there_are_and_none_is_beyond_reason() {
        let mut budget = Budget::new(0, 0, 0);
        assert_eq!((budget.interval(), budget.due_ns()), (1, None));
        // Two samples in a second, where one is wanted.
        assert_eq!(after(&mut budget, 2, WINDOW_NS), Some(2));
        budget.ask(4096, WINDOW_NS);
        budget.ask(0, WINDOW_NS);
        assert_eq!((budget.interval(), budget.due_ns()), (1, None));
        let mut budget = Budget::new(1, 1 << 39, 0);
        assert_eq!(after(&mut budget, 1600, WINDOW_NS), Some(1 << 40));
    }

    #[test]
    fn the_same_question_again_forgets_no_sample() {
        let mut budget = Budget::new(100, 4096, 0);
        assert_eq!(after(&mut budget, 24, 50 * MS), None);
        budget.ask(4096, 60 * MS);
        assert_eq!(after(&mut budget, 1, 100 * MS), Some(10_240));
    }
}
