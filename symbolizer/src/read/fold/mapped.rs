//! Mapped memory: the program's mappings at the end of the span, from their changes and from the
//! moment that was read nearest to it.
//!
//! The changes tell exactly what is mapped by which stack. The moment tells how much of it is
//! resident, what its name is, and what is mapped without a stack.

use heapprof_core::{AddressMap, NumberMap};
use heapprof_format::{MappedMemory, MappingChange};

use crate::model::mapped_memory::Mappings;

/// Most ranges that are kept, as the library keeps them.
const MOST_RANGES: usize = 1 << 16;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct MappedFold {
    /// The index of the stack that mapped a range.
    ranges: AddressMap<u32>,
    moment: Option<MappedMemory>,
    /// True if a moment behind the span was seen.
    is_past: bool,
}

impl Default for MappedFold {
    fn default() -> Self {
        MappedFold {
            ranges: AddressMap::new(MOST_RANGES),
            moment: None,
            is_past: false,
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

    /// Takes a moment: the last one within the span is kept, or the first one behind it.
    pub(crate) fn moment(&mut self, moment: MappedMemory, is_within: bool) {
        if is_within || !self.is_past && self.moment.is_none() {
            self.moment = Some(moment);
        }
        self.is_past |= !is_within;
    }

    /// Returns the mappings so far. `stack_of` has the profile's index of each stack.
    pub(crate) fn so_far(&self, stack_of: &NumberMap<u32, u32>) -> Mappings {
        let mut mappings = Mappings::default();
        if let Some(moment) = &self.moment {
            mappings.read_ns = Some(moment.time_ns);
            for part in &moment.parts {
                let stack = part.stack.and_then(|number| stack_of.get(&number).copied());
                mappings.add_read(stack, part.name.clone(), part.mapped, part.resident);
            }
        }
        let mut mapped: NumberMap<u32, u64> = NumberMap::default();
        for (range, stack) in self.ranges.pieces() {
            *mapped.entry(stack).or_default() += range.end - range.start;
        }
        mappings.set_mapped(&mapped);
        mappings
    }
}
