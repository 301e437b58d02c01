//! Code addresses: the range or the list of ranges of one entry (a unit, a function, an inlined
//! call).

use super::Slice;
use super::budget::{Budget, ReadError};
use gimli::{AttributeValue, Range, RangeListsOffset, UnitRef};

#[derive(Default, Clone, Copy)]
pub(super) struct Pcs {
    low: Option<u64>,
    high: Option<High>,
    list: Option<RangeListsOffset>,
}

#[derive(Clone, Copy)]
enum High {
    Address(u64),
    Size(u64),
}

impl Pcs {
    /// Takes note of an attribute if it is about addresses.
    pub(super) fn note<'a>(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        attribute: &gimli::Attribute<Slice<'a>>,
    ) -> Result<(), gimli::Error> {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = unit.attr_address(attribute.value())?,
            gimli::DW_AT_high_pc => {
                self.high = match attribute.value() {
                    AttributeValue::Udata(size) => Some(High::Size(size)),
                    value => unit.attr_address(value)?.map(High::Address),
                }
            }
            gimli::DW_AT_ranges => self.list = unit.attr_ranges_offset(attribute.value())?,
            _ => {}
        }
        Ok(())
    }

    /// Calls `each` with every range that is not empty. Code that the linker dropped is left in
    /// DWARF with address 0 (GNU) or near the top (LLVM): neither is code.
    pub(super) fn for_each(
        &self,
        unit: UnitRef<'_, Slice<'_>>,
        budget: &Budget,
        mut each: impl FnMut(Range),
    ) -> Result<(), ReadError> {
        let mut give = |begin: u64, end: u64| {
            if begin != 0 && begin < end {
                each(Range { begin, end });
            }
        };
        if let Some(list) = self.list {
            let mut ranges = unit.ranges(list)?;
            let mut count = 0;
            while let Some(range) = ranges.next()? {
                count += 1;
                if count % 1024 == 0 {
                    budget.spend(1024)?; // now and then: one atomic operation a range would be felt
                }
                give(range.begin, range.end);
            }
            budget.spend(count % 1024)?;
        } else if let Some(begin) = self.low {
            match self.high {
                Some(High::Address(end)) => give(begin, end),
                // A begin of -1 (dropped code) makes this wrap to an empty range.
                Some(High::Size(size)) => give(begin, begin.wrapping_add(size)),
                None => {}
            }
        }
        Ok(())
    }
}
