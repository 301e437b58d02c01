//! Names: the strings of a module, function names (demangled once) and file names, each kept once.
//!
//! Many threads resolve units of one module and meet the same names. The set has several locked
//! parts, so that threads seldom wait for each other. Strings are shared by reference count: a
//! frame costs a pointer.

use super::frame::Name;
use super::length::{LONGEST_LINKAGE, shortened};
use heapprof_core::NumberMap;
use std::borrow::{Borrow, Cow};
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

const PARTS: usize = 16;

/// A set that hands out the one shared copy of equal strings.
///
/// Strings are found by their hash, which is computed once: names are long, and asked for far more
/// often than they are new. Its key is random, so a file cannot be made whose names share one;
/// those that do are kept aside.
struct Interned<T> {
    parts: [Mutex<Part<T>>; PARTS],
    hasher: RandomState,
}

struct Part<T> {
    by_hash: NumberMap<u64, T>,
    /// Different from the one with the same hash.
    aside: Vec<T>,
}

impl<T: Borrow<str> + Clone> Part<T> {
    fn get(&self, hash: u64, text: &str) -> Option<&T> {
        let found = self.by_hash.get(&hash)?;
        if found.borrow() == text {
            return Some(found);
        }
        self.aside.iter().find(|other| (*other).borrow() == text)
    }

    /// Inserts a string that is not there yet.
    fn insert(&mut self, hash: u64, made: T) {
        match self.by_hash.entry(hash) {
            Entry::Vacant(free) => drop(free.insert(made)),
            Entry::Occupied(_) => self.aside.push(made),
        }
    }
}

impl<T: Borrow<str> + Clone> Interned<T> {
    fn new() -> Self {
        let part = || Part {
            by_hash: NumberMap::default(),
            aside: Vec::new(),
        };
        Interned {
            parts: std::array::from_fn(|_| Mutex::new(part())),
            hasher: RandomState::new(),
        }
    }

    fn get_or_insert(&self, text: &str, make: impl FnOnce(&str) -> T) -> T {
        let hash = self.hasher.hash_one(text);
        // The map's own places come from the low bits.
        let part = &self.parts[(hash >> 60) as usize % PARTS];
        // A set has no half-made state that a panicking thread could leave behind.
        let known = part
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(hash, text)
            .cloned();
        known.unwrap_or_else(|| {
            let made = make(text); // outside the lock: demangling takes microseconds
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            match part.get(hash, text) {
                Some(theirs) => theirs.clone(),
                None => {
                    part.insert(hash, made.clone());
                    made
                }
            }
        })
    }
}

/// A [`Name`] found by its raw form.
#[derive(Clone)]
struct ByRaw(Arc<Name>);

impl Borrow<str> for ByRaw {
    fn borrow(&self) -> &str {
        self.0.raw()
    }
}

/// A [`Name`] found by its raw form and its name in the source, with a zero byte between.
#[derive(Clone)]
struct ByBoth(Arc<str>, Arc<Name>);

impl Borrow<str> for ByBoth {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The function and file names met while resolving one module.
pub(super) struct Names {
    functions: Interned<ByRaw>,
    generic: Interned<ByBoth>,
    files: Interned<Arc<str>>,
}

impl Names {
    pub(super) fn new() -> Self {
        Names {
            functions: Interned::new(),
            generic: Interned::new(),
            files: Interned::new(),
        }
    }

    /// The one copy of a function's name. Bytes that are not UTF-8 are replaced.
    pub(super) fn function(&self, raw: &[u8]) -> Arc<Name> {
        let raw = bounded(raw);
        self.functions
            .get_or_insert(&raw, |raw| ByRaw(Arc::new(Name::new(raw))))
            .0
    }

    /// As `function`, with what the name in the source adds to it (see
    /// [`Name::generic_arguments`]).
    pub(super) fn generic_function(&self, raw: &[u8], source_name: &[u8]) -> Arc<Name> {
        let (raw, source_name) = (bounded(raw), bounded(source_name));
        let key = format!("{raw}\0{source_name}");
        let make = |key: &str| {
            let name = Name::with_source_name(&raw, &source_name);
            ByBoth(Arc::from(key), Arc::new(name))
        };
        self.generic.get_or_insert(&key, make).1
    }

    /// The one copy of a file's name.
    pub(super) fn file(&self, path: &[u8]) -> Arc<str> {
        self.files
            .get_or_insert(&shortened(&bounded(path)), |path| Arc::from(path))
    }
}

/// No name in a real program is longer. One in a hostile file may be the whole file, at every
/// offset.
fn bounded(bytes: &[u8]) -> Cow<'_, str> {
    match bytes.get(..LONGEST_LINKAGE) {
        Some(begin) if begin.len() < bytes.len() => {
            Cow::Owned(shortened(&String::from_utf8_lossy(begin)).into_owned())
        }
        _ => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_one_whatever_their_hashes() {
        let mut part = Part {
            by_hash: NumberMap::default(),
            aside: Vec::new(),
        };
        for text in ["a", "b", "c"] {
            assert!(part.get(7, text).is_none());
            part.insert(7, Arc::<str>::from(text));
        }
        let all = ["a", "b", "c"].map(|text| part.get(7, text).map(|found| &**found));
        assert_eq!(all, [Some("a"), Some("b"), Some("c")]);
        assert!(part.get(8, "a").is_none());

        let names = Names::new();
        let (first, second) = (names.function(b"_ZN1a1bEv"), names.function(b"_ZN1a1bEv"));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &names.function(b"_ZN1a1cEv")));
    }
}
