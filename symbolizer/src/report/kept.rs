//! Which stacks a page has numbers of by themselves: those with the most. The others are one.

use crate::profile::Profile;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The stacks, by group.
    stacks: Vec<u32>,
    /// The group of each stack.
    group_of: Vec<usize>,
    /// How many are in the last group together.
    others: usize,
}

impl Kept {
    /// At most so many stacks of a profile. `at_peak`: bytes in use of each when the most were.
    ///
    /// A stack's rank is the largest of its shares, of what was in use at the end, at the peak, and of what was ever allocated.
    pub fn of(profile: &Profile, at_peak: &[f64], most: usize) -> Kept {
        let count = profile.stacks.len();
        let mut allocated = vec![0.0; count];
        let mut in_use = vec![0.0; count];
        for row in &profile.rows {
            let stack = row.stack as usize;
            if let (Some(allocated), Some(in_use)) =
                (allocated.get_mut(stack), in_use.get_mut(stack))
            {
                *allocated += row.totals.allocated.bytes_f64();
                *in_use += row.totals.in_use.bytes_f64();
            }
        }
        let mut rank = vec![0.0_f64; count];
        for bytes in [&allocated[..], &in_use, at_peak] {
            let all: f64 = bytes.iter().sum();
            for (rank, bytes) in rank.iter_mut().zip(bytes).filter(|_| all > 0.0) {
                *rank = rank.max(bytes / all);
            }
        }
        let mut stacks: Vec<u32> = (0..count as u32).collect();
        // Equal ones as they came, so that the same log makes the same page.
        stacks.sort_by(|&a, &b| rank[b as usize].total_cmp(&rank[a as usize]));
        stacks.truncate(most);
        let mut group_of = vec![stacks.len(); count];
        for (group, &stack) in stacks.iter().enumerate() {
            group_of[stack as usize] = group;
        }
        Kept {
            others: count - stacks.len(),
            stacks,
            group_of,
        }
    }

    /// The stacks that are a group each.
    pub fn stacks(&self) -> &[u32] {
        &self.stacks
    }

    /// How many stacks are in the last group together.
    pub fn others(&self) -> usize {
        self.others
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.stacks.len() + usize::from(self.others > 0)
    }

    /// The group of a stack.
    pub fn group_of(&self, stack: u32) -> Option<usize> {
        self.group_of.get(stack as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::CallStack;
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
            stacks: vec![CallStack::default(); 5],
            // 0: most allocated; 1: most in use at the end; 2: most at the peak; 3 and 4: little of all.
            rows: vec![
                row(0, 900, 0),
                row(1, 50, 40),
                row(2, 40, 0),
                row(3, 6, 6),
                row(4, 4, 4),
            ],
            ..Profile::default()
        };
        let kept = Kept::of(&profile, &[0.0, 10.0, 35.0, 5.0, 0.0], 3);
        assert_eq!(kept.stacks(), [0, 1, 2]);
        assert_eq!((kept.groups(), kept.others()), (4, 2));
        let groups: Vec<_> = (0..6).map(|stack| kept.group_of(stack)).collect();
        assert_eq!(groups, [Some(0), Some(1), Some(2), Some(3), Some(3), None]);
        assert_eq!(Kept::of(&profile, &[], 9).groups(), 5);
    }
}
