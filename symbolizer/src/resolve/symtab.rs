//! Symbol table: the symbols of a module, which name what DWARF does not, or does not name as well.
//!
//! ```text
//!   address   10        20        30        40
//!   outer     [─────────────────────────────)       size 30
//!   inner               [────)                      25 -> inner, 35 -> outer
//!   label                                   |····  size 0: to the next symbol or section's end
//! ```

use super::plt::{Stubs, Target};
use object::elf::{STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolFlags};
use std::borrow::Cow;
use std::cmp::Reverse;

/// The functions of a module by address.
#[derive(Default)]
pub(super) struct Symbols<'a> {
    /// By address; one per address, the one with the best name.
    sorted: Vec<Symbol<'a>>,
    /// `reach[i]`: the highest end of symbols 0..=i. Tells a walk back when nothing earlier can
    /// cover.
    reach: Vec<u64>,
    stubs: Vec<Stubs<'a>>,
}

#[derive(Clone, Copy)]
struct Symbol<'a> {
    svma: u64,
    /// Past its last byte.
    end: u64,
    has_size: bool,
    rank: Rank,
    name: &'a [u8],
}

/// The order of several names of one address; the smallest wins. (Function before bare label,
/// binding, known size, few leading underscores, short.)
type Rank = (bool, u8, bool, usize, usize);

/// Overlapping symbols are rare and shallow (a function and its local labels). In a hostile table
/// any depth is possible; this many steps back is the most one address may cost.
const DEEPEST_OVERLAP: usize = 256;

impl<'a> Symbols<'a> {
    /// The symbols of all the given files (of one build: they share an address space).
    pub(super) fn of(objects: impl IntoIterator<Item = &'a object::File<'a>>) -> Self {
        let (mut all, mut stubs) = (Vec::new(), Vec::new());
        for object in objects {
            stubs.push(Stubs::of(object));
            let text = executable_sections(object);
            for symbol in object.symbols().chain(object.dynamic_symbols()) {
                all.extend(function(&symbol, &text));
            }
        }
        all.sort_by_key(|symbol| (symbol.svma, symbol.rank, Reverse(symbol.end)));
        all.dedup_by_key(|symbol| symbol.svma);
        // A label without a size ends where the next symbol begins.
        for i in 1..all.len() {
            let next = all[i].svma;
            let before = &mut all[i - 1];
            if !before.has_size {
                before.end = before.end.min(next);
            }
        }
        let mut highest = 0;
        let reach = all
            .iter()
            .map(|symbol| {
                highest = highest.max(symbol.end);
                highest
            })
            .collect();
        Symbols {
            sorted: all,
            reach,
            stubs,
        }
    }

    /// The name of the function that covers an address, or of the stub that leads to one
    /// (`foo@plt`).
    pub(super) fn name_at(&self, svma: u64) -> Option<Cow<'a, [u8]>> {
        let stub = || {
            let name = match self.stubs.iter().find_map(|stubs| stubs.at(svma))? {
                Target::Named(name) => without_version(name),
                Target::PickedBy(function) => self.function_at(function)?,
            };
            Some(Cow::Owned([name, b"@plt"].concat()))
        };
        self.function_at(svma).map(Cow::Borrowed).or_else(stub)
    }

    fn function_at(&self, svma: u64) -> Option<&'a [u8]> {
        let after = self.sorted.partition_point(|symbol| symbol.svma <= svma);
        (0..after)
            .rev()
            .take(DEEPEST_OVERLAP)
            .take_while(|&i| self.reach[i] > svma)
            .find(|&i| svma < self.sorted[i].end)
            .map(|i| self.sorted[i].name)
    }
}

/// The sections that hold code, by number: number, first address, end.
fn executable_sections(object: &object::File<'_>) -> Vec<(usize, u64, u64)> {
    let is_code = |flags| match flags {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(object::elf::SHF_EXECINSTR),
        _ => false,
    };
    let code = object.sections().filter(|section| is_code(section.flags()));
    code.map(|section| {
        (
            section.index().0,
            section.address(),
            section.address().saturating_add(section.size()),
        )
    })
    .collect()
}

fn function<'a>(symbol: &object::Symbol<'a, '_>, text: &[(usize, u64, u64)]) -> Option<Symbol<'a>> {
    let SymbolFlags::Elf { st_info, .. } = symbol.flags() else {
        return None;
    };
    let (kind, binding) = (st_info.st_type(), st_info.st_bind());
    if !matches!(kind, STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE) || symbol.is_undefined() {
        return None;
    }
    let svma = symbol.address();
    let section = symbol
        .section_index()
        // A hostile file has as many sections as symbols.
        .and_then(|index| {
            text.binary_search_by_key(&index.0, |section| section.0)
                .ok()
        })
        .map(|at| &text[at]);
    let &(_, begin, section_end) = section?;
    if svma < begin || svma >= section_end {
        return None;
    }
    let name = without_version(symbol.name_bytes().ok()?);
    // `$x`, `$d`: ARM's marks where code and data begin. `.L…`: labels of assembly.
    if name.is_empty()
        || (kind == STT_NOTYPE && (name.starts_with(b"$") || name.starts_with(b".L")))
    {
        return None;
    }
    let size = symbol.size();
    let binding = match binding {
        STB_GLOBAL => 0,
        STB_WEAK => 1,
        _ => 2,
    };
    let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
    let is_mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    let underscores = if is_mangled { 0 } else { underscores };
    Some(Symbol {
        svma,
        end: if size == 0 {
            section_end
        } else {
            svma.saturating_add(size)
        },
        has_size: size != 0,
        rank: (
            kind == STT_NOTYPE,
            binding,
            size == 0,
            underscores,
            name.len(),
        ),
        name,
    })
}

/// `memcpy@@GLIBC_2.14` is `memcpy`.
fn without_version(name: &[u8]) -> &[u8] {
    match name.iter().position(|&byte| byte == b'@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}
