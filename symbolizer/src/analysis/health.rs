//! Health: whether the samples stand for as many bytes as the threads counted.
//!
//! Beside the samples, the log holds how many bytes threads requested up to their last samples
//! (`recording/byte_count.rs` in the library). Both sums are of the same events, so they must
//! agree: exactly if everything is recorded, within their errors if sampled. A lost record, a wrong
//! draw or a wrong weight shows as a difference.
//!
//! A thread's bytes after its last sample are not in the count. Let `p` be the probability with
//! which a block of `s` bytes is sampled. The block is uncounted if neither it nor a later block is
//! sampled. It is the last sample if it is sampled and no later block is. The first case is `(1 -
//! p) / p` times as frequent as the second. So `s (1 - p) / p`, what the last sample stands for
//! beyond itself, has the mean of the uncounted bytes. (That is about an interval for a small
//! block, and nothing for a large block or one that is recorded for certain.) With it added, the
//! last samples drop out of the difference. The samples before them are independent of which ones
//! are last, so the difference has their variance.
//!
//! This holds if no probability depends on earlier samples. With a budget, probabilities do depend
//! on them, a little.

use heapprof_format::{Counter, EndReason, MemoryField};

use crate::model::profile::Profile;
use crate::model::run::Ending;

/// Standard errors within which the sums agree: by chance they do not about once in a thousand
/// runs.
const ERRORS: f64 = 3.3;

/// Samples of an interval each that are added to the variance, since few samples do not tell their
/// own: where there are none, several intervals may have passed. With 9, a Poisson number of any
/// mean is more than 3.3 errors off once in 800 tries at most.
const FEW: f64 = 9.0;

/// Bytes that are allowed beside: what libc allocates for us inside our own calls (a thread, a
/// buffer), and what there was no memory for.
const ALLOWED: f64 = 65536.0;

/// Intervals of memory in use of which a sample comes, but for once in nine million runs.
const CERTAIN: f64 = 16.0;

/// Returns the bytes that the allocator had in use at the end of a log without any sample, if they
/// are so many that samples must have come. Blocks of a forked process may be its parent's.
pub fn unsampled_bytes(profile: &Profile) -> Option<u64> {
    let run = &profile.run;
    let ended = matches!(
        run.ending,
        Ending::Said(EndReason::Exit | EndReason::Exec | EndReason::Detached)
    );
    let is_whole = ended && run.span.is_none() && profile.parts.is_empty() && run.forked_from == 0;
    let counters = &profile.account.counters;
    let has_samples = !profile.rows.is_empty()
        || (counters.iter()).any(|&(counter, n)| counter == Counter::SampledAllocs && n > 0);
    if !is_whole || has_samples || profile.stopped_ns() > 0 {
        return None;
    }
    let (_, longest) = run.intervals()?;
    let memory = profile.memory?;
    let blocks = memory
        .get(MemoryField::HeapSmall)?
        .saturating_add(memory.get(MemoryField::HeapLarge)?);
    let in_use = blocks.saturating_sub(memory.get(MemoryField::HeapCached)?);
    (in_use as f64 > (longest as f64 * CERTAIN).max(ALLOWED)).then_some(in_use)
}

/// The comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Health {
    /// Bytes that the samples stand for, and how far the sums may be apart.
    pub samples: f64,
    /// See `samples`.
    pub tolerance: f64,
    /// Bytes that threads counted, and those that they are expected to have requested since.
    pub counted: f64,
}

impl Health {
    /// Returns the comparison for a whole log; `None` if it has no count, or no samples.
    pub fn of(profile: &Profile) -> Option<Health> {
        let counted = profile.counted?;
        if profile.run.span.is_some() || counted.samples.is_empty() {
            return None;
        }
        let (_, longest) = profile.run.intervals()?;
        let few = match longest {
            0 | 1 => 0.0,
            longest => longest as f64 * FEW.sqrt(),
        };
        let since_last = counted.last.bytes_f64() - counted.last_bytes as f64;
        let unknown = counted.unknown.bytes_f64() - counted.unknown.samples as f64;
        let before_last = counted.samples.without(&counted.last);
        let error = before_last
            .bytes_error()
            .hypot(counted.unknown.bytes_error())
            .hypot(few);
        Some(Health {
            samples: counted.samples.bytes_f64(),
            tolerance: ERRORS * error + ALLOWED,
            counted: counted.bytes as f64 + since_last + unknown,
        })
    }

    /// Returns true if the sums agree.
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
    use crate::analysis::merge::merged;
    use crate::model::run::Run;
    use crate::read::fold::Fold;
    use crate::read::fold::last_samples::LastSamples;
    use heapprof_core::{Regime, Sampler, counted_bytes};
    use heapprof_format::{Alloc, Event, MemoryReading, Record, Start};

    const MIB: u64 = 1 << 20;

    /// A process that is recorded, and its threads' count.
    struct Process {
        fold: Fold,
        samples: u64,
        counted: u64,
        threads: u64,
    }

    impl Process {
        fn sampled_every(interval: u64) -> Process {
            let mut fold = Fold::new();
            fold.record(Record::Start(Start {
                interval,
                ..Start::default()
            }));
            Process {
                fold,
                samples: 0,
                counted: 0,
                threads: 0,
            }
        }

        /// A block of a thread is sampled, behind `before` bytes that were not.
        fn sample(&mut self, thread: u32, before: u64, (size, slack): (u64, u64), interval: u64) {
            self.samples += 1;
            self.fold.event(Event::Alloc(Alloc {
                time_ns: 0,
                thread,
                id: self.samples,
                size,
                slack,
                stack: 0,
                interval,
            }));
            self.counted += before + counted_bytes(size);
            self.threads = self.threads.max(u64::from(thread) + 1);
        }

        fn profile(mut self) -> Profile {
            let values = vec![
                (Counter::CountedBytes, self.counted),
                (Counter::CountedThreads, self.threads),
            ];
            let time_ns = 0;
            self.fold.record(Record::Counters { time_ns, values });
            self.fold.finish()
        }

        fn health(self) -> Health {
            Health::of(&self.profile()).expect("samples, and a count")
        }
    }

    /// The log of a process that ends with so many small blocks in use, and the bytes that have no
    /// sample.
    fn unsampled(interval: u64, in_use: u64, reason: EndReason, samples: u64) -> Option<u64> {
        let mut process = Process::sampled_every(interval);
        for _ in 0..samples {
            process.sample(0, 0, (interval, 0), interval);
        }
        let mut memory = MemoryReading::at(1);
        memory.set(MemoryField::HeapSmall, in_use + 5000);
        memory.set(MemoryField::HeapLarge, 0);
        memory.set(MemoryField::HeapCached, 5000);
        process.fold.record(Record::Memory(Box::new(memory)));
        let values = vec![(Counter::SampledAllocs, samples)];
        process.fold.record(Record::Counters { time_ns: 1, values });
        process.fold.record(Record::End { time_ns: 2, reason });
        let profile = process.fold.finish();
        let bytes = unsampled_bytes(&profile);
        let said = |words: &String| words.contains("no sample");
        assert_eq!(profile.lacks().iter().any(said), bytes.is_some());
        assert!(bytes.is_none() || !profile.is_complete());
        bytes
    }

    #[test]
    fn memory_in_use_without_a_sample_is_missing() {
        let exit = EndReason::Exit;
        assert_eq!(unsampled(MIB, 17 * MIB, exit, 0), Some(17 * MIB));
        assert_eq!(unsampled(1, MIB, exit, 0), Some(MIB));
        // By chance there is none, or libc allocates for us.
        assert_eq!(unsampled(MIB, 15 * MIB, exit, 0), None);
        assert_eq!(unsampled(1, 60_000, exit, 0), None);
        // There are samples, or the end tells why there are none.
        assert_eq!(unsampled(MIB, 17 * MIB, exit, 1), None);
        assert_eq!(unsampled(MIB, 17 * MIB, EndReason::GaveUp, 0), None);
    }

    #[test]
    fn exact_sums_must_be_equal_but_for_what_is_allowed() {
        let at = |difference: i64| {
            let mut process = Process::sampled_every(1);
            for thread in 0..3 {
                process.sample(thread, 0, (33 * MIB, 0), 1);
            }
            process.counted = process.counted.strict_add_signed(difference);
            process.health().agrees()
        };
        assert!(at(0) && at(60_000) && !at(70_000) && !at(-70_000));
    }

    /// The last sample was as large as many intervals: behind it nothing is expected.
    #[test]
    fn threads_of_one_large_block_agree() {
        let of = |gap| {
            let mut process = Process::sampled_every(MIB / 2);
            for thread in 0..64 {
                process.sample(thread, 1000, (4 * MIB, 4096), MIB / 2);
            }
            process.counted += gap;
            process.health()
        };
        assert!(of(0).agrees(), "{:?}", of(0));
        assert!(!of(32 * MIB).agrees(), "{:?}", of(32 * MIB));
    }

    #[test]
    fn blocks_recorded_for_their_size_agree() {
        let mut process = Process::sampled_every(MIB / 2);
        for thread in 0..64 {
            process.sample(thread, 1000, (MIB, 0), 1);
        }
        process.sample(64, MIB / 2, (1000, 0), MIB / 2);
        let health = process.health();
        assert!(health.agrees(), "{health:?}");
    }

    /// An interval is that of its log.
    #[test]
    fn logs_of_several_intervals_agree_together() {
        let mut exact = Process::sampled_every(1);
        for thread in 0..100 {
            exact.sample(thread, 0, (MIB, 0), 1);
        }
        let mut sampled = Process::sampled_every(MIB);
        for _ in 0..20 {
            sampled.sample(0, MIB, (1000, 0), MIB);
        }
        let logs = [exact, sampled].map(|process| ("a.heaplog".into(), process.profile()));
        let health = Health::of(&merged(logs.into())).unwrap();
        assert!(health.agrees(), "{health:?}");
        assert!(
            health.counted > 100e6 && health.counted < 150e6,
            "{health:?}"
        );
    }

    /// A log that rotated lacks the last samples of threads that are gone: an interval for each.
    #[test]
    fn threads_from_before_the_log_count_as_of_small_blocks() {
        let mut process = Process::sampled_every(MIB);
        process.sample(0, MIB, (1000, 0), MIB);
        for thread in 1..200 {
            process.sample(thread, MIB / 100, (1000, 0), MIB);
        }
        let of_all = process.profile().counted.expect("a count");
        let later = LastSamples::default().counted(
            &[
                (Counter::CountedBytes, of_all.bytes),
                (Counter::CountedThreads, 200),
            ],
            of_all.samples,
            MIB,
        );
        let health = |counted| {
            let run = Run {
                interval: Some(MIB),
                ..Run::default()
            };
            let profile = Profile {
                run,
                counted,
                ..Profile::default()
            };
            Health::of(&profile).expect("samples")
        };
        let (known, unknown) = (health(Some(of_all)), health(later));
        assert!(known.agrees() && unknown.agrees(), "{known:?} {unknown:?}");
        assert!((known.counted / unknown.counted - 1.0).abs() < 0.001);
        assert!(unknown.tolerance > known.tolerance);
    }

    /// Uncounted bytes of threads with small and large blocks, some recorded for their size, from
    /// three allocations to hundreds for each thread. 2,000 processes of 12 threads.
    #[test]
    fn the_sums_differ_by_nothing_on_average_and_as_often_as_stated() {
        const INTERVAL: u64 = 256 << 10;
        const RUNS: u32 = 2000;
        let sizes = [300_000, 8000, 100, 40_000, 3 << 20, 1000, 100_000, 16];
        let (mut sum, mut squares, mut claimed, mut alarms) = (0.0, 0.0, 0.0, 0);
        for run in 0..RUNS {
            let record_over = if run % 2 == 0 { 0 } else { MIB };
            let regime = Regime {
                interval: INTERVAL,
                record_over,
            };
            let mut process = Process::sampled_every(INTERVAL);
            for thread in 0..12u32 {
                let mut sampler = Sampler::default();
                sampler.start_under(u64::from(run * 12 + thread) << 32 | 77, regime);
                let mut before = 0;
                for block in 0..3 + thread * thread {
                    // The threads are at different places of the same pattern.
                    let size = sizes[(block + thread) as usize % sizes.len()];
                    let slack = size / 5;
                    if sampler.passes(size as usize) {
                        before += size;
                        continue;
                    }
                    match sampler.decide(size as usize, regime) {
                        Some(interval) => {
                            process.sample(thread, before, (size, slack), interval);
                            before = 0;
                        }
                        None => before += size,
                    }
                    sampler.draw_under(regime);
                }
            }
            let profile = process.profile();
            let counted = profile.counted.expect("a count");
            let health = Health::of(&profile).expect("samples");
            let difference = health.samples - health.counted;
            sum += difference;
            squares += difference * difference;
            claimed += counted.samples.without(&counted.last).bytes_error().powi(2);
            alarms += u32::from(!health.agrees());
        }
        let n = f64::from(RUNS);
        let error = (squares / n / n).sqrt();
        // Beyond 5 standard errors once in 1.7 million.
        assert!((sum / n).abs() < 5.0 * error, "{} of {error}", sum / n);
        // A variance from 2,000 runs has an error of 3 % or a little more: 5 of those.
        let ratio = claimed / squares;
        assert!((0.84..1.16).contains(&ratio), "{ratio}");
        // Two are expected at most; more than ten come once in 100,000.
        assert!(alarms <= 10, "{alarms}");
    }
}
