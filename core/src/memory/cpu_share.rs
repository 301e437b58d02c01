//! CPU share: when costly work may be done again, so that it takes at most a share of a processor.

/// See the module's text.
#[derive(Debug, Clone, Copy)]
pub struct CpuShare {
    parts: u64,
    next_ns: u64,
}

impl CpuShare {
    /// Returns the share of one part in `parts` of a processor. The work may be done at once.
    #[must_use]
    pub const fn one_in(parts: u64) -> CpuShare {
        CpuShare { parts, next_ns: 0 }
    }

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

    /// Notes that the work took `ran_ns` on a processor, up to now.
    pub fn ran(&mut self, ran_ns: u64, now_ns: u64) {
        self.next_ns = now_ns.saturating_add(ran_ns.saturating_mul(self.parts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_five_milliseconds_is_done_every_ten_seconds() {
        const MS: u64 = 1_000_000;
        let mut share = CpuShare::one_in(2_000);
        assert!(share.allows(0));
        let (mut now_ns, mut ran_ns) = (0, 0);
        while now_ns < 1_000_000 * MS {
            if share.allows(now_ns) {
                share.ran(5 * MS, now_ns + 5 * MS);
                ran_ns += 5 * MS;
            }
            now_ns += 1_000 * MS;
        }
        assert!(ran_ns <= now_ns / 1_900, "{ran_ns} of {now_ns}");
        assert!(ran_ns >= now_ns / 2_300, "{ran_ns} of {now_ns}");
    }

    #[test]
    fn work_without_an_end_is_done_once() {
        let mut share = CpuShare::one_in(2_000);
        share.ran(u64::MAX, 5);
        assert_eq!(share.next_ns(), u64::MAX);
        assert!(!share.allows(u64::MAX - 1));
    }
}
