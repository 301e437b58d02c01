//! Allocators: functions that show that a module brings an allocator of its own, whose blocks are
//! not recorded.

use memchr::memmem;
use object::{Object, ObjectSection, ObjectSymbol};

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

/// Returns the name of an allocator that seems to be in a file without symbols, by the beginnings
/// of its messages.
pub fn stripped_allocator<'data>(file: &impl Object<'data>) -> Option<&'static str> {
    const MESSAGES: [(&[u8], &str); 2] =
        [(b"<jemalloc>: ", "jemalloc"), (b"mimalloc: ", "mimalloc")];
    // Python 3.13 and later have mimalloc inside, and use it only if they are asked to.
    let mut exported = file.dynamic_symbols().filter(ObjectSymbol::is_definition);
    let is_python = exported.any(|symbol| symbol.name() == Ok("PyObject_Malloc"));
    if is_python || file.symbols().next().is_some() {
        return None;
    }
    let texts = file.section_by_name_bytes(b".rodata")?.data().ok()?;
    let mut found = MESSAGES.into_iter();
    found
        .find(|(message, _)| memmem::find(texts, message).is_some())
        .map(|(_, name)| name)
}

/// The name of an allocator's function that the file defines, or of the allocator in a file without
/// symbols.
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
    let function = names().find(|name| is_of_an_allocator(name) && is_confirmed(name));
    match function {
        Some(function) => Some(function.to_owned()),
        None => Some(format!("{}, by its messages", stripped_allocator(file)?)),
    }
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
