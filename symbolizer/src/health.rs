//! Health: do the samples stand for what the allocator itself handed out?
//!
//! The log holds, beside the samples, jemalloc's own count of usable bytes that threads allocated up to their last
//! samples (`preload/src/health.rs`). Both sums are of the same events in the log, so they must agree: exactly
//! when everything is recorded, within their errors when sampled. A gap in the hooks, a lost record or a
//! wrong weight shows as a difference.
//!
//! A thread's bytes after its last sample are not in the count. On average they are one mean interval, for each thread
//! that was sampled: that is added, and its error (a standard deviation of one interval each) with it.

use heapprof_core::Estimate;
use heapprof_format::Counter;

use crate::profile::Profile;

/// Standard errors within which the sums agree: by chance they do not once in a thousand runs.
const ERRORS: f64 = 3.3;

/// Bytes that are allowed beside: what libc allocates for us inside our own calls (a thread, a buffer).
const ALLOWED: f64 = 65536.0;

/// Both sums at the same event of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Usable bytes that the samples stand for.
    pub usable: Estimate,
    /// Those that the allocator counted.
    pub bytes: u64,
    /// Threads in its count.
    pub threads: u64,
}

impl Counted {
    /// Of counters that were read when the samples stood for that.
    pub(crate) fn at(values: &[(Counter, u64)], usable: Estimate) -> Option<Counted> {
        let value = |counter| values.iter().find(|(c, _)| *c == counter).map(|(_, n)| *n);
        Some(Counted {
            usable,
            bytes: value(Counter::CountedBytes)?,
            threads: value(Counter::CountedThreads)?,
        })
    }
}

/// The comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Health {
    /// Usable bytes that the samples stand for, and how far the sums may be apart.
    pub samples: f64,
    /// See `samples`.
    pub tolerance: f64,
    /// What the allocator counted, and what threads are expected to have allocated since.
    pub counted: f64,
}

impl Health {
    /// Of a whole log. `None` when it has no count, or no samples.
    pub fn of(profile: &Profile) -> Option<Health> {
        let counted = profile.counted?;
        if profile.run.span.is_some() || counted.usable.is_empty() {
            return None;
        }
        let (_, interval) = profile.run.intervals_seen?;
        let usable = counted.usable.bytes_f64();
        // The interval is one of requested bytes.
        let requested = profile.totals().allocated.bytes_f64();
        let wider = if requested > 0.0 {
            (usable / requested).clamp(1.0, 16.0)
        } else {
            1.0
        };
        let tail = match interval {
            0 | 1 => 0.0,
            interval => interval as f64 * wider,
        };
        let threads = counted.threads as f64;
        let error = counted.usable.bytes_error().hypot(tail * threads.sqrt());
        Some(Health {
            samples: usable,
            tolerance: ERRORS * error + ALLOWED,
            counted: counted.bytes as f64 + tail * threads,
        })
    }

    /// Whether the sums agree.
    pub fn agrees(&self) -> bool {
        (self.samples - self.counted).abs() <= self.tolerance
    }

    /// By how much the samples stand for more (or less) than was counted, as a part of it.
    pub fn difference(&self) -> f64 {
        (self.samples - self.counted) / self.counted.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Run;
    use heapprof_core::{Rng, Weight};

    fn profile(counted: Counted, interval: u64) -> Profile {
        Profile {
            run: Run {
                intervals_seen: Some((interval, interval)),
                ..Run::default()
            },
            counted: Some(counted),
            ..Profile::default()
        }
    }

    #[test]
    fn exact_sums_must_be_equal_but_for_what_is_allowed() {
        let at = |bytes| {
            let mut usable = Estimate::default();
            usable.add(&Weight::of(100 << 20, 1));
            let counted = Counted {
                usable,
                bytes,
                threads: 3,
            };
            Health::of(&profile(counted, 1)).unwrap().agrees()
        };
        assert!(at(100 << 20) && at((100 << 20) + 60_000));
        assert!(!at((100 << 20) + 70_000) && !at((100 << 20) - 70_000));
    }

    /// Threads that allocate little and much, most of them never sampled: with one interval for each that was, the
    /// count is right on average. 20,000 processes of 20 threads.
    #[test]
    fn an_interval_for_each_sampled_thread_makes_good_what_came_after_its_last_sample() {
        const INTERVAL: f64 = 4096.0;
        let mut rng = Rng::new(7);
        let mut uniform = move || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let (mut sum, mut squares) = (0.0, 0.0);
        let runs = 20_000;
        for _ in 0..runs {
            let mut difference = 0.0;
            for thread in 0..20u32 {
                let total = f64::from(thread * thread * 50);
                let (mut at, mut last) = (0.0, None);
                loop {
                    at -= INTERVAL * (1.0 - uniform()).ln();
                    if at > total {
                        break;
                    }
                    last = Some(at);
                }
                difference += last.map_or(0.0, |last| last + INTERVAL) - total;
            }
            sum += difference;
            squares += difference * difference;
        }
        let n = f64::from(runs);
        let error = (squares / n / n).sqrt();
        // Beyond 5 standard errors once in 1.7 million.
        assert!((sum / n).abs() < 5.0 * error, "{} of {error}", sum / n);
    }
}
