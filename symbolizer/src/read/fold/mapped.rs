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
#[derive(Debug, Clone)]
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

    /// Takes a moment: the one is kept that is nearest to the end of the span, of the last one
    /// within it and the first one behind it. `past_ns` is the time behind the end; `None`: it is
    /// within the span.
    pub(crate) fn moment(&mut self, moment: MappedMemory, past_ns: Option<u64>) {
        let is_nearer = |past_ns| {
            let end_ns = moment.time_ns.saturating_sub(past_ns);
            let before = |kept: &MappedMemory| end_ns.saturating_sub(kept.time_ns);
            self.moment.as_ref().is_none_or(|it| past_ns < before(it))
        };
        if past_ns.is_none_or(|past_ns| !self.is_past && is_nearer(past_ns)) {
            self.moment = Some(moment);
        }
        self.is_past |= past_ns.is_some();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump's reading comes a little behind the marker that names it.
    #[test]
    fn the_moment_that_is_nearest_to_the_end_of_the_span_is_kept() {
        let read_ns = |moments: &[(u64, Option<u64>)]| {
            let mut fold = MappedFold::default();
            for &(time_ns, past_ns) in moments {
                let parts = Vec::new();
                fold.moment(MappedMemory { time_ns, parts }, past_ns);
            }
            fold.so_far(&NumberMap::default()).read_ns
        };
        assert_eq!(
            read_ns(&[(10, None), (80, None), (110, Some(10))]),
            Some(110)
        );
        assert_eq!(
            read_ns(&[(80, None), (130, Some(30)), (140, Some(40))]),
            Some(80)
        );
        assert_eq!(read_ns(&[(130, Some(30)), (140, Some(40))]), Some(130));
        assert_eq!(read_ns(&[]), None);
    }
}
