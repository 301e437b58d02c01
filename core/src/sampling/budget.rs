//! Budget: an interval that follows the load, so that the samples a second stay below a limit.
//!
//! Model: time is cut into windows of [`WINDOW_NS`]. A window with too many samples raises the
//! interval, as soon as that is clear. A window with few lowers it, step by step, down to the
//! requested interval.
//!
//! Estimates stay unbiased: an interval depends on earlier samples only. Each block is sampled with
//! the probability of the interval in force, which is stored with the sample.
//!
//! A budget is not a hard limit: the load is known only from the samples themselves. A sudden load
//! costs some extra samples before it is noticed.

/// Length of a window.
const WINDOW_NS: u64 = 1_000_000_000;
/// Samples that tell a rate to within a quarter: enough to act before the window ends.
const ENOUGH: u64 = 16;
/// Largest factor of one raise. A rate from few samples may be far off. Small intervals do not
/// follow the rate: blocks larger than the interval are sampled anyway.
const MOST_UP: f64 = 16.0;
/// Largest step down in a window, so that a pause between two bursts does not cost the second one's
/// budget.
const MOST_DOWN: f64 = 0.125;
/// Share of the budget below which the interval is lowered. Between it and the budget, the interval
/// stays.
const LOW: f64 = 0.75;
/// Largest interval.
const MOST: f64 = (1u64 << 40) as f64;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Most samples a second.
    per_second: u64,
    /// Requested interval in bytes, which is the least.
    asked: u64,
    /// Interval in force, in bytes.
    interval: u64,
    /// Time at which the window began.
    since_ns: u64,
    /// Samples in the window that were taken under `interval`.
    samples: u64,
}

impl Budget {
    /// Returns a budget of `per_second` samples a second, with no interval below `asked` bytes.
    pub fn new(per_second: u64, asked: u64, now_ns: u64) -> Budget {
        Budget {
            per_second: per_second.max(1),
            asked: asked.max(1),
            interval: asked.max(1),
            since_ns: now_ns,
            samples: 0,
        }
    }

    /// Sets another requested interval, in bytes. The known load stays known.
    pub fn ask(&mut self, asked: u64, now_ns: u64) {
        let asked = asked.max(1);
        if asked != self.asked {
            // A raised interval stays raised: the request does not change the load.
            let raised = self.interval > self.asked;
            self.asked = asked;
            let interval = if raised { self.interval } else { 0 };
            self.go(interval.max(asked), now_ns);
        }
    }

    /// Returns the interval that should be in force, in bytes.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// Counts a sample that was taken under that interval. A sample under another interval tells
    /// nothing about the one in force.
    #[inline]
    pub fn sampled(&mut self, interval: u64) {
        self.samples += u64::from(interval == self.interval);
    }

    /// Returns the new interval in bytes, if it changes. Call it now and then, and at
    /// [`due_ns`](Self::due_ns).
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
            // Before the window ends, only a clear excess counts.
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

    /// Begins a new window. Call it in place of [`adapt`](Self::adapt) while nothing is sampled,
    /// because the load is unknown then.
    pub fn rest(&mut self, now_ns: u64) {
        self.go(self.interval, now_ns);
    }

    /// Returns the time of the next call of [`adapt`](Self::adapt) even without a sample, or
    /// `None`. A raised interval may bring no sample for long.
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

    /// Runs a program that allocates `rate` bytes a second, with a call every 20 ms. Returns the
    /// samples of the last second.
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
        // Without samples the interval comes down, and then `due_ns` ends.
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
            // 1 GB/s, with a call every millisecond.
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

    /// Counts that many samples and adapts.
    fn after(budget: &mut Budget, samples: u64, now_ns: u64) -> Option<u64> {
        (0..samples).for_each(|_| budget.sampled(budget.interval()));
        budget.adapt(now_ns)
    }

    #[test]
    fn before_a_second_is_over_only_what_is_clear_counts() {
        let mut budget = Budget::new(100, 4096, 0);
        // A rate needs some time.
        assert_eq!(after(&mut budget, 24, 0), None);
        // 240 a second, but a quarter of the budget is left.
        assert_eq!(budget.adapt(100 * MS), None);
        assert_eq!(after(&mut budget, 1, 100 * MS), Some(10_240));
        // The count restarts here.
        assert_eq!(after(&mut budget, 24, 200 * MS), None);
        assert_eq!(after(&mut budget, 1, 200 * MS), Some(25_600));

        // 149 a second may be chance for a while, 150 are not.
        let mut budget = Budget::new(100, 4096, 0);
        assert_eq!(after(&mut budget, 29, 200 * MS), None);
        assert_eq!(after(&mut budget, 1, 200 * MS), Some(6144));
        let mut budget = Budget::new(100, 4096, 0);
        assert_eq!(after(&mut budget, 120, 999 * MS), None);
        assert_eq!(after(&mut budget, 1, WINDOW_NS), Some(4957));
        // With a small budget, sixteen samples suffice.
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
        // Nothing happens before the second is over, or when three quarters are used.
        assert_eq!(after(&mut raised(), 30, WINDOW_NS + 999 * MS), None);
        assert_eq!(after(&mut raised(), 75, 2 * WINDOW_NS), None);
        assert_eq!(after(&mut raised(), 50, 2 * WINDOW_NS), Some(32_768));
        // Down to an eighth in a second, and once for each second.
        assert_eq!(after(&mut raised(), 1, 2 * WINDOW_NS), Some(8192));
        let mut long = Budget::new(100, 1, 0);
        assert_eq!(after(&mut long, 1600, WINDOW_NS), Some(16));
        assert_eq!(after(&mut long, 1600, 2 * WINDOW_NS), Some(256));
        assert_eq!(after(&mut long, 0, 4 * WINDOW_NS), Some(4));
        // A second without a change is over.
        let mut stays = raised();
        assert_eq!(after(&mut stays, 80, 2 * WINDOW_NS), None);
        assert_eq!(after(&mut stays, 50, 3 * WINDOW_NS), Some(32_768));
    }

    #[test]
    fn no_budget_and_no_interval_are_the_least_there_are_and_none_is_beyond_reason() {
        let mut budget = Budget::new(0, 0, 0);
        assert_eq!((budget.interval(), budget.due_ns()), (1, None));
        // Two samples in a second, of one allowed.
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
