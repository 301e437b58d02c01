//! CPU share: when costly work may be done again, so that it takes at most a share of a processor.

/// The work that is done once takes at most one part of so many of the time until it is done again.
const PARTS: u64 = 2000;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuShare {
    next_ns: u64,
}

impl CpuShare {
    /// Returns true if the work may be done now.
    #[must_use]
    pub fn allows(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// Returns when the work may be done next.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Notes that the work ran from `start_ns` to `end_ns`. Time without a processor counts as
    /// well, so the share errs to the low side.
    pub fn ran(&mut self, start_ns: u64, end_ns: u64) {
        let took_ns = end_ns.saturating_sub(start_ns);
        self.next_ns = end_ns.saturating_add(took_ns.saturating_mul(PARTS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_five_milliseconds_is_done_every_ten_seconds() {
        const MS: u64 = 1_000_000;
        let mut share = CpuShare::default();
        assert!(share.allows(0));
        let (mut now_ns, mut ran_ns) = (0, 0);
        while now_ns < 1_000_000 * MS {
            if share.allows(now_ns) {
                share.ran(now_ns, now_ns + 5 * MS);
                ran_ns += 5 * MS;
            }
            now_ns += 1_000 * MS;
        }
        assert!(ran_ns <= now_ns / 1_900, "{ran_ns} of {now_ns}");
        assert!(ran_ns >= now_ns / 2_300, "{ran_ns} of {now_ns}");
    }

    #[test]
    fn a_clock_that_goes_back_costs_nothing() {
        let mut share = CpuShare::default();
        share.ran(10, 5);
        assert_eq!(share.next_ns(), 5);
        share.ran(0, u64::MAX);
        assert_eq!(share.next_ns(), u64::MAX);
    }
}
