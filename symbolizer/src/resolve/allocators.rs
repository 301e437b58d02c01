//! Allocators: functions that show that a module brings an allocator of its own, whose blocks are
//! not recorded.

use object::{Object, ObjectSymbol};

/// Functions of jemalloc, mimalloc, gperftools, rpmalloc and snmalloc under their own names. C
/// libraries and preloaded allocators define `malloc` itself; these names are the ones for others
/// to call, or for a library's own use.
const FUNCTIONS: [&str; 9] = [
    "_rjem_malloc",
    "je_malloc",
    "mi_malloc",
    "mi_malloc_aligned",
    "tc_malloc",
    "rpmalloc",
    "snmalloc_malloc",
    "sn_malloc",
    "scalable_malloc",
];

/// jemalloc's own function, behind whatever prefix it was built with (`je_arrow_private_mallocx`).
const SUFFIX: &str = "mallocx";
/// Another one, which a function of a program that happens to end so has not beside it.
const SECOND_SUFFIX: &str = "dallocx";

/// Returns true if a function of that name is an allocator's.
pub fn is_of_an_allocator(function: &str) -> bool {
    FUNCTIONS.contains(&function) || function.ends_with(SUFFIX)
}

/// Returns true if the library taps the allocators with that function
/// (`preload/src/hooks/taps/functions.rs`).
pub fn is_tapped(function: &str) -> bool {
    [
        "malloc",
        "mi_malloc",
        "mi_malloc_aligned",
        "tc_malloc",
        "_rjem_malloc",
        "je_malloc",
    ]
    .contains(&function)
        || function.ends_with(SUFFIX)
}

/// The name of an allocator's function that the file defines.
pub(super) fn allocator_in(file: &object::File<'_>) -> Option<String> {
    let names = || {
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let defined = symbols.filter(|symbol| symbol.is_definition());
        defined.filter_map(|symbol| symbol.name().ok())
    };
    let is_confirmed = |name: &str| match name.strip_suffix(SUFFIX) {
        Some(prefix) => names().any(|it| it.strip_prefix(prefix) == Some(SECOND_SUFFIX)),
        None => true,
    };
    names()
        .find(|name| is_of_an_allocator(name) && is_confirmed(name))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::is_of_an_allocator;

    #[test]
    fn allocators_are_known_by_their_functions() {
        for name in ["mi_malloc", "_rjem_mallocx", "je_arrow_private_mallocx"] {
            assert!(is_of_an_allocator(name), "{name}");
        }
        for name in ["malloc", "PyObject_Malloc", "g_malloc"] {
            assert!(!is_of_an_allocator(name), "{name}");
        }
    }
}
