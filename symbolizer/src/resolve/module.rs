//! Module resolution: from one module's path to the frames of each address, and many modules at
//! once.

use super::allocators::allocator_in;
use super::dwarf;
use super::files::Files;
use super::frame::Frame;
use super::locate::{ModuleRef, SearchPath};
use super::module_symbols::ModuleSymbols;
use super::names::Names;
use super::report::{BuildId, ModuleReport, Reason};
use super::symtab::Symbols;
use crate::memory;
use rayon::prelude::*;

/// A module and the addresses in it that need names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleQuery<'a> {
    /// The module.
    pub module: ModuleRef<'a>,
    /// Its addresses as its file states them, in any order.
    pub svmas: &'a [u64],
}

/// Resolves many modules, on all cores. Known ones need no files. The answers are in the order of
/// the questions.
pub fn resolve_all(queries: &[ModuleQuery<'_>], search: &SearchPath) -> Vec<ModuleSymbols> {
    memory::start_threads();
    // One job a module; each splits further by compilation unit, so that one large module fills all
    // cores too.
    queries
        .par_iter()
        .with_max_len(1)
        .map(|query| match &search.known {
            Some(known) => {
                let ModuleRef { path, build_id } = query.module;
                known.resolve(path, build_id, query.svmas, |svmas| {
                    resolve_module(&query.module, svmas, search)
                })
            }
            None => resolve_module(&query.module, query.svmas, search),
        })
        .collect()
}

/// Resolves addresses of one module.
pub fn resolve_module(module: &ModuleRef<'_>, svmas: &[u64], search: &SearchPath) -> ModuleSymbols {
    let mut svmas = svmas.to_vec();
    svmas.sort_unstable();
    svmas.dedup();

    let build_id = module
        .build_id
        .filter(|id| !id.is_empty())
        .map(|id| BuildId(id.into()));
    let mut report = ModuleReport::new(module.path, build_id);
    let files = Files::open(&mut report, search);
    let names = Names::new();
    let mut answers = dwarf::resolve(&files, &svmas, &names, search, &mut report);
    report.quality.asked = svmas.len() as u64;
    name_by_symbols(&files, &svmas, &mut answers, &names, &mut report);
    assemble(report, svmas, answers)
}

/// Gives names from the symbol tables to what DWARF left without, or named less well.
fn name_by_symbols(
    files: &Files,
    svmas: &[u64],
    answers: &mut [dwarf::Answer],
    names: &Names,
    report: &mut ModuleReport,
) {
    let wants_symbol = |answer: &dwarf::Answer| {
        answer.frames.last().is_none_or(|frame| {
            frame.function.is_none() || answer.partial.is_some() || may_be_alias(frame)
        })
    };
    // Reading and sorting a symbol table costs more than a good debug file leaves for it to do.
    let objects: Vec<_> = if answers.iter().any(wants_symbol) {
        files
            .with_symbols()
            .filter_map(|file| file.object().ok())
            .collect()
    } else {
        Vec::new()
    };
    let symbols = Symbols::of(&objects);
    report.allocator = objects.iter().find_map(allocator_in);

    for (answer, &svma) in answers.iter_mut().zip(svmas) {
        let by_dwarf = answer
            .frames
            .last()
            .is_some_and(|frame| frame.function.is_some());
        if wants_symbol(answer)
            && let Some(raw) = symbols.name_at(svma)
        {
            name_physical_function(answer, names.function(&raw));
        }
        let named = answer
            .frames
            .last()
            .is_some_and(|frame| frame.function.is_some());
        match (by_dwarf, named) {
            (true, _) => report.quality.by_dwarf += 1,
            (false, true) => report.quality.by_symbols += 1,
            (false, false) => report.quality.unresolved += 1,
        }
    }
}

fn name_physical_function(answer: &mut dwarf::Answer, name: std::sync::Arc<super::Name>) {
    let Some(physical) = answer.frames.last_mut() else {
        answer.frames.push(Frame {
            function: Some(name),
            file: None,
            line: None,
            column: None,
            inlined: false,
        });
        return;
    };
    let replaces = match (&physical.function, &answer.partial) {
        (None, _) => true,
        // `foo` in DWARF, `_ZN2ns3fooEi` in the symbol table: the same function, better named.
        // Unless the symbol is another's: identical functions are folded into one symbol.
        (Some(_), Some(bare)) => {
            // `extern "C"` or `no_mangle` in a namespace: called as it is linked, without the
            // namespace.
            name.raw() == bare.raw()
                || (name.is_mangled() && name.demangled().contains(stem(bare.raw())))
        }
        // `__GI___libc_malloc`, `__qsort_r`: what the library calls itself; people call `malloc`,
        // `qsort_r`.
        (Some(internal), None) => internal.raw().ends_with(name.raw()),
    };
    if replaces {
        physical.function = Some(name);
    }
}

/// Returns the part that every spelling of a function's name contains. It is `grow` for
/// `grow<alloc::Global>`, because the legacy mangling of Rust has no arguments. It is `{closure`
/// for `{closure#0}`, which the legacy mangling calls `{{closure}}`.
fn stem(bare: &str) -> &str {
    let end = bare.find(['<', '#']).filter(|&end| end > 0);
    end.map_or(bare, |end| &bare[..end])
}

/// A C library defines a function under a reserved name and gives it its public one as an alias,
/// which only the symbol table has.
fn may_be_alias(frame: &Frame) -> bool {
    frame
        .function
        .as_ref()
        .is_some_and(|name| name.raw().starts_with("__") && !name.is_mangled())
}

fn assemble(
    mut report: ModuleReport,
    svmas: Vec<u64>,
    answers: Vec<dwarf::Answer>,
) -> ModuleSymbols {
    let mut frames = Vec::with_capacity(answers.iter().map(|answer| answer.frames.len()).sum());
    let mut begins = Vec::with_capacity(svmas.len() + 1);
    begins.push(0);
    for answer in answers {
        // 2^32 frames of 56 bytes do not fit into any machine this runs on; if one day they do, the
        // rest is unnamed.
        if u32::try_from(frames.len() + answer.frames.len()).is_ok() {
            frames.extend(answer.frames);
        }
        begins.push(frames.len() as u32);
    }
    // Nobody needs to hear what could be better when nothing was asked, or all is named with lines.
    let complete = report.quality.by_dwarf == report.quality.asked;
    report
        .reasons
        .retain(|reason| !(complete && matches!(reason, Reason::NoDebugInfo { .. })));
    ModuleSymbols {
        report,
        svmas,
        begins,
        frames,
    }
}
