//! The name of the allocator that gave out a block: the one of the innermost frame, which is the
//! allocation function.

use crate::model::mapped_memory::{ANONYMOUS_MAPPING, MAPPING};
use crate::model::profile::{CallStack, Profile};
use crate::naming::symbols::Symbols;

/// The allocator of Python's small objects, and its mappings.
const PYMALLOC: &str = "Python's pymalloc, in arenas";
pub(crate) const ARENAS: &str = "[arenas of pymalloc]";

/// Returns the allocator of the blocks of a stack, in words.
pub(crate) fn allocator_of(profile: &Profile, symbols: &Symbols, stack: u32) -> String {
    const UNKNOWN: &str = "(unknown)";
    let Some(stack) = profile.stacks.get(stack as usize) else {
        return UNKNOWN.into();
    };
    let Some(place) = profile
        .places(stack)
        .next()
        .filter(|_| stack.begins_with_ours)
    else {
        return UNKNOWN.into();
    };
    if stack.labels.get(MAPPING).is_some() {
        return match is_of_pymalloc(profile, symbols, stack) {
            true => PYMALLOC.into(),
            false => "none: mapped".into(),
        };
    }
    let function = (symbols.frames(place).last())
        .map(|frame| symbols.function(profile, place, frame))
        .unwrap_or_default();
    let run = &profile.run;
    match profile.module_of(place) {
        // One of the serving allocator's own functions.
        Some(module) if !run.is_attached && run.allocator == module.path => {
            run.allocator_in_words().unwrap_or_else(|| UNKNOWN.into())
        }
        Some(module) if !module.is_profiler() => {
            let kind = kind_of(&function).or_else(|| kind_tapped_in(profile, &module.path));
            format!("{} in {}", kind.unwrap_or("allocator"), module.path)
        }
        _ if function.starts_with("heapprof_") => "reported by the program".into(),
        _ => run.allocator_in_words().unwrap_or_else(|| UNKNOWN.into()),
    }
}

/// Returns true if a stack has mapped an arena of Python's small objects.
pub(crate) fn is_of_pymalloc(profile: &Profile, symbols: &Symbols, stack: &CallStack) -> bool {
    let is_function = |name: String| name == "_PyObject_ArenaMmap" || name == "_PyMem_ArenaAlloc";
    profile.places(stack).any(|place| {
        let frames = symbols.frames(place).iter();
        let mut names = frames.map(|frame| symbols.function(profile, place, frame));
        names.any(is_function)
    })
}

/// Names the mappings of Python's small objects, which the kernel has no name for.
pub fn name_arenas(profile: &mut Profile, symbols: &Symbols) {
    let mut lines = std::mem::take(&mut profile.mappings.lines);
    for line in lines.iter_mut().filter(|it| it.name == ANONYMOUS_MAPPING) {
        let stack = line
            .stack
            .and_then(|stack| profile.stacks.get(stack as usize));
        if stack.is_some_and(|stack| is_of_pymalloc(profile, symbols, stack)) {
            line.name = ARENAS.to_owned();
        }
    }
    profile.mappings.lines = lines;
}

/// Returns the kind of the only allocator that was tapped in the module of that path.
fn kind_tapped_in(profile: &Profile, path: &str) -> Option<&'static str> {
    let kinds = ["jemalloc", "mimalloc", "tcmalloc", "snmalloc"];
    let mut tapped = profile.run.tapped_in(path);
    let only = tapped.find_map(|name| kinds.into_iter().find(|&kind| kind == name));
    let another = tapped.find(|name| kinds.contains(name));
    only.filter(|_| another.is_none())
}

/// Returns the kind of an allocator that has that function (`preload/src/hooks/taps/functions.rs`).
fn kind_of(function: &str) -> Option<&'static str> {
    const KINDS: [(&str, &str); 3] = [
        ("mi_", "mimalloc"),
        ("tc_", "tcmalloc"),
        ("sn_rust_", "snmalloc"),
    ];
    const JEMALLOCS: [&str; 5] = ["mallocx", "rallocx", "xallocx", "je_", "rjem_"];
    // A prefix may stand in front (`arrow_mi_free`).
    let is_of = |begin: &str| {
        let mut found = function.match_indices(begin);
        found.any(|(at, _)| at == 0 || function[..at].ends_with('_'))
    };
    let known = KINDS.iter().find(|(begin, _)| is_of(begin));
    match known {
        Some(&(_, kind)) => Some(kind),
        None => {
            let is_jemallocs = JEMALLOCS.iter().any(|part| function.contains(part));
            is_jemallocs.then_some("jemalloc")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn kinds_are_known_by_their_functions() {
        for (function, kind) in [
            ("mi_heap_malloc", Some("mimalloc")),
            ("arrow_mi_malloc_aligned", Some("mimalloc")),
            ("_rjem_malloc", Some("jemalloc")),
            ("je_arrow_mallocx", Some("jemalloc")),
            ("tc_newarray", Some("tcmalloc")),
            ("sn_rust_alloc", Some("snmalloc")),
            ("malloc", None),
            ("pool_get", None),
            ("semi_get", None),
        ] {
            assert_eq!(kind_of(function), kind, "{function}");
        }
    }
}
