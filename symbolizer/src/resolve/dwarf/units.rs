//! Units: the units of one `.debug_info`, by the addresses of their code and by the offsets of
//! their entries.
//!
//! Only headers and ranges are kept. A unit's abbreviations and file table are parsed when it is
//! read, and then dropped. Those of units that other units refer into (LTO, dwz) stay, because they
//! are needed again and again.

use super::budget::{Budget, ReadError};
use super::entry_names::{OtherEntries, RawName, name_at};
use super::pcs::Pcs;
use super::scopes::{LazyScopes, Scopes};
use super::{Dwarf, Slice, line_program};
use crate::memory;
use crate::resolve::names::Names;
use gimli::{DebugInfoOffset, UnitHeader, UnitRef, UnitType};
use rayon::prelude::*;
use std::sync::OnceLock;

type Unit<'d> = gimli::Unit<Slice<'d>>;

/// Ranges that end behind an address and may begin before it: one, mostly. In a hostile file any
/// number; this many are looked at.
const MOST_RANGES: usize = 4096;

pub(super) struct Units<'d> {
    /// By offset in `.debug_info`.
    headers: Vec<(DebugInfoOffset, UnitHeader<Slice<'d>>)>,
    /// By end.
    ranges: Vec<UnitRange>,
    /// Parsed units that were referred into, at the place of their header; `None`: could not be
    /// parsed.
    referred: Vec<OnceLock<Option<Box<Referred<'d>>>>>,
}

/// A unit that others refer into.
struct Referred<'d> {
    unit: Unit<'d>,
    scopes: OnceLock<Scopes>,
}

struct UnitRange {
    begin: u64,
    end: u64,
    /// The smallest begin of this and all later ranges: a search may stop where it is past the
    /// address.
    least_begin: u64,
    /// The unit's place in `headers`.
    unit: usize,
}

impl<'d> Units<'d> {
    /// Reads all headers and the ranges of the units that have code.
    pub(super) fn read(
        dwarf: &Dwarf<'d>,
        budget: &Budget,
        problem: impl Fn(ReadError) + Sync,
    ) -> Self {
        memory::start_threads();
        let mut units = Self::headers_only(dwarf);
        let found: Vec<Vec<UnitRange>> = units
            .headers
            .par_iter()
            .enumerate()
            .map(|(index, (_, header))| {
                let mut ranges = Vec::new();
                ranges_of(dwarf, *header, index, budget, &mut ranges).unwrap_or_else(&problem);
                ranges
            })
            .collect();
        units.ranges = found.into_iter().flatten().collect();
        units
            .ranges
            .sort_unstable_by_key(|range| (range.end, range.unit));
        let mut least = u64::MAX;
        for range in units.ranges.iter_mut().rev() {
            least = least.min(range.begin);
            range.least_begin = least;
        }
        units
    }

    /// Reads all headers, for references into these units only.
    pub(super) fn headers_only(dwarf: &Dwarf<'d>) -> Self {
        let mut headers = Vec::new();
        let mut iter = dwarf.units();
        // After a damaged header nobody knows where the next begins: gimli's iterator ends there.
        while let Ok(Some(header)) = iter.next() {
            headers.extend(header.debug_info_offset().map(|offset| (offset, header)));
        }
        let referred = std::iter::repeat_with(OnceLock::new)
            .take(headers.len())
            .collect();
        Units {
            headers,
            ranges: Vec::new(),
            referred,
        }
    }

    /// The units that claim an address, the one whose range ends first before others.
    pub(super) fn covering(&self, svma: u64) -> impl Iterator<Item = usize> {
        let first = self.ranges.partition_point(|range| range.end <= svma);
        let mut last = usize::MAX;
        self.ranges[first..]
            .iter()
            .take(MOST_RANGES)
            .take_while(move |range| range.least_begin <= svma)
            .filter(move |range| range.begin <= svma && svma < range.end)
            .map(|range| range.unit)
            // Overlapping ranges of one unit are one claim.
            .filter(move |&unit| std::mem::replace(&mut last, unit) != unit)
    }

    /// Parses a unit to read it through once.
    pub(super) fn parse(&self, unit: usize, dwarf: &Dwarf<'d>) -> Result<Unit<'d>, gimli::Error> {
        dwarf.unit(self.headers[unit].1)
    }

    /// The name of the entry at an offset that another unit refers to.
    pub(super) fn name_at(
        &self,
        dwarf: &Dwarf<'d>,
        at: DebugInfoOffset,
        others: &dyn OtherEntries,
        names: &Names,
        budget: &Budget,
        hops: u32,
    ) -> Option<RawName> {
        let index = self
            .headers
            .partition_point(|(begin, _)| begin.0 <= at.0)
            .checked_sub(1)?;
        let header = self.headers[index].1;
        let referred = self.referred[index]
            .get_or_init(|| {
                let unit = dwarf.unit(header).ok()?;
                let scopes = OnceLock::new();
                Some(Box::new(Referred { unit, scopes }))
            })
            .as_ref()?;
        let offset = at.to_unit_offset(&referred.unit.header)?;
        name_at(
            UnitRef::new(dwarf, &referred.unit),
            offset,
            Some(others),
            names,
            &LazyScopes::shared(&referred.scopes, budget),
            hops,
        )
        .ok()?
    }
}

fn ranges_of<'d>(
    dwarf: &Dwarf<'d>,
    header: UnitHeader<Slice<'d>>,
    index: usize,
    budget: &Budget,
    found: &mut Vec<UnitRange>,
) -> Result<(), ReadError> {
    // Partial units are only referred to; type units describe types.
    if !matches!(
        header.type_(),
        UnitType::Compilation | UnitType::Skeleton(_)
    ) {
        return Ok(());
    }
    let unit = dwarf.unit(header)?;
    if let Some(program) = &unit.line_program {
        // Its file table was just read.
        budget.spend(program.header().header_length() as u64)?;
    }
    let unit = UnitRef::new(dwarf, &unit);
    let mut entries = unit.entries_raw(None)?;
    let Some(root) = entries.read_abbreviation()? else {
        return Ok(());
    };
    let mut pcs = Pcs::default();
    for &spec in root.attributes() {
        pcs.note(unit, &entries.read_attribute(spec)?)?;
    }
    let mut add = |range: gimli::Range| {
        found.push(UnitRange {
            begin: range.begin,
            end: range.end,
            least_begin: 0,
            unit: index,
        });
    };
    let mut any = false;
    pcs.for_each(unit, budget, |range| {
        any = true;
        add(range);
    })?;
    if !any {
        // The unit does not say where its code is (some assemblers, old compilers): its lines do.
        line_program::sequences_of(unit, budget, add)?;
    }
    Ok(())
}
