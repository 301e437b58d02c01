//! Dimension: a property that divides the blocks of a stack: their size, thread or process.
//!
//! A page has the numbers of each value of a dimension. It does not have those of each stack under
//! each value, which would be many more.

use heapprof_core::Totals;

use crate::analysis::rows::Rows;
use crate::model::profile::Profile;
use crate::model::quantity::{Bytes, Count};
use crate::naming::group::{By, GroupMap};
use crate::naming::symbols::Symbols;

/// Most values of a dimension that are told apart: those with the most memory.
const MOST: usize = 200;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dimension {
    pub(super) name: &'static str,
    pub(super) values: Vec<String>,
    /// The value of each row.
    of_row: Vec<usize>,
}

/// All dimensions of a profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dimensions {
    rows: Rows,
    pub(super) all: Vec<Dimension>,
}

impl Dimensions {
    /// Those of a profile that was read with
    /// [`WantedExtras::threads`](crate::WantedExtras::threads). A program of one thread has sizes
    /// only.
    pub fn of(profile: &Profile, symbols: &Symbols) -> Dimensions {
        let threads = profile.extras.threads.as_deref().unwrap_or_default();
        let first = threads.first().map(|it| it.thread);
        let has_threads = threads.iter().any(|it| Some(it.thread) != first);
        let (rows, parts): (Rows, Vec<(u64, Totals)>) = match has_threads {
            true => {
                let parts = threads.iter().map(|it| it.row);
                let parts = parts.map(|row| (row.class.upper(), row.totals));
                (Rows::ByThread, parts.collect())
            }
            false => {
                let parts = profile.rows.iter();
                let parts = parts.map(|row| (row.class.upper(), row.totals));
                (Rows::Whole, parts.collect())
            }
        };
        let mut all = vec![Dimension::of_sizes(&parts)];
        let mut by = |name, by| {
            let map = GroupMap::of(profile, symbols, by);
            let of_row: Vec<usize> = (0..map.parts()).map(|part| map.own(part)).collect();
            all.push(Dimension::largest(
                name,
                map.names().to_vec(),
                of_row,
                &parts,
            ));
        };
        if has_threads {
            by("thread", By::Thread);
            if profile.parts.len() > 1 {
                by("process", By::Process);
            }
        }
        Dimensions { rows, all }
    }

    /// The rows that the groups are made of.
    pub fn rows(&self) -> Rows {
        self.rows
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.all.iter().map(|it| it.values.len()).sum()
    }

    /// The groups of a row: one for each dimension.
    pub fn groups_of(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let mut before = 0;
        self.all.iter().filter_map(move |it| {
            let first = before;
            before += it.values.len();
            Some(first + it.of_row.get(row)?)
        })
    }
}

impl Dimension {
    fn of_sizes(parts: &[(u64, Totals)]) -> Dimension {
        let mut sizes: Vec<u64> = parts.iter().map(|(size, _)| *size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let place = |(size, _): &(u64, Totals)| sizes.partition_point(|it| it < size);
        let of_row = parts.iter().map(place).collect();
        let values = sizes
            .iter()
            .map(|&size| format!("up to {}", Bytes(size as f64)));
        Dimension::largest("size", values.collect(), of_row, parts)
    }

    /// The values with the largest shares of what is in use or was ever allocated. The others are
    /// one value.
    fn largest(
        name: &'static str,
        values: Vec<String>,
        of_row: Vec<usize>,
        parts: &[(u64, Totals)],
    ) -> Dimension {
        if values.len() <= MOST {
            return Dimension {
                name,
                values,
                of_row,
            };
        }
        let mut sums = vec![[0.0; 2]; values.len()];
        let mut whole = [0.0; 2];
        for (&value, (_, totals)) in of_row.iter().zip(parts) {
            let bytes = [&totals.in_use, &totals.allocated].map(|it| it.bytes_f64());
            for at in 0..2 {
                sums[value][at] += bytes[at];
                whole[at] += bytes[at];
            }
        }
        let share = |value: usize| {
            let of = |at: usize| sums[value][at] / whole[at].max(1.0);
            of(0).max(of(1))
        };
        let mut largest: Vec<usize> = (0..values.len()).collect();
        largest.sort_by(|&a, &b| share(b).total_cmp(&share(a)));
        let others = largest.split_off(MOST - 1);
        let mut place = vec![MOST - 1; values.len()];
        for (at, &value) in largest.iter().enumerate() {
            place[value] = at;
        }
        let kept = largest.iter().map(|&value| values[value].clone());
        let others = format!("({} others)", Count(others.len() as u64));
        Dimension {
            name,
            values: kept.chain([others]).collect(),
            of_row: of_row.into_iter().map(|value| place[value]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use heapprof_core::Estimate;

    use super::*;

    #[test]
    fn values_with_little_are_one_value() {
        let part = |bytes| Totals {
            allocated: Estimate::given(1, bytes),
            in_use: Estimate::default(),
        };
        let count = MOST + 10;
        let parts: Vec<(u64, Totals)> = (0..count).map(|n| (1, part(n as u64))).collect();
        let values = (0..count).map(|n| n.to_string()).collect();
        let made = Dimension::largest("x", values, (0..count).collect(), &parts);
        assert_eq!(made.values.len(), MOST);
        assert_eq!(made.values[0], (count - 1).to_string());
        assert_eq!(made.values[MOST - 1], "(11 others)");
        assert_eq!(made.of_row[count - 1], 0);
        assert!((0..11).all(|n| made.of_row[n] == MOST - 1));
        assert_eq!(made.of_row[11], MOST - 2);
    }
}
