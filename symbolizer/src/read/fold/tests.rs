use std::collections::BTreeMap;

use heapprof_format::Free;
use proptest::prelude::*;

use super::*;
use crate::model::measure::Measure;

/// A step of a run: the time that passes, whether a block comes, its id or that of the one that
/// goes, its stack and its size.
type Step = (u64, bool, u64, u32, u64);

fn event(time_ns: u64, (_, comes, id, stack, size): Step) -> Event {
    match comes {
        true => Event::Alloc(Alloc {
            time_ns,
            thread: stack % 2,
            id,
            stack,
            size,
            slack: size % 16,
            interval: 1 + size % 3 * 512,
        }),
        // Some go with their process.
        false => Event::Free(Free {
            time_ns,
            thread: match id % 4 {
                0 => WITH_ITS_PROCESS,
                _ => 0,
            },
            id,
        }),
    }
}

fn folded(mut fold: Fold, steps: &[Step]) -> Profile {
    let mut time_ns = 0;
    for &step in steps {
        time_ns += step.0;
        fold.event(event(time_ns, step));
    }
    fold.finish()
}

proptest! {
    /// The history remembers blocks in place of the ledger. Ids come again, and unknown ones go.
    #[test]
    fn pasts_change_nothing_else(
        steps in prop::collection::vec((0u64..9000, any::<bool>(), 0u64..12, 0u32..4, 0u64..3000), 0..80),
        before_allocations in prop::option::of(0u64..5),
    ) {
        let temporary = Temporary { within_ns: None, before_allocations };
        let extras = WantedExtras { threads: true, ..WantedExtras::default() };
        let plain = folded(Fold::keeping(extras), &steps);
        let past = folded(Fold::keeping(extras).with_pasts(temporary).with_courses(), &steps);
        prop_assert_eq!(&past.rows, &plain.rows);
        prop_assert_eq!(&past.extras.threads, &plain.extras.threads);
        prop_assert_eq!(past.peak, plain.peak);
        prop_assert_eq!(past.account.unknown_frees, plain.account.unknown_frees);
        prop_assert_eq!(past.pasts.len(), past.rows.len());
    }

    /// Each number alone, against all of them.
    #[test]
    fn numbers_that_are_asked_for_are_as_among_all(
        steps in prop::collection::vec((0u64..9000, any::<bool>(), 0u64..12, 0u32..4, 0u64..3000), 0..80),
    ) {
        let temporary = Temporary::within(20_000);
        let all = folded(Fold::new().with_pasts(temporary), &steps);
        for measure in Measure::ALL {
            let fold = Fold::new().with_pasts(temporary);
            let alone = folded(fold.with_numbers(measure.past_numbers()), &steps);
            prop_assert_eq!(&alone.rows, &all.rows);
            prop_assert_eq!(alone.pasts.len(), all.pasts.len());
            for row in 0..all.rows.len() {
                prop_assert_eq!(measure.of_row(&alone, row), measure.of_row(&all, row));
            }
            match measure {
                Measure::Lifetime => prop_assert_eq!(alone.lifetimes, all.lifetimes.clone()),
                _ => prop_assert!(alone.lifetimes.is_empty()),
            }
        }
    }

    /// Against a list of all blocks, each of which is looked at once its end is known.
    #[test]
    fn pasts_are_sums_over_blocks(
        steps in prop::collection::vec((0u64..9000, any::<bool>(), 0u64..12, 0u32..4, 0u64..3000), 0..80),
    ) {
        let within_ns = 20_000;
        let past = folded(Fold::new().with_pasts(Temporary::within(within_ns)), &steps);
        let mut live: BTreeMap<u64, Alloc> = BTreeMap::new();
        // By stack: samples, and bytes times microseconds, of those that went; temporary samples.
        let mut held: BTreeMap<u32, (u64, f64, u64)> = BTreeMap::new();
        let mut hold = |alloc: &Alloc, until_ns: u64, is_temporary: bool| {
            let us = (until_ns - alloc.time_ns) / 1000;
            let weight = heapprof_core::Weight::of(alloc.size, alloc.interval);
            let (samples, byte_us, temporary) = held.entry(alloc.stack).or_default();
            *samples += 1;
            *byte_us += weight.bytes_f64_with_variance().0 * us as f64;
            *temporary += u64::from(is_temporary);
        };
        let mut time_ns = 0;
        for &step in &steps {
            time_ns += step.0;
            match event(time_ns, step) {
                // A block whose end was lost is forgotten when its id comes again.
                Event::Alloc(alloc) => drop(live.insert(alloc.id, alloc)),
                Event::Free(free) => {
                    if let Some(alloc) = live.remove(&free.id) {
                        let is_soon = free.time_ns - alloc.time_ns <= within_ns;
                        hold(&alloc, free.time_ns, is_soon && free.thread != WITH_ITS_PROCESS);
                    }
                }
            }
        }
        for alloc in live.values() {
            hold(alloc, time_ns, false);
        }
        let mut sums: BTreeMap<u32, (u64, f64, u64)> = BTreeMap::new();
        for (row, past) in past.rows.iter().zip(&past.pasts) {
            // Stacks are numbered in the order in which they come.
            let (samples, byte_us, temporary) = sums.entry(row.stack).or_default();
            *samples += past.heaptime.samples;
            *byte_us += past.heaptime.byte_seconds() * 1e6;
            *temporary += past.temporary.samples;
            prop_assert_eq!(past.slack.samples, row.totals.in_use.samples);
            prop_assert_eq!(past.slack.objects_error(), row.totals.in_use.objects_error());
        }
        sums.retain(|_, sum| sum.0 > 0);
        let mut first: Vec<u32> = Vec::new();
        for (_, comes, _, stack, _) in &steps {
            if *comes && !first.contains(stack) {
                first.push(*stack);
            }
        }
        let sums: BTreeMap<u32, _> = sums.into_iter().map(|(index, sum)| (first[index as usize], sum)).collect();
        prop_assert_eq!(sums.len(), held.len());
        for (stack, (samples, byte_us, temporary)) in held {
            let of_fold = sums[&stack];
            prop_assert_eq!((of_fold.0, of_fold.2), (samples, temporary));
            prop_assert!((of_fold.1 - byte_us).abs() <= 1e-6 * byte_us + 1e-3, "{} {}", of_fold.1, byte_us);
        }
    }
}
