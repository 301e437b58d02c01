//! Kept stacks: the stacks that a page has numbers of by themselves, those with the most.
//!
//! The other stacks of a site are added up into one, for each type and each set of labels. So the
//! numbers of sites, types and labels are complete, and only the callers are missing.

use std::collections::HashMap;
use std::hash::Hash;

use crate::model::profile::Profile;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The stacks, by group.
    stacks: Vec<u32>,
    /// The group of each stack.
    group_of: Vec<usize>,
    /// The groups behind those of one stack: the first stack of each, and how many there are.
    others: Vec<(u32, usize)>,
}

impl Kept {
    /// At most so many stacks of a profile. `at_peak`: bytes in use of each row when the most were;
    /// `kind_of`: a stack's site, with whatever else stacks must share to be one group.
    ///
    /// A stack's rank is the largest of its shares, of what was in use at the end, at the peak, of
    /// what was ever allocated, and of what is mapped.
    pub fn of<K: Eq + Hash>(
        profile: &Profile,
        at_peak: &[f64],
        most: usize,
        kind_of: impl Fn(u32) -> K,
    ) -> Kept {
        let count = profile.stacks.len();
        let mut allocated = vec![0.0; count];
        let mut in_use = vec![0.0; count];
        let mut held = vec![0.0; count];
        for (index, row) in profile.rows.iter().enumerate() {
            let stack = row.stack as usize;
            if stack < count {
                allocated[stack] += row.totals.allocated.bytes_f64();
                in_use[stack] += row.totals.in_use.bytes_f64();
                held[stack] += at_peak.get(index).copied().unwrap_or(0.0);
            }
        }
        let mut mapped = vec![0.0; count];
        for line in &profile.mappings.lines {
            if let Some(sum) = line.stack.and_then(|stack| mapped.get_mut(stack as usize)) {
                *sum += line.mapped as f64;
            }
        }
        let mut rank = vec![0.0_f64; count];
        for bytes in [&allocated, &in_use, &held, &mapped] {
            let all: f64 = bytes.iter().sum();
            for (rank, bytes) in rank.iter_mut().zip(bytes).filter(|_| all > 0.0) {
                *rank = rank.max(bytes / all);
            }
        }
        let mut stacks: Vec<u32> = (0..count as u32).collect();
        // Equal ones as they came, so that the same log makes the same page.
        stacks.sort_by(|&a, &b| rank[b as usize].total_cmp(&rank[a as usize]));
        let rest = stacks.split_off(most.min(count));
        let mut group_of = vec![0; count];
        for (group, &stack) in stacks.iter().enumerate() {
            group_of[stack as usize] = group;
        }
        let mut others = Vec::new();
        let mut of_kind = HashMap::new();
        for stack in rest {
            // A kind has a group for each set of labels, so that sums by label are complete.
            let labels = &profile.stacks[stack as usize].labels;
            let other = *of_kind.entry((kind_of(stack), labels)).or_insert_with(|| {
                others.push((stack, 0));
                others.len() - 1
            });
            others[other].1 += 1;
            group_of[stack as usize] = stacks.len() + other;
        }
        Kept {
            stacks,
            group_of,
            others,
        }
    }

    /// The stacks that are a group each.
    pub fn stacks(&self) -> &[u32] {
        &self.stacks
    }

    /// The groups behind them, of stacks with one site and the same labels: one of these stacks,
    /// and how many they are.
    pub fn others(&self) -> &[(u32, usize)] {
        &self.others
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.stacks.len() + self.others.len()
    }

    /// The group of a stack.
    pub fn group_of(&self, stack: u32) -> Option<usize> {
        self.group_of.get(stack as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::CallStack;
    use heapprof_core::{Estimate, Row, SizeClass, Totals};

    #[test]
    fn the_largest_share_of_any_kind_counts() {
        let row = |stack, allocated, in_use| Row {
            stack,
            class: SizeClass::of(1),
            totals: Totals {
                allocated: Estimate::given(1, allocated),
                in_use: Estimate::given(1, in_use),
            },
        };
        let profile = Profile {
            stacks: vec![CallStack::default(); 6],
            // 0: most allocated; 1: most in use at the end; 2: most at the peak; 3 to 5: little of
            // all.
            rows: vec![
                row(0, 900, 0),
                row(1, 50, 40),
                row(2, 40, 0),
                row(3, 6, 6),
                row(4, 4, 4),
                row(5, 1, 1),
            ],
            ..Profile::default()
        };
        // The first two of the others have one site.
        let site_of = |stack| (stack != 5).then_some(7);
        let at_peak = [0.0, 10.0, 35.0, 5.0, 0.0, 0.0];
        let kept = Kept::of(&profile, &at_peak, 3, site_of);
        assert_eq!(kept.stacks(), [0, 1, 2]);
        assert_eq!((kept.groups(), kept.others()), (5, &[(3, 2), (5, 1)][..]));
        let groups: Vec<_> = (0..7).map(|stack| kept.group_of(stack)).collect();
        let expected = [Some(0), Some(1), Some(2), Some(3), Some(3), Some(4), None];
        assert_eq!(groups, expected);
        assert_eq!(Kept::of(&profile, &[], 9, site_of).groups(), 6);
    }
}
