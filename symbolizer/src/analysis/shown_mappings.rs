//! Shown mappings: a profile that has mappings in place of blocks.
//!
//! Each line of the mappings becomes a row, and its name the label [`MAPPING`] of the row's stack.
//! So all tables, trees and exports show mappings as they show blocks.

use heapprof_core::{Row, SizeClass, Totals};

use crate::history::Past;
use crate::model::extras::Extras;
use crate::model::labels::Labels;
use crate::model::mapped_memory::MAPPING;
use crate::model::profile::{CallStack, Profile};

impl Profile {
    /// Shows the mappings in place of the blocks.
    pub(crate) fn show_mappings(&mut self) {
        self.rows.clear();
        self.pasts.clear();
        self.lifetimes.clear();
        self.extras = Extras::default();
        for line in &self.mappings.lines {
            let stack = line.stack.and_then(|index| self.stacks.get(index as usize));
            let mut stack: CallStack = stack.cloned().unwrap_or_default();
            let mut labels = stack.labels.to_vec();
            labels.push((MAPPING.to_owned(), line.name.clone()));
            stack.labels = Labels::new(labels);
            self.rows.push(Row {
                stack: self.stacks.len() as u32,
                class: SizeClass::of(line.mapped),
                totals: Totals::default(),
            });
            self.stacks.push(stack);
            self.pasts.push(Past {
                mapped: line.mapped,
                mapped_resident: line.resident,
                ..Past::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::mapped_memory::MappedLine;

    fn line(stack: Option<u32>, name: &str, mapped: u64, resident: u64) -> MappedLine {
        MappedLine {
            stack,
            name: name.into(),
            mapped,
            resident,
        }
    }

    #[test]
    fn rows_of_mappings_have_their_stacks_and_names() {
        let mut profile = Profile {
            stacks: vec![CallStack {
                frames: vec![7],
                ..CallStack::default()
            }],
            ..Profile::default()
        };
        profile.mappings.lines = vec![line(Some(0), "/a", 9, 8), line(None, "[heap]", 5, 4)];
        profile.show_mappings();
        let shown = profile.rows.iter().zip(&profile.pasts).map(|(row, past)| {
            let stack = profile.stack_of(row);
            let name = stack.labels.value(MAPPING).to_owned();
            (stack.frames.len(), name, past.mapped, past.mapped_resident)
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [(1, "/a".into(), 9, 8), (0, "[heap]".into(), 5, 4)]
        );
    }
}
