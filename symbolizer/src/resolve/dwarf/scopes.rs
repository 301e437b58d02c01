//! Scopes: the namespaces and classes that the functions of one unit are declared in.
//!
//! Without a linkage name, a function is only `push_back` to DWARF, where people read
//! `std::vector<int>::push_back`. Compilers omit the linkage name if no other file can link to the
//! function. That concerns templates and lambdas: gcc omits it for all that is static, in an
//! unnamed namespace or in a local class.
//!
//! ```text
//!  unit                                        Scopes::list, in the order of the file
//!    namespace std            0x20..0x90         0: 0x20..0x90 in nothing
//!      class vector<int>      0x30..0x80         1: 0x30..0x80 in 0
//!        subprogram push_back 0x40               0x40 is around(..) in 1, which is in 0
//! ```
//!
//! Scopes are read in a pass of their own, only for units that have such a function: most have
//! none.

use super::Slice;
use super::budget::{Budget, ReadError};
use gimli::{AttributeValue, DwTag, UnitOffset, UnitRef};
use std::sync::OnceLock;

/// How deep scopes may be, and how often one may be "as that other entry's". Beyond, the outer ones
/// are left out.
const DEEPEST: u32 = 64;

/// The longest text of joined scopes; template arguments of real programs reach some kilobytes.
const LONGEST: usize = 16 << 10;

/// See the module's text.
#[derive(Default)]
pub(super) struct Scopes {
    /// By where they begin. One lies in another or beside it.
    list: Vec<Scope>,
}

struct Scope {
    begin: usize,
    /// Where the entry after its last child begins.
    end: usize,
    /// The place of the scope around it in the list.
    outer: Option<u32>,
    kind: Kind,
}

/// The kind of a scope, as part of the names inside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Namespace,
    Class(&'static str),
    /// Part of the name only of what is inside of a class inside of it: a local class, a lambda.
    Function,
}

impl Kind {
    fn of(tag: DwTag) -> Option<Kind> {
        Some(match tag {
            gimli::DW_TAG_namespace => Kind::Namespace,
            gimli::DW_TAG_class_type => Kind::Class("(anonymous class)"),
            gimli::DW_TAG_structure_type => Kind::Class("(anonymous struct)"),
            gimli::DW_TAG_union_type => Kind::Class("(anonymous union)"),
            gimli::DW_TAG_enumeration_type => Kind::Class("(anonymous enum)"),
            gimli::DW_TAG_interface_type => Kind::Class("(anonymous interface)"),
            gimli::DW_TAG_subprogram => Kind::Function,
            _ => return None,
        })
    }

    /// Returns the text for a scope without a name.
    fn unnamed(self) -> Option<&'static str> {
        match self {
            Kind::Namespace => Some("(anonymous namespace)"),
            Kind::Class(words) => Some(words),
            Kind::Function => None,
        }
    }
}

impl Scopes {
    fn read(unit: UnitRef<'_, Slice<'_>>, budget: &Budget) -> Result<Scopes, ReadError> {
        budget.spend(unit.header.unit_length() as u64)?;
        let mut list: Vec<Scope> = Vec::new();
        // Those that the walk is inside of: depth in the tree, place in the list.
        let mut open: Vec<(isize, u32)> = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let (depth, at) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            entries.skip_attributes(abbreviation.attributes())?;
            while let Some(&(_, last)) = open.last().filter(|(inside, _)| *inside >= depth) {
                list[last as usize].end = at.0;
                open.pop();
            }
            if abbreviation.has_children()
                && let Some(kind) = Kind::of(abbreviation.tag())
                && let Ok(place) = u32::try_from(list.len())
            {
                list.push(Scope {
                    begin: at.0,
                    end: usize::MAX,
                    outer: open.last().map(|&(_, outer)| outer),
                    kind,
                });
                open.push((depth, place));
            }
        }
        Ok(Scopes { list })
    }

    /// The names of the scopes around an entry, joined; `None` when it is in none.
    pub(super) fn around(&self, unit: UnitRef<'_, Slice<'_>>, at: UnitOffset) -> Option<String> {
        self.named(unit, self.innermost(at), Kind::Function, DEEPEST)
    }

    /// The innermost scope that an entry is inside of.
    fn innermost(&self, at: UnitOffset) -> Option<&Scope> {
        let before = self.list.partition_point(|scope| scope.begin < at.0);
        let nearest = self.list.get(before.checked_sub(1)?);
        // Bounded as the depth of scopes is: each function of a hostile unit could climb out of
        // thousands.
        std::iter::successors(nearest, |scope| self.outer(scope))
            .take(DEEPEST as usize)
            .find(|scope| at.0 < scope.end)
    }

    fn outer(&self, scope: &Scope) -> Option<&Scope> {
        self.list.get(scope.outer? as usize)
    }

    /// The name of a scope behind those of the scopes around it; `inside` is what kind of thing it
    /// is around.
    fn named(
        &self,
        unit: UnitRef<'_, Slice<'_>>,
        scope: Option<&Scope>,
        inside: Kind,
        hops: u32,
    ) -> Option<String> {
        let (scope, hops) = (scope?, hops.checked_sub(1)?);
        if scope.kind == Kind::Function && !matches!(inside, Kind::Class(_)) {
            return self.named(unit, self.outer(scope), inside, hops);
        }
        self.entry(
            unit,
            UnitOffset(scope.begin),
            self.outer(scope),
            scope.kind,
            hops,
        )
    }

    /// The name of the entry at `at`, whose scope is `outer`, behind those of the scopes around it.
    fn entry(
        &self,
        unit: UnitRef<'_, Slice<'_>>,
        at: UnitOffset,
        outer: Option<&Scope>,
        kind: Kind,
        hops: u32,
    ) -> Option<String> {
        let (name, origin) = name_and_origin(unit, at).ok()?;
        if name.is_none()
            && let Some(origin) = origin.filter(|origin| *origin != at)
        {
            // Declared in one place, defined in another: the declaration is in the scope that
            // counts.
            let hops = hops.checked_sub(1)?;
            return self.entry(unit, origin, self.innermost(origin), kind, hops);
        }
        let outer = self.named(unit, outer, kind, hops);
        let own = name.as_deref().or(kind.unnamed());
        match (outer, own) {
            (Some(mut outer), Some(own)) if outer.len() + own.len() < LONGEST => {
                outer.push_str("::");
                outer.push_str(own);
                Some(outer)
            }
            (None, Some(own)) if own.len() < LONGEST => Some(own.to_owned()),
            (outer, _) => outer,
        }
    }
}

type NameAndOrigin = (Option<String>, Option<UnitOffset>);

fn name_and_origin(
    unit: UnitRef<'_, Slice<'_>>,
    at: UnitOffset,
) -> Result<NameAndOrigin, gimli::Error> {
    let (mut name, mut origin) = (None, None);
    let mut entries = unit.entries_raw(Some(at))?;
    if let Some(abbreviation) = entries.read_abbreviation()? {
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec)?;
            match (attribute.name(), attribute.value()) {
                (gimli::DW_AT_name, value) => {
                    let text = unit.attr_string(value)?;
                    let bytes = &text.slice()[..text.len().min(LONGEST)];
                    name = (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned());
                }
                (
                    gimli::DW_AT_specification | gimli::DW_AT_abstract_origin,
                    AttributeValue::UnitRef(at),
                ) => origin = Some(at),
                _ => {}
            }
        }
    }
    Ok((name, origin))
}

/// The scopes of a unit, read when the first is asked for.
pub(super) struct LazyScopes<'a> {
    scopes: Cell<'a>,
    budget: &'a Budget,
}

enum Cell<'a> {
    Own(OnceLock<Scopes>),
    Shared(&'a OnceLock<Scopes>),
}

impl<'a> LazyScopes<'a> {
    /// Creates the scopes of a unit that one thread reads through.
    pub(super) fn new(budget: &'a Budget) -> Self {
        LazyScopes {
            scopes: Cell::Own(OnceLock::new()),
            budget,
        }
    }

    /// Creates the scopes of a unit that is asked again and again; they are kept where the unit is.
    pub(super) fn shared(scopes: &'a OnceLock<Scopes>, budget: &'a Budget) -> Self {
        LazyScopes {
            scopes: Cell::Shared(scopes),
            budget,
        }
    }

    /// Pays for text that is copied: a name of a hostile file may be long, and be that of every
    /// function.
    pub(super) fn pay_for(&self, text: &str) -> Option<()> {
        self.budget.spend(text.len() as u64).ok()
    }

    /// The scopes of `unit`, which must be the same unit each time. None of a damaged one.
    pub(super) fn of(&self, unit: UnitRef<'_, Slice<'_>>) -> &Scopes {
        let cell = match &self.scopes {
            Cell::Own(cell) => cell,
            Cell::Shared(cell) => cell,
        };
        cell.get_or_init(|| Scopes::read(unit, self.budget).unwrap_or_default())
    }
}
