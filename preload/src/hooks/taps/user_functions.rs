//! Named functions: the functions of an allocator that the user names in `HEAPPROF_TAP`, or for
//! `heapprof attach`.
//!
//! Danger: lists of functions are read without a lock, so no list is ever freed. A list differs
//! from the one before it only if the user names other functions when he attaches again.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::hooks::taps::functions::Call::{
    self, Allocate, AllocateArray, AllocateInto, Free, Resize,
};
use crate::os::executable;
use crate::os::link_map::Module;

/// The list; null: the user names none.
static NAMED: AtomicPtr<Vec<NamedFunctions>> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the functions that the user names.
pub(super) fn all() -> &'static [NamedFunctions] {
    // SAFETY: null, or a list that `set` has leaked and nobody changes.
    let named = unsafe { NAMED.load(Ordering::Acquire).as_ref() };
    named.map_or(&[], Vec::as_slice)
}

/// Returns those of a module.
pub(super) fn in_module(module: &Module) -> impl Iterator<Item = &'static NamedFunctions> {
    all().iter().filter(|named| named.is_of(module))
}

/// Reads the functions that the user names. An empty text names none.
///
/// # Errors
/// As [`parse`]; then the functions are those of before.
pub(super) fn set(value: &str) -> Result<(), String> {
    let named = parse(value)?;
    if named != all() {
        NAMED.store(Box::into_raw(Box::new(named)), Ordering::Release);
    }
    Ok(())
}

/// The functions of an allocator in one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedFunctions {
    /// The module's file name, or the end of its path.
    module: String,
    functions: Vec<(String, Call)>,
    /// The function that returns the usable bytes of a block.
    usable_size: Option<String>,
}

/// The effects of calls, by the names of C's functions with these effects.
const KINDS: [(&str, Call); 6] = [
    ("malloc", Allocate { size: 0 }),
    ("calloc", AllocateArray { count: 0, size: 1 }),
    ("realloc", Resize { ptr: 0, size: 1 }),
    ("free", Free { ptr: 0 }),
    ("memalign", Allocate { size: 1 }),
    ("posix_memalign", AllocateInto { place: 0, size: 2 }),
];

/// The kind of the function that returns the usable bytes of a block, which is not tapped.
const USABLE_SIZE: &str = "malloc_usable_size";

/// Reads `MODULE:KIND=FUNCTION,…`, and more of these behind semicolons.
///
/// # Errors
/// The part that is wrong, and the reason, in words.
fn parse(value: &str) -> Result<Vec<NamedFunctions>, String> {
    let modules = value.split(';').filter(|each| !each.is_empty());
    modules.map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<NamedFunctions, String> {
    let (module, functions) = text
        .rsplit_once(':')
        .filter(|(module, _)| !module.is_empty())
        .ok_or_else(|| format!("{text:?} is not MODULE:malloc=FUNCTION,free=FUNCTION"))?;
    let mut named = NamedFunctions {
        module: module.to_owned(),
        functions: Vec::new(),
        usable_size: None,
    };
    for each in functions.split(',') {
        let (kind, name) = each
            .split_once('=')
            .filter(|(_, name)| !name.is_empty())
            .ok_or_else(|| format!("{each:?} is not malloc=FUNCTION"))?;
        if kind == USABLE_SIZE {
            named.usable_size = Some(name.to_owned());
            continue;
        }
        let known = KINDS.iter().find(|(known, _)| *known == kind);
        let kinds = KINDS.map(|(known, _)| known).join(", ");
        let (_, call) =
            known.ok_or_else(|| format!("{kind:?} is none of {kinds}, {USABLE_SIZE}"))?;
        named.functions.push((name.to_owned(), *call));
    }
    let frees = |(_, call): &(String, Call)| matches!(call, Free { .. });
    match named.functions.iter().any(frees) {
        true => Ok(named),
        false => Err(format!("{text:?} names no function that frees")),
    }
}

impl NamedFunctions {
    /// Returns the module's file name, or the end of its path.
    pub(super) fn module(&self) -> &str {
        &self.module
    }

    /// Returns true if the functions are those of a module.
    pub(super) fn is_of(&self, module: &Module) -> bool {
        match module.is_program() {
            true => self.is_in(&executable::path()),
            false => self.is_in(module.path().to_bytes()),
        }
    }

    /// Returns true if the path is the module's.
    fn is_in(&self, path: &[u8]) -> bool {
        let rest = path.strip_suffix(self.module.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
    }

    /// Returns what a call of the function does. `None`: it is not named.
    pub(super) fn call(&self, name: &[u8]) -> Option<Call> {
        let mut functions = self.functions.iter();
        functions.find_map(|(known, call)| (known.as_bytes() == name).then_some(*call))
    }

    /// Returns the name of the function that returns the usable bytes of a block, if it is named.
    pub(super) fn usable_size(&self) -> Option<&str> {
        self.usable_size.as_deref()
    }

    /// Returns the names of the functions that are tapped.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_functions_are_read() {
        let value = "libpool.so:malloc=pool_get,free=pool_put,malloc_usable_size=pool_size;\
                     /srv/a:free=b";
        let named = parse(value).unwrap();
        assert_eq!(named.len(), 2);
        assert_eq!(named[0].call(b"pool_get"), Some(Allocate { size: 0 }));
        assert_eq!(named[0].call(b"pool_put"), Some(Free { ptr: 0 }));
        assert_eq!(named[0].call(b"malloc"), None);
        assert_eq!(named[0].call(b"pool_size"), None);
        let sizes = named.iter().map(NamedFunctions::usable_size);
        assert_eq!(sizes.collect::<Vec<_>>(), [Some("pool_size"), None]);
        assert!(named[0].is_in(b"/usr/lib/libpool.so"));
        assert!(named[0].is_in(b"libpool.so"));
        assert!(!named[0].is_in(b"/usr/lib/mylibpool.so"));
        assert!(named[1].is_in(b"/srv/a"));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (value, why) in [
            ("libpool.so", "is not MODULE"),
            (":free=b", "is not MODULE"),
            ("a:free", "is not malloc=FUNCTION"),
            ("a:free=", "is not malloc=FUNCTION"),
            ("a:get=b,free=c", "\"get\" is none of malloc, calloc"),
            ("a:malloc=b", "names no function that frees"),
            ("a:malloc_usable_size=b", "names no function that frees"),
        ] {
            let said = parse(value).unwrap_err();
            assert!(said.contains(why), "{value}: {said}");
        }
    }
}
