//! Entry names: the name of an entry by its attributes, or by those of the entry that it is an
//! instance of.

use super::budget::Budget;
use super::scopes::LazyScopes;
use super::{Shared, Slice};
use crate::resolve::names::Names;
use gimli::{AttributeValue, DebugInfoOffset, UnitOffset, UnitRef};
use std::collections::HashMap;

/// How often a name may be "as that other entry's"; compilers make 2 or 3 such steps.
const MOST_HOPS: u32 = 16;

/// A name as DWARF has it.
#[derive(Clone)]
pub(super) struct RawName {
    /// The linker's name; where there is none, the bare one joined with the scopes it is in.
    pub(super) name: Shared,
    /// The bare one, where there is no linker's name.
    pub(super) bare: Option<Shared>,
}

/// Entries outside of the unit that is walked.
pub(super) trait OtherEntries: Sync {
    /// The name of the entry at an offset of the same file's `.debug_info`.
    fn name(&self, at: DebugInfoOffset, hops: u32) -> Option<RawName>;
    /// The name of the entry at an offset of the supplementary file's `.debug_info`.
    fn supplementary_name(&self, at: DebugInfoOffset, hops: u32) -> Option<RawName>;
}

/// The attributes of an entry that tell its name.
#[derive(Default)]
pub(super) struct NameAttributes<'d> {
    linkage: Option<AttributeValue<Slice<'d>>>,
    bare: Option<AttributeValue<Slice<'d>>>,
    /// The entry that this one is an instance or the definition of.
    origin: Option<AttributeValue<Slice<'d>>>,
}

impl<'d> NameAttributes<'d> {
    pub(super) fn note(&mut self, attribute: &gimli::Attribute<Slice<'d>>) {
        match attribute.name() {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                self.linkage = Some(attribute.value())
            }
            gimli::DW_AT_name => self.bare = Some(attribute.value()),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                self.origin = Some(attribute.value())
            }
            _ => {}
        }
    }

    /// The linkage name of the entry (at `at`) or of what it is an instance of; else the bare name
    /// nearest to it, joined with the scopes around it.
    fn resolve(
        &self,
        unit: UnitRef<'_, Slice<'d>>,
        at: UnitOffset,
        names: &Names,
        scopes: &LazyScopes<'_>,
        follow: impl FnOnce(AttributeValue<Slice<'d>>) -> Option<RawName>,
    ) -> Option<RawName> {
        let text = |value| unit.attr_string(value).ok().filter(|text| !text.is_empty());
        let interned = |bytes: &[u8]| {
            let name = names.function(bytes);
            scopes.pay_for(name.raw()).map(|()| name)
        };
        if let Some(linkage) = self.linkage.and_then(text) {
            let generic = match leaves_generics_out(linkage.slice()) {
                true => self
                    .bare
                    .and_then(text)
                    .filter(|bare| bare.slice().contains(&b'<')),
                false => None,
            };
            let name = match generic {
                Some(bare) => names.generic_function(linkage.slice(), bare.slice()),
                None => names.function(linkage.slice()),
            };
            scopes.pay_for(name.raw())?;
            return Some(RawName { name, bare: None });
        }
        // The origin of an instance stands in its scope; the instance stands anywhere.
        self.origin.and_then(follow).or_else(|| {
            let bare = interned(self.bare.and_then(text)?.slice())?;
            let name = match scopes.of(unit).around(unit, at) {
                Some(scope) => interned(format!("{scope}::{}", bare.raw()).as_bytes())?,
                None => Shared::clone(&bare),
            };
            Some(RawName {
                name,
                bare: Some(bare),
            })
        })
    }
}

/// Rust's older mangling: `_ZN…17h` with sixteen digits, `E`. It says `Vec<T,A>` of every vector.
fn leaves_generics_out(linkage: &[u8]) -> bool {
    let hash = linkage.len().checked_sub(20).map(|at| &linkage[at..at + 3]);
    linkage.starts_with(b"_ZN") && hash == Some(b"17h") && linkage.ends_with(b"E")
}

/// Names of one unit's functions; those referred to are remembered, for one function is inlined in
/// many places.
pub(super) struct Naming<'u, 'd, 'n> {
    unit: UnitRef<'u, Slice<'d>>,
    others: Option<&'n dyn OtherEntries>,
    names: &'n Names,
    namespaces: LazyScopes<'n>,
    known: HashMap<Referred, Option<RawName>>,
}

/// The entry that a reference means.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Referred {
    Unit(UnitOffset),
    File(DebugInfoOffset),
    Supplementary(DebugInfoOffset),
}

impl Referred {
    fn of(value: AttributeValue<Slice<'_>>) -> Option<Referred> {
        match value {
            AttributeValue::UnitRef(at) => Some(Referred::Unit(at)),
            AttributeValue::DebugInfoRef(at) => Some(Referred::File(at)),
            AttributeValue::DebugInfoRefSup(at) => Some(Referred::Supplementary(at)),
            _ => None,
        }
    }

    fn name(
        self,
        unit: UnitRef<'_, Slice<'_>>,
        others: Option<&dyn OtherEntries>,
        names: &Names,
        scopes: &LazyScopes<'_>,
        hops: u32,
    ) -> Option<RawName> {
        let hops = hops.checked_sub(1)?;
        match self {
            Referred::Unit(at) => name_at(unit, at, others, names, scopes, hops).ok()?,
            Referred::File(at) => others?.name(at, hops),
            Referred::Supplementary(at) => others?.supplementary_name(at, hops),
        }
    }
}

impl<'u, 'd, 'n> Naming<'u, 'd, 'n> {
    pub(super) fn new(
        unit: UnitRef<'u, Slice<'d>>,
        others: Option<&'n dyn OtherEntries>,
        names: &'n Names,
        budget: &'n Budget,
    ) -> Self {
        Naming {
            unit,
            others,
            names,
            namespaces: LazyScopes::new(budget),
            known: HashMap::new(),
        }
    }

    /// Returns the name of the entry at an offset of the unit, which has these attributes.
    pub(super) fn of(
        &mut self,
        at: UnitOffset,
        attributes: &NameAttributes<'d>,
    ) -> Option<RawName> {
        let Naming {
            unit,
            others,
            names,
            namespaces,
            known,
        } = self;
        attributes.resolve(*unit, at, names, namespaces, |origin| {
            let origin = Referred::of(origin)?;
            known
                .entry(origin)
                .or_insert_with(|| origin.name(*unit, *others, names, namespaces, MOST_HOPS))
                .clone()
        })
    }
}

/// The name of the entry at an offset of `unit`.
pub(super) fn name_at(
    unit: UnitRef<'_, Slice<'_>>,
    at: UnitOffset,
    others: Option<&dyn OtherEntries>,
    names: &Names,
    scopes: &LazyScopes<'_>,
    hops: u32,
) -> Result<Option<RawName>, gimli::Error> {
    let mut entries = unit.entries_raw(Some(at))?;
    let Some(abbreviation) = entries.read_abbreviation()? else {
        return Ok(None);
    };
    let mut attributes = NameAttributes::default();
    for &spec in abbreviation.attributes() {
        attributes.note(&entries.read_attribute(spec)?);
    }
    Ok(attributes.resolve(unit, at, names, scopes, |origin| {
        Referred::of(origin)?.name(unit, others, names, scopes, hops)
    }))
}
