//! Samples: the numbers of a profile by stack, for the formats with several sample types.
//!
//! They are those of a whole profile, by stack and size class, or an [`Increment`], by stack.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::model::measure::Measure;
use crate::model::metric::{Metric, Numbers};
use crate::model::profile::Profile;

/// The allocations of a process in a time, and its blocks in use at the end of that time, by stack.
///
/// Increments of one process that touch add up to its totals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Increment {
    /// Begin of the time, since the start of the process.
    pub from_ns: u64,
    /// End of the time, since the start of the process.
    pub to_ns: u64,
    /// Indices of stacks in the profile, with their numbers; no stack twice.
    pub stacks: Vec<(u32, Numbers)>,
}

impl Increment {
    /// The sums over all stacks.
    pub fn numbers(&self) -> Numbers {
        let mut sum = Numbers::default();
        for (_, numbers) in &self.stacks {
            sum += *numbers;
        }
        sum
    }
}

/// The numbers of each row at a moment.
pub(crate) type Before = HashMap<RowKey, [i64; 4]>;

/// The same for rows of equal addresses, labels and class, whatever the number of their stack is: a
/// hash, since many wait for the end of their time at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RowKey([u8; 16]);

impl RowKey {
    /// That of a class of a profile's stack.
    pub(crate) fn of(profile: &Profile, stack: u32, class: u8) -> RowKey {
        let mut hash = Sha256::new_with_prefix([class]);
        if let Some(stack) = profile.stacks.get(stack as usize) {
            hash.update(stack.frames.len().to_le_bytes());
            for frame in &stack.frames {
                hash.update(frame.to_le_bytes());
            }
            for text in stack.labels.iter().flat_map(|(key, value)| [key, value]) {
                hash.update(text.len().to_le_bytes());
                hash.update(text);
            }
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        RowKey(key)
    }
}

/// See the module's text.
pub(super) struct Samples {
    /// The sample types, in the order of each sample's values.
    pub(super) measures: Vec<Measure>,
    /// Begin of the time that they are about, since 1970.
    pub(super) wall_ns: u64,
    pub(super) duration_ns: u64,
    /// Those with a number that is not zero.
    pub(super) samples: Vec<Sample>,
    /// The increment is sent to other machines, which need not know the command line.
    pub(super) is_sent: bool,
}

/// The numbers of one stack, or of the blocks of one size class of it.
pub(super) struct Sample {
    /// Index of the stack in the profile.
    pub(super) stack: u32,
    /// A number for each measure.
    pub(super) values: Vec<i64>,
    /// Class of the blocks' sizes; 0 for all classes.
    class: u8,
    /// Average size of a block, for the blocks of one size class.
    pub(super) block_bytes: Option<u64>,
}

impl Samples {
    /// Those of a whole profile: the four of Go's order, and those of the past if it has pasts.
    pub(super) fn of(profile: &Profile) -> Samples {
        let past = match profile.pasts.is_empty() {
            true => &[][..],
            false => &Measure::SUMS[..],
        };
        let mut measures = Metric::ALL.map(Measure::Basic).to_vec();
        measures.extend(past);
        if profile.pasts.iter().any(|past| !past.pages.is_empty()) {
            let knows_slabs = profile.pages.is_none_or(|pages| pages.knows_slabs);
            let is_known = |it: &Measure| *it != Measure::Pinned || knows_slabs;
            measures.extend(Measure::OF_PAGES.into_iter().filter(is_known));
        }
        if profile.pasts.iter().any(|past| past.mapped > 0) {
            measures = vec![Measure::Mapped, Measure::MappedResident]; // there are no blocks
        }
        let columns: Vec<Vec<i64>> = (measures.iter())
            .map(|measure| measure.whole_numbers(profile))
            .collect();
        let rows = profile.rows.iter().enumerate();
        let samples = rows.map(|(index, row)| {
            let numbers = Numbers::of(&row.totals);
            let average = numbers
                .allocated_bytes
                .checked_div(numbers.allocated_objects);
            Sample {
                stack: row.stack,
                class: row.class.0,
                values: columns.iter().map(|column| column[index]).collect(),
                block_bytes: Some(average.unwrap_or(0)),
            }
        });
        Samples {
            samples: samples.filter(Sample::is_not_zero).collect(),
            measures,
            wall_ns: profile.run.start_wall_ns,
            duration_ns: profile.run.duration_ns,
            is_sent: false,
        }
    }

    /// Leaves what changed since those numbers.
    pub(super) fn subtract(&mut self, profile: &Profile, before: &Before) {
        let mut before = before.clone();
        for sample in &mut self.samples {
            // Taken out: two rows may have the same addresses.
            let before = before.remove(&RowKey::of(profile, sample.stack, sample.class));
            let before = before.unwrap_or_default();
            for (value, before) in sample.values.iter_mut().zip(before) {
                *value -= before;
            }
        }
        self.samples.retain(Sample::is_not_zero);
    }

    pub(super) fn of_increment(profile: &Profile, increment: &Increment) -> Samples {
        let stacks = increment.stacks.iter();
        let samples = stacks.map(|&(stack, numbers)| Sample {
            class: 0,
            stack,
            values: Metric::ALL
                .map(|metric| clamp(numbers.get(metric)))
                .to_vec(),
            block_bytes: None,
        });
        Samples {
            measures: Metric::ALL.map(Measure::Basic).to_vec(),
            samples: samples.filter(Sample::is_not_zero).collect(),
            wall_ns: (profile.run.start_wall_ns).saturating_add(increment.from_ns),
            duration_ns: increment.to_ns.saturating_sub(increment.from_ns),
            is_sent: true,
        }
    }
}

impl Sample {
    fn is_not_zero(&self) -> bool {
        self.values.iter().any(|&value| value != 0)
    }
}

/// The number as formats with signed ones have it.
pub(super) fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::page_reading::PagesRead;
    use heapprof_core::Estimate;

    #[test]
    fn what_blocks_pin_is_no_column_where_slabs_are_not_known() {
        let mut profile = Profile {
            pasts: vec![Default::default()],
            ..Profile::default()
        };
        profile.pasts[0].pages.resident = Estimate::given(1, 4096);
        for knows_slabs in [true, false] {
            profile.pages = Some(PagesRead {
                time_ns: 0,
                record: 1,
                ran_ns: 0,
                pages: 1,
                blocks: 1,
                left_out: 0,
                is_cut: false,
                knows_slabs,
            });
            let measures = Samples::of(&profile).measures;
            assert!(measures.contains(&Measure::Resident));
            assert_eq!(measures.contains(&Measure::Pinned), knows_slabs);
        }
    }
}
