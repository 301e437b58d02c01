//! Baseline: what of a process was sent already, by stack.
//!
//! The numbers of a log are rounded as a whole. A message has the difference of two such roundings.
//! So the messages add up to the last rounding exactly. The numbers in use are averages over
//! the time of the message.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::export::Increment;
use crate::model::metric::Numbers;
use crate::model::profile::Profile;
use crate::read::fold::averages::Averages;

/// A stack, whatever its index in a reading: the hash of its addresses, and which one it is of
/// those with this hash. The index changes when old segments of a log are gone.
type Key = (u64, u32);

/// See the module's text.
#[derive(Default)]
pub(super) struct Baseline {
    hasher: RandomState,
    /// Blocks and bytes allocated, as far as they were taken.
    taken: HashMap<Key, (u64, u64)>,
    /// Until when, since the start of the process.
    to_ns: u64,
}

impl Baseline {
    /// Until when, since the start of the process.
    pub(super) fn to_ns(&self) -> u64 {
        self.to_ns
    }

    /// Returns what the profile has beyond the baseline, which becomes that of the profile, and the
    /// averages of what was in use up to `end_ns`.
    ///
    /// Where less was allocated than before, a log was written anew or lost its past: nothing is
    /// taken back, and what comes is counted from there.
    pub(super) fn advance(
        &mut self,
        profile: &Profile,
        averages: &Averages,
        end_ns: u64,
    ) -> Increment {
        let mut by_stack = vec![Numbers::default(); profile.stacks.len()];
        for row in &profile.rows {
            if let Some(numbers) = by_stack.get_mut(row.stack as usize) {
                *numbers += Numbers::of(&row.totals);
            }
        }
        let mut seen: HashMap<u64, u32> = HashMap::new();
        let mut stacks = Vec::new();
        for ((index, stack), now) in (0u32..).zip(&profile.stacks).zip(by_stack) {
            let hash = self.hasher.hash_one((&stack.frames, &stack.interrupted));
            let nth = seen.entry(hash).or_insert(0);
            let taken = self.taken.entry((hash, *nth)).or_default();
            *nth += 1;
            let numbers = Numbers {
                allocated_objects: now.allocated_objects.saturating_sub(taken.0),
                allocated_bytes: now.allocated_bytes.saturating_sub(taken.1),
                ..averaged(now, averages.less(index, end_ns))
            };
            *taken = (now.allocated_objects, now.allocated_bytes);
            if !numbers.is_zero() {
                stacks.push((index, numbers));
            }
        }
        let to_ns = end_ns.max(self.to_ns);
        let from_ns = std::mem::replace(&mut self.to_ns, to_ns);
        Increment {
            from_ns,
            to_ns,
            stacks,
        }
    }
}

/// The numbers with less in use. Bytes come with at least one object.
fn averaged(now: Numbers, [objects, bytes]: [f64; 2]) -> Numbers {
    let average = |in_use: u64, less: f64| match less {
        0.0 => in_use,
        less => (in_use as f64 - less).round() as u64,
    };
    let in_use_bytes = average(now.in_use_bytes, bytes);
    Numbers {
        in_use_bytes,
        in_use_objects: average(now.in_use_objects, objects).max(u64::from(in_use_bytes > 0)),
        ..now
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::{Estimate, Row, SizeClass, Totals, Weight};

    use super::*;
    use crate::model::profile::CallStack;

    /// A profile in which each stack allocated so many blocks of 100 bytes, one in ten of which was
    /// sampled; half of the samples are in use.
    fn profile(stacks: &[(u64, u64)], duration_ns: u64) -> Profile {
        let mut profile = Profile::default();
        profile.run.duration_ns = duration_ns;
        for (index, &(address, samples)) in (0u32..).zip(stacks) {
            profile.stacks.push(CallStack {
                frames: vec![address],
                ..CallStack::default()
            });
            let (mut allocated, mut in_use) = (Estimate::default(), Estimate::default());
            for sample in 0..samples {
                let weight = Weight::of(100, 1000);
                allocated.add(&weight);
                if sample % 2 == 0 {
                    in_use.add(&weight);
                }
            }
            profile.rows.push(Row {
                stack: index,
                class: SizeClass::of(100),
                totals: Totals { allocated, in_use },
            });
        }
        profile
    }

    #[test]
    fn increments_add_up_to_the_last_totals_and_state_what_is_in_use() {
        let mut baseline = Baseline::default();
        let mut sum = Numbers::default();
        let mut last = (0, Numbers::default());
        for step in 1..=50 {
            // A stack is new in each third step, and comes first.
            let mut stacks: Vec<(u64, u64)> =
                (0..=step / 3).map(|n| (0x1000 + n, step + n)).collect();
            stacks.reverse();
            let profile = profile(&stacks, step * 1000);
            let increment = baseline.advance(&profile, &Averages::default(), step * 1000);
            assert_eq!(increment.from_ns, last.0);
            let numbers = increment.numbers();
            sum.allocated_bytes += numbers.allocated_bytes;
            sum.allocated_objects += numbers.allocated_objects;
            let whole = profile.numbers();
            assert_eq!(numbers.in_use_bytes, whole.in_use_bytes);
            assert_eq!(sum.allocated_bytes, whole.allocated_bytes, "step {step}");
            assert_eq!(sum.allocated_objects, whole.allocated_objects);
            last = (increment.to_ns, whole);
        }
        assert!(last.1.allocated_bytes > 0);
    }

    #[test]
    fn what_shrank_is_not_taken_back() {
        let mut baseline = Baseline::default();
        baseline.advance(&profile(&[(1, 10)], 1), &Averages::default(), 1);
        let shrunk = baseline.advance(&profile(&[(1, 4)], 2), &Averages::default(), 2);
        assert_eq!(shrunk.numbers().allocated_bytes, 0);
        let grown = baseline
            .advance(&profile(&[(1, 6)], 3), &Averages::default(), 3)
            .numbers();
        assert_eq!(
            grown.allocated_bytes,
            profile(&[(1, 2)], 3).numbers().allocated_bytes
        );
    }
}
