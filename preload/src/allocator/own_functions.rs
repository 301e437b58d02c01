//! Own functions: those by which a program calls one certain allocator, as `mallocx` and `mi_free`.
//!
//! A program that calls them may give them a block of `malloc`, or give `free` a block of theirs.
//! Both are the same allocator's, if that serves the program. So such a program keeps it
//! ([`next`](super::next)).

use std::ffi::CStr;

use crate::os::libc_trampolines;
use crate::os::link_map::{self, Module};

/// Functions of jemalloc's that give out or take blocks (jemalloc(3), "Non-standard API").
const JEMALLOC: [&CStr; 6] = [
    c"mallocx",
    c"rallocx",
    c"xallocx",
    c"sallocx",
    c"dallocx",
    c"sdallocx",
];
/// The beginnings of all names of mimalloc's and gperftools' own functions.
const PREFIXES: [&[u8]; 2] = [b"mi_", b"tc_"];
/// Functions by which such an allocator is known.
const SIGNATURES: [&CStr; 3] = [c"mallocx", c"mi_malloc", c"tc_malloc"];

/// A module that calls an own function.
pub(crate) struct OwnCall {
    /// The module's path; empty for the program.
    pub(crate) caller: &'static CStr,
    /// The name of the function.
    pub(crate) function: &'static CStr,
}

/// At boot or before: returns a call of an own function of the library.
fn call_into(library: &Module) -> Option<OwnCall> {
    let symbols = library.symbols()?;
    if !(SIGNATURES.iter()).any(|name| symbols.function(name).is_some()) {
        return None;
    }
    link_map::modules().find_map(|module| {
        let function = module.imported().find(|&name| {
            let is_own = |prefix: &&[u8]| name.to_bytes().starts_with(prefix);
            (JEMALLOC.contains(&name) || PREFIXES.iter().any(is_own))
                && symbols.function(name).is_some()
        })?;
        Some(OwnCall {
            caller: module.path(),
            function,
        })
    })
}

/// At boot or before: returns a call of an own function of the allocator that the program would
/// have without this library. A library in front of it may pass calls of `malloc` on to it. An
/// allocator behind libc serves no `malloc`.
pub(crate) fn call_into_next() -> Option<OwnCall> {
    let is_in_front = |module: &&Module| !libc_trampolines::is_libc(module);
    let mut libraries = link_map::behind_us().take_while(is_in_front);
    libraries.find_map(|it| it.function(c"malloc").and_then(|_| call_into(it)))
}

/// At boot or before: returns a call of an own function of any library but the program.
pub(crate) fn call_into_any() -> Option<OwnCall> {
    let mut libraries = link_map::modules().filter(|module| !module.is_program());
    libraries.find_map(call_into)
}
