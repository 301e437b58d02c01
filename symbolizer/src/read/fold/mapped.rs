//! Mapped memory: the program's mappings at the end of the span, from their changes and from the
//! moment that was read nearest to it.
//!
//! The changes tell exactly what is mapped by which stack. The moment tells how much of it is
//! resident, what its name is, and what is mapped without a stack.

use heapprof_core::{AddressMap, NumberMap};
use heapprof_format::{MappedMemory, MappingChange};

use crate::model::mapped_memory::Mappings;
use crate::model::nearest::Nearest;

/// Most ranges that are kept, as the library keeps them.
const MOST_RANGES: usize = 1 << 16;

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct MappedFold {
    /// The index of the stack that mapped a range.
    ranges: AddressMap<u32>,
    moment: Nearest<MappedMemory>,
    /// The last name of each stack's mappings, by the stack's number in the log.
    names: NumberMap<u32, String>,
}

impl Default for MappedFold {
    fn default() -> Self {
        MappedFold {
            ranges: AddressMap::new(MOST_RANGES),
            moment: Nearest::default(),
            names: NumberMap::default(),
        }
    }
}

impl MappedFold {
    /// Takes a change within the span. `stack` is an index of the profile.
    pub(crate) fn change(&mut self, change: &MappingChange, stack: Option<u32>) {
        let range = change.start..change.start.saturating_add(change.len);
        match stack {
            Some(stack) => {
                self.ranges.map(range, stack);
            }
            None => self.ranges.unmap(range),
        }
    }

    /// Takes a moment: the one that is nearest to the end of the span is kept.
    pub(crate) fn moment(&mut self, moment: MappedMemory, end_ns: u64) {
        for part in moment.parts.iter().rev() {
            if let Some(stack) = part.stack {
                self.names.insert(stack, part.name.clone());
            }
        }
        self.moment.take(moment.time_ns, moment, end_ns);
    }

    /// Notes that the process ends at that time.
    pub(crate) fn end(&mut self, time_ns: u64, end_ns: u64) {
        self.moment.end(time_ns, end_ns);
    }

    /// Returns the mappings so far. `stack_of` has the profile's index of each stack.
    pub(crate) fn current_mappings(&self, stack_of: &NumberMap<u32, u32>) -> Mappings {
        let mut mappings = Mappings::default();
        if let Some(moment) = self.moment.get() {
            mappings.read_ns = Some(moment.time_ns);
            for part in &moment.parts {
                let stack = part.stack.and_then(|number| stack_of.get(&number).copied());
                mappings.add_read(stack, part.name.clone(), part.mapped, part.resident);
            }
        }
        let mut mapped: NumberMap<u32, u64> = NumberMap::default();
        for (range, stack) in self.ranges.iter() {
            *mapped.entry(stack).or_default() += range.end - range.start;
        }
        let names = self.names.iter();
        let of_index = |(number, name): (&u32, &String)| {
            let index = stack_of.get(number).copied();
            index.map(|index| (index, name.clone()))
        };
        mappings.set_mapped(&mapped, &names.filter_map(of_index).collect());
        mappings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump's reading comes a little behind the marker that names it.
    #[test]
    fn the_moment_that_is_nearest_to_the_end_of_the_span_is_kept() {
        const MS: u64 = 1_000_000;
        let read_ms = |moments: &[u64], end_ms: u64| {
            let mut fold = MappedFold::default();
            for moment in moments {
                let parts = Vec::new();
                let time_ns = moment * MS;
                fold.moment(MappedMemory { time_ns, parts }, end_ms * MS);
            }
            fold.current_mappings(&NumberMap::default())
                .read_ns
                .map(|ns| ns / MS)
        };
        assert_eq!(read_ms(&[100, 980, 1_090], 1_000), Some(1_090));
        assert_eq!(read_ms(&[800, 1_300, 1_400], 1_000), Some(800));
        assert_eq!(read_ms(&[1_300, 1_400], 1_000), Some(1_300));
        assert_eq!(read_ms(&[], 1_000), None);
    }
}
