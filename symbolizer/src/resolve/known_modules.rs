//! Known modules: the names that were found for one log, for the next log with the same modules.
//!
//! ```text
//!   log ─┐                ┌─ known: an answer without its files
//!   log ─┼─ path, build-id┤
//!   log ─┘                └─ else from the files, and known from then on
//! ```
//!
//! A folder has the logs of many runs of one program. To read the files of the program and its
//! libraries takes far longer than to read a log. Only modules with a build-id are known: nothing
//! else tells that two logs mean the same file.
//!
//! The answers have a bound in bytes. Beyond it, the module that was asked for longest ago goes.
//! An answer with missing names stands for a short time: its files may come later.
//!
//! Not here: names that outlive the run of a reader (`kept`).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::module_symbols::ModuleSymbols;

/// An answer with missing names stands for so long.
const INCOMPLETE: Duration = Duration::from_secs(60);
/// Bytes of an address, and of a name beside its text.
const ADDRESS: usize = 12;
const NAME: usize = 80;

/// See the module's text.
#[derive(Debug)]
pub struct KnownModules {
    most: u64,
    modules: Mutex<Modules>,
}

#[derive(Debug, Default)]
struct Modules {
    by_identity: HashMap<(PathBuf, Box<[u8]>), Known>,
    bytes: u64,
    /// Rises with each question.
    questions: u64,
}

#[derive(Debug)]
struct Known {
    symbols: Arc<ModuleSymbols>,
    bytes: u64,
    /// When its first names were found.
    found: Instant,
    /// The last question for it.
    asked: u64,
}

impl KnownModules {
    /// So many bytes at most.
    pub fn of(most: u64) -> KnownModules {
        KnownModules {
            most,
            modules: Mutex::default(),
        }
    }

    /// Returns the bytes that the answers have.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Resolves addresses of a module: those that are known without its files.
    /// `by_files` resolves addresses from the files.
    pub(super) fn resolve(
        &self,
        path: &Path,
        build_id: Option<&[u8]>,
        svmas: &[u64],
        by_files: impl Fn(&[u64]) -> ModuleSymbols,
    ) -> ModuleSymbols {
        let Some(build_id) = build_id.filter(|id| !id.is_empty()) else {
            return by_files(svmas);
        };
        let known = self.lock().get(path, build_id);
        let is_missing = |svma: &u64| {
            let has = |(known, _): &(Arc<ModuleSymbols>, Instant)| known.has(*svma);
            !known.as_ref().is_some_and(has)
        };
        let missing: Vec<u64> = svmas.iter().copied().filter(is_missing).collect();
        let (whole, found) = match known {
            Some(known) if missing.is_empty() => known,
            known => {
                // Without the lock: other threads ask for other modules meanwhile.
                let news = by_files(&missing);
                match known {
                    Some((known, found)) => (Arc::new(known.with(news)), found),
                    None => (Arc::new(news), Instant::now()),
                }
            }
        };
        let answer = whole.only(svmas);
        if !missing.is_empty() {
            let identity = (path.to_owned(), build_id.into());
            self.lock().insert(identity, whole, found, self.most);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Modules> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for KnownModules {
    /// Each is its own.
    fn eq(&self, other: &KnownModules) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for KnownModules {}

impl Modules {
    fn get(&mut self, path: &Path, build_id: &[u8]) -> Option<(Arc<ModuleSymbols>, Instant)> {
        self.questions += 1;
        let identity = (path.to_owned(), build_id.into());
        let known = self.by_identity.get_mut(&identity)?;
        known.asked = self.questions;
        let is_complete = known.symbols.report.quality.unresolved == 0;
        let stands = is_complete || known.found.elapsed() < INCOMPLETE;
        stands.then(|| (Arc::clone(&known.symbols), known.found))
    }

    fn insert(
        &mut self,
        identity: (PathBuf, Box<[u8]>),
        symbols: Arc<ModuleSymbols>,
        found: Instant,
        most: u64,
    ) {
        let known = Known {
            bytes: bytes_of(&symbols),
            symbols,
            found,
            asked: self.questions,
        };
        self.bytes += known.bytes;
        if let Some(before) = self.by_identity.insert(identity, known) {
            self.bytes -= before.bytes;
        }
        while self.bytes > most {
            let modules = self.by_identity.iter();
            let Some((oldest, _)) = modules.min_by_key(|(_, known)| known.asked) else {
                return;
            };
            let oldest = oldest.clone();
            if let Some(known) = self.by_identity.remove(&oldest) {
                self.bytes -= known.bytes;
            }
        }
    }
}

/// About the bytes that an answer has in memory. Frames share their names.
fn bytes_of(symbols: &ModuleSymbols) -> u64 {
    let (mut texts, mut bytes) = (HashSet::new(), 0);
    for (_, frames) in symbols.iter() {
        bytes += ADDRESS + size_of_val(frames);
        for Frame { function, file, .. } in frames {
            if let Some(name) = function
                .as_ref()
                .filter(|it| texts.insert(Arc::as_ptr(it).addr()))
            {
                bytes += NAME + name.raw().len() + name.demangled().len();
            }
            if let Some(file) = file.as_ref().filter(|it| texts.insert(it.as_ptr().addr())) {
                bytes += NAME + file.len();
            }
        }
    }
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::super::locate::{ModuleRef, SearchPath};
    use super::super::module::resolve_module;
    use super::*;

    /// This program's own file, with its build-id.
    fn own_file() -> (PathBuf, Vec<u8>) {
        let path = std::env::current_exe().unwrap();
        let data = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let build_id = object::Object::build_id(&file).unwrap();
        (path, build_id.expect("linked with a build-id").to_vec())
    }

    /// Addresses of functions in this program.
    fn svmas() -> Vec<u64> {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let symbols = object::Object::symbols(&file);
        let functions =
            symbols.filter(|it| object::ObjectSymbol::kind(it) == object::SymbolKind::Text);
        let addresses = functions.map(|it| object::ObjectSymbol::address(&it));
        // From all over the file: neighbours may all be of a library without debug information.
        let mut svmas: Vec<u64> = addresses.filter(|&svma| svma > 0).step_by(99).collect();
        svmas.sort_unstable();
        svmas.dedup();
        svmas
    }

    fn by_files(path: &Path, build_id: &[u8], svmas: &[u64], search: &SearchPath) -> ModuleSymbols {
        let build_id = Some(build_id);
        resolve_module(&ModuleRef { path, build_id }, svmas, search)
    }

    fn resolve(
        known: &KnownModules,
        (path, build_id): (&Path, &[u8]),
        svmas: &[u64],
        search: &SearchPath,
    ) -> ModuleSymbols {
        known.resolve(path, Some(build_id), svmas, |svmas| {
            by_files(path, build_id, svmas, search)
        })
    }

    #[test]
    fn known_names_are_those_of_the_files_and_need_none() {
        let (path, build_id) = own_file();
        let svmas = svmas();
        let (some, others) = svmas.split_at(svmas.len() / 2);
        let search = SearchPath::default();
        let known = KnownModules::of(1 << 30);
        let whole = by_files(&path, &build_id, &svmas, &search);
        assert!(whole.report.quality.by_dwarf > 10, "{}", whole.report);

        resolve(&known, (&path, &build_id), some, &search);
        let few = resolve(&known, (&path, &build_id), others, &search);
        for (svma, frames) in few.iter() {
            assert_eq!(frames, whole.frames_of(svma));
        }
        assert_eq!(few.report.quality.asked, others.len() as u64);
        assert_eq!(few.iter().count(), others.len(), "only what was asked for");
        let all = resolve(&known, (&path, &build_id), &svmas, &search);
        assert!(all.iter().eq(whole.iter()));
        assert_eq!(
            all.report.quality.unresolved,
            whole.report.quality.unresolved
        );

        // No file is asked for what is known.
        let nowhere = SearchPath {
            sysroot: Some("/nonexistent".into()),
            debug_dirs: Vec::new(),
            ..SearchPath::default()
        };
        let again = resolve(&known, (&path, &build_id), &svmas, &nowhere);
        assert!(again.iter().eq(whole.iter()));
        // Another build at the same path is not known.
        let other = resolve(&known, (&path, &[7; 20]), &svmas, &nowhere);
        assert_eq!(other.report.quality.unresolved, svmas.len() as u64);
    }

    #[test]
    fn the_module_that_was_asked_for_longest_ago_goes() {
        let (path, build_id) = own_file();
        let svmas = svmas();
        let search = SearchPath::default();
        let bytes_of_one = {
            let known = KnownModules::of(1 << 30);
            resolve(&known, (&path, &build_id), &svmas, &search);
            known.bytes()
        };
        assert!(bytes_of_one > svmas.len() as u64 * 50, "{bytes_of_one}");
        // Room for two.
        let folder = tempfile::tempdir().unwrap();
        let copies: Vec<PathBuf> = (0..4)
            .map(|it| folder.path().join(it.to_string()))
            .collect();
        for copy in &copies {
            std::os::unix::fs::symlink(&path, copy).unwrap();
        }
        let known = KnownModules::of(bytes_of_one * 5 / 2);
        let is_known = |copy: &Path| {
            let modules = known.lock();
            let identity = (copy.to_owned(), build_id.clone().into());
            modules.by_identity.contains_key(&identity)
        };
        for copy in &copies[..3] {
            resolve(&known, (&copies[0], &build_id), &svmas, &search);
            resolve(&known, (copy, &build_id), &svmas, &search);
            assert!(known.bytes() <= known.most, "{}", known.bytes());
        }
        let known_now: Vec<bool> = copies.iter().map(|copy| is_known(copy)).collect();
        assert_eq!(known_now, [true, false, true, false]);
    }
}
