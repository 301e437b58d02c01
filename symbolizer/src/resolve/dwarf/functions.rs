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
use super::entry_names::{NameAttributes, Naming, OtherEntries, RawName};
use super::line_program::{FileNames, Row};
use super::pcs::Pcs;
use super::{Answer, Shared, Slice};
use crate::resolve::frame::{Frame, MOST_INLINED};
use crate::resolve::names::Names;
use gimli::{AttributeValue, DwLang, UnitOffset, UnitRef};
use std::collections::HashMap;

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
    others: Option<&dyn OtherEntries>,
    names: &Names,
    budget: &Budget,
    chains: &mut Chains,
) -> Result<(), ReadError> {
    let mut naming = Naming::new(unit, others, names, budget);
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
                chains.add_inlined(&hits, outer, || entry.inlined(at, &mut naming));
                Some(Open {
                    level: outer.level + 1,
                    ..outer
                })
            }
            _ => {
                budget.spend(hits.len() as u64)?;
                functions += 1;
                chains.add_function(&hits, functions, || {
                    entry.physical(at, &mut naming, mangles)
                });
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
        // Identical functions may be folded into one range of code; the first that claims it has
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

    fn physical(&self, at: UnitOffset, naming: &mut Naming<'_, 'd, '_>, mangles: bool) -> Physical {
        match naming.of(at, &self.naming) {
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

    fn inlined(&self, at: UnitOffset, naming: &mut Naming<'_, 'd, '_>) -> Inlined {
        Inlined {
            name: naming.of(at, &self.naming).map(|name| name.name),
            call_file: self.call_file,
            call_line: self.call_line,
            call_column: self.call_column,
        }
    }
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
