//! Functions: the functions of one unit and those inlined into them, found in one walk over its
//! entries.
//!
//! ```text
//!  subprogram  render            0x100..0x180     <- physical function of 0x120
//!    lexical_block
//!      inlined_subroutine draw   0x110..0x150     <- depth 0
//!        inlined_subroutine dot  0x118..0x128     <- depth 1: innermost
//!  chain of 0x120: dot, draw (called from dot's call site), render (from draw's call site)
//! ```
//!
//! The walk is flat, with a list of open scopes: nesting costs heap, never stack.

use super::budget::{Budget, ReadError};
use super::lines::{FileNames, Row};
use super::pcs::Pcs;
use super::scopes::LazyScopes;
use super::{Answer, Shared, Slice};
use crate::resolve::frame::{Frame, MOST_INLINED};
use crate::resolve::names::Names;
use gimli::{AttributeValue, DebugInfoOffset, DwLang, UnitOffset, UnitRef};
use std::collections::HashMap;

/// How often a name may be "as that other entry's"; compilers make 2 or 3 such steps.
const MOST_HOPS: u32 = 16;

/// A name as DWARF has it.
#[derive(Clone)]
pub(super) struct RawName {
    /// The linker's name; where there is none, the bare one joined with the scopes it is in.
    name: Shared,
    /// The bare one, where there is no linker's name.
    bare: Option<Shared>,
}

/// Entries outside of the unit that is walked.
pub(super) trait Elsewhere: Sync {
    /// The name of the entry at an offset of the same file's `.debug_info`.
    fn name(&self, at: DebugInfoOffset, hops: u32) -> Option<RawName>;
    /// The name of the entry at an offset of the supplementary file's `.debug_info`.
    fn supplementary_name(&self, at: DebugInfoOffset, hops: u32) -> Option<RawName>;
}

/// The functions that the walk finds for each wanted address.
pub(super) struct Chains {
    /// By wanted address: its physical function, with the number that the walk gave it.
    functions: Vec<Option<(u32, Physical)>>,
    /// By wanted address: how many inlined functions it has so far.
    depths: Vec<u32>,
    /// (wanted address, depth, place in `inlined`), in the order of the walk; of each address the
    /// outermost [`MOST_INLINED`].
    links: Vec<(u32, u32, u32)>,
    /// By wanted address that has more: the innermost one, its place in `inlined`.
    innermost: HashMap<u32, u32>,
    inlined: Vec<Inlined>,
}

#[derive(Clone)]
struct Physical {
    name: Option<Shared>,
    /// See [`Answer::partial`].
    partial: Option<Shared>,
}

struct Inlined {
    name: Option<Shared>,
    call_file: Option<u64>,
    call_line: Option<u32>,
    call_column: Option<u32>,
}

impl Chains {
    pub(super) fn new(wanted: usize) -> Self {
        Chains {
            functions: vec![None; wanted],
            depths: vec![0; wanted],
            links: Vec::new(),
            innermost: HashMap::new(),
            inlined: Vec::new(),
        }
    }

    /// Joins the chains with the rows of the unit, one answer a wanted address; without frames
    /// where neither is known.
    pub(super) fn into_answers(
        mut self,
        rows: &[Option<Row>],
        mut files: FileNames<'_, '_>,
    ) -> Vec<Answer> {
        self.links.sort_unstable();
        let mut links = self.links.as_slice();
        let mut answers = Vec::with_capacity(rows.len());
        for (i, (function, row)) in self.functions.into_iter().zip(rows).enumerate() {
            let (chain, later) = links.split_at(MOST_INLINED.min(self.depths[i] as usize));
            links = later;
            if function.is_none() && row.is_none() {
                answers.push(Answer::default());
                continue;
            }
            // Each function's place is where it calls the one inlined into it; the innermost one's
            // is the row.
            let mut file = row.and_then(|row| files.get(row.file));
            let mut line = row.and_then(|row| row.line);
            let mut column = row.and_then(|row| row.column);
            let mut frames = Vec::with_capacity(chain.len() + 1);
            if let Some(&innermost) = self.innermost.get(&(i as u32)) {
                frames.push(Frame {
                    function: self.inlined[innermost as usize].name.clone(),
                    file: file.take(),
                    line: line.take(),
                    column: column.take(),
                    inlined: true,
                });
                frames.push(Frame::left_out());
            }
            for &(_, _, place) in chain.iter().rev() {
                let inlined = &self.inlined[place as usize];
                frames.push(Frame {
                    function: inlined.name.clone(),
                    file,
                    line,
                    column,
                    inlined: true,
                });
                file = inlined.call_file.and_then(|file| files.get(file));
                line = inlined.call_line;
                column = inlined.call_column;
            }
            let physical = function.map(|(_, physical)| physical);
            let partial = physical
                .as_ref()
                .and_then(|physical| physical.partial.clone());
            let function = physical.and_then(|physical| physical.name);
            frames.push(Frame {
                function,
                file,
                line,
                column,
                inlined: false,
            });
            answers.push(Answer { frames, partial });
        }
        answers
    }
}

/// An entry whose children are being walked.
struct Scope {
    /// The entry's depth in the tree.
    depth: isize,
    /// `None`: no wanted address is in it, so nothing inlined there matters.
    open: Option<Open>,
}

/// Where the walk is, for the addresses it is about.
#[derive(Clone, Copy)]
struct Open {
    /// The physical function, by the order of the walk.
    function: u32,
    /// How many inlined functions the children of this scope are inside of.
    level: u32,
}

/// Walks the entries of `unit` for the sorted `wanted` addresses. On an error, what was found
/// stays.
pub(super) fn walk(
    unit: UnitRef<'_, Slice<'_>>,
    wanted: &[u64],
    elsewhere: Option<&dyn Elsewhere>,
    names: &Names,
    budget: &Budget,
    chains: &mut Chains,
) -> Result<(), ReadError> {
    let mut naming = Naming {
        unit,
        elsewhere,
        names,
        namespaces: LazyScopes::new(budget),
        known: HashMap::new(),
    };
    let mut scopes: Vec<Scope> = Vec::new();
    let mut functions = 0;
    let mut mangles = false;
    let mut hits = Vec::new();
    budget.spend(unit.header.unit_length() as u64)?;
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let (depth, at) = (entries.next_depth(), entries.next_offset());
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        // Any entry ends the scopes beside it: a block after an inlined function is not inside of
        // it.
        while scopes.last().is_some_and(|scope| scope.depth >= depth) {
            scopes.pop();
        }
        let specs = abbreviation.attributes();
        let is_function = match abbreviation.tag() {
            gimli::DW_TAG_subprogram => true,
            gimli::DW_TAG_inlined_subroutine => false,
            gimli::DW_TAG_compile_unit | gimli::DW_TAG_skeleton_unit => {
                for &spec in specs {
                    if let AttributeValue::Language(language) =
                        entries.read_attribute(spec)?.value()
                    {
                        mangles = mangles_names(language);
                    }
                }
                continue;
            }
            _ => {
                entries.skip_attributes(specs)?;
                continue;
            }
        };
        let outer = scopes.last().and_then(|scope| scope.open);
        let has_code = specs
            .iter()
            .any(|spec| matches!(spec.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
        if !has_code || (!is_function && outer.is_none()) {
            // Declarations, templates of what is inlined, and what is inside a function nobody
            // asked about.
            entries.skip_attributes(specs)?;
            scopes.push(Scope { depth, open: None });
            continue;
        }

        let mut entry = Entry::default();
        for &spec in specs {
            entry.note(unit, &entries.read_attribute(spec)?)?;
        }
        hits.clear();
        entry.pcs.for_each(unit, budget, |range| {
            let first = wanted.partition_point(|&svma| svma < range.begin);
            hits.extend((first..wanted.len()).take_while(|&i| wanted[i] < range.end));
        })?;
        let open = match outer {
            _ if hits.is_empty() => None,
            Some(outer) if !is_function => {
                budget.spend(hits.len() as u64)?;
                chains.add_inlined(&hits, outer, || naming.inlined(at, &entry));
                Some(Open {
                    level: outer.level + 1,
                    ..outer
                })
            }
            _ => {
                budget.spend(hits.len() as u64)?;
                functions += 1;
                chains.add_function(&hits, functions, || naming.physical(at, &entry, mangles));
                Some(Open {
                    function: functions,
                    level: 0,
                })
            }
        };
        scopes.push(Scope { depth, open });
    }
    Ok(())
}

impl Chains {
    fn add_function(&mut self, hits: &[usize], function: u32, physical: impl FnOnce() -> Physical) {
        // Identical functions may be folded into one piece of code; the first that claims it has
        // it.
        let free = |chains: &Chains, i: usize| chains.functions[i].is_none();
        if !hits.iter().any(|&i| free(self, i)) {
            return;
        }
        let physical = physical();
        for &i in hits {
            if free(self, i) {
                self.functions[i] = Some((function, physical.clone()));
            }
        }
    }

    fn add_inlined(&mut self, hits: &[usize], outer: Open, inlined: impl FnOnce() -> Inlined) {
        let place = self.inlined.len() as u32;
        let mut is_linked = false;
        for &i in hits {
            // Only in the function that has the address, and below an inlined function at each
            // level before.
            let is_ours = self.functions[i]
                .as_ref()
                .is_some_and(|(function, _)| *function == outer.function);
            if is_ours && self.depths[i] == outer.level {
                if (outer.level as usize) < MOST_INLINED {
                    self.links.push((i as u32, outer.level, place));
                } else {
                    self.innermost.insert(i as u32, place);
                }
                self.depths[i] += 1;
                is_linked = true;
            }
        }
        if is_linked {
            self.inlined.push(inlined());
        }
    }
}

/// The attributes of an entry that matter here.
#[derive(Default)]
struct Entry<'d> {
    pcs: Pcs,
    naming: NameAttributes<'d>,
    call_file: Option<u64>,
    call_line: Option<u32>,
    call_column: Option<u32>,
}

#[derive(Default)]
struct NameAttributes<'d> {
    linkage: Option<AttributeValue<Slice<'d>>>,
    bare: Option<AttributeValue<Slice<'d>>>,
    /// The entry that this one is an instance or the definition of.
    origin: Option<AttributeValue<Slice<'d>>>,
}

impl<'d> Entry<'d> {
    fn note(
        &mut self,
        unit: UnitRef<'_, Slice<'d>>,
        attribute: &gimli::Attribute<Slice<'d>>,
    ) -> Result<(), gimli::Error> {
        let number = || {
            attribute
                .udata_value()
                .and_then(|value| u32::try_from(value).ok())
                .filter(|&value| value != 0)
        };
        match attribute.name() {
            gimli::DW_AT_call_file => {
                if let AttributeValue::FileIndex(file) = attribute.value() {
                    // Before DWARF 5, 0 is "no file".
                    self.call_file = (file > 0 || unit.header.version() >= 5).then_some(file);
                }
            }
            gimli::DW_AT_call_line => self.call_line = number(),
            gimli::DW_AT_call_column => self.call_column = number(),
            gimli::DW_AT_low_pc | gimli::DW_AT_high_pc | gimli::DW_AT_ranges => {
                self.pcs.note(unit, attribute)?
            }
            _ => self.naming.note(attribute),
        }
        Ok(())
    }
}

impl<'d> NameAttributes<'d> {
    fn note(&mut self, attribute: &gimli::Attribute<Slice<'d>>) {
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
struct Naming<'u, 'd, 'n> {
    unit: UnitRef<'u, Slice<'d>>,
    elsewhere: Option<&'n dyn Elsewhere>,
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
        elsewhere: Option<&dyn Elsewhere>,
        names: &Names,
        scopes: &LazyScopes<'_>,
        hops: u32,
    ) -> Option<RawName> {
        let hops = hops.checked_sub(1)?;
        match self {
            Referred::Unit(at) => name_at(unit, at, elsewhere, names, scopes, hops).ok()?,
            Referred::File(at) => elsewhere?.name(at, hops),
            Referred::Supplementary(at) => elsewhere?.supplementary_name(at, hops),
        }
    }
}

impl<'d> Naming<'_, 'd, '_> {
    fn of(&mut self, at: UnitOffset, attributes: &NameAttributes<'d>) -> Option<RawName> {
        let Naming {
            unit,
            elsewhere,
            names,
            namespaces,
            known,
        } = self;
        attributes.resolve(*unit, at, names, namespaces, |origin| {
            let origin = Referred::of(origin)?;
            known
                .entry(origin)
                .or_insert_with(|| origin.name(*unit, *elsewhere, names, namespaces, MOST_HOPS))
                .clone()
        })
    }

    fn physical(&mut self, at: UnitOffset, entry: &Entry<'d>, mangles: bool) -> Physical {
        match self.of(at, &entry.naming) {
            Some(RawName { name, bare }) => Physical {
                name: Some(name),
                partial: bare.filter(|_| mangles),
            },
            None => Physical {
                name: None,
                partial: None,
            },
        }
    }

    fn inlined(&mut self, at: UnitOffset, entry: &Entry<'d>) -> Inlined {
        Inlined {
            name: self.of(at, &entry.naming).map(|name| name.name),
            call_file: entry.call_file,
            call_line: entry.call_line,
            call_column: entry.call_column,
        }
    }
}

/// The name of the entry at an offset of `unit`.
pub(super) fn name_at(
    unit: UnitRef<'_, Slice<'_>>,
    at: UnitOffset,
    elsewhere: Option<&dyn Elsewhere>,
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
        Referred::of(origin)?.name(unit, elsewhere, names, scopes, hops)
    }))
}

/// Returns true if a function's linkage name says more than its bare name in this language.
fn mangles_names(language: DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_Rust
            | gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
            | gimli::DW_LANG_D
            | gimli::DW_LANG_Swift
            | gimli::DW_LANG_ObjC_plus_plus
    )
}
