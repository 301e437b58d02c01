//! The strings of a module, each kept once: function names (demangled once) and file names.
//!
//! Many threads resolve units of one module and meet the same names; a set in 16 locked parts keeps them from
//! waiting for each other. What is handed out is shared by reference count, so a million frames cost a
//! million pointers.

use super::frame::Name;
use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

const PARTS: usize = 16;

/// No name in a real program is longer; one in a hostile file may be the whole file, at every offset.
const LONGEST: usize = 256 << 10;

/// A set that hands out the one shared copy of equal strings.
struct Interned<T> {
    parts: [Mutex<HashSet<T>>; PARTS],
    hasher: RandomState,
}

impl<T: Eq + Hash + Borrow<str> + Clone> Interned<T> {
    fn new() -> Self {
        Interned {
            parts: std::array::from_fn(|_| Mutex::new(HashSet::new())),
            hasher: RandomState::new(),
        }
    }

    fn get_or_insert(&self, text: &str, make: impl FnOnce(&str) -> T) -> T {
        let part = &self.parts[self.hasher.hash_one(text) as usize % PARTS];
        // A set has no half-made state that a panicking thread could leave behind.
        let known = part
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(text)
            .cloned();
        known.unwrap_or_else(|| {
            let made = make(text); // outside the lock: demangling takes microseconds
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            match part.get(text) {
                Some(theirs) => theirs.clone(),
                None => {
                    part.insert(made.clone());
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
impl PartialEq for ByRaw {
    fn eq(&self, other: &Self) -> bool {
        self.0.raw() == other.0.raw()
    }
}
impl Eq for ByRaw {}
impl Hash for ByRaw {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.raw().hash(state);
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
impl PartialEq for ByBoth {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for ByBoth {}
impl Hash for ByBoth {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
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

    /// As `function`, with what the name in the source adds to it (see [`Name::generic_arguments`]).
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
            .get_or_insert(&bounded(path), |path| Arc::from(path))
    }
}

fn bounded(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)])
}
