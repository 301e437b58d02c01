//! Named profile: a log or a dump with the functions of all its stacks, read by the parts of the
//! `heapprof` program.

use std::path::{Path, PathBuf};

use heapprof_format::WalkEnd;
use heapprof_symbolizer::resolve::SearchPath;
use heapprof_symbolizer::{Input, Profile, Symbols};

/// See the module's text.
#[derive(Debug)]
pub struct Named {
    /// The numbers.
    pub profile: Profile,
    /// The functions of each stack of the profile, innermost first, inlined ones included.
    pub stacks: Vec<Vec<Function>>,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name without parameters, as fixtures print it.
    pub plain: String,
    /// Name of the file of its module; empty outside every module.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// True if it was inlined into the next.
    pub inlined: bool,
}

impl Function {
    /// Returns true if it belongs to the allocator: a fixture's stack does not begin with it.
    pub fn is_allocator(&self) -> bool {
        const C: [&str; 9] = [
            "malloc",
            "calloc",
            "realloc",
            "reallocarray",
            "posix_memalign",
            "aligned_alloc",
            "memalign",
            "valloc",
            "pvalloc",
        ];
        self.module.starts_with("libheapprof")
            || C.contains(&self.plain.as_str())
            || self.plain.starts_with("operator new")
    }
}

impl Named {
    /// Reads a profile, with names from the files of this machine.
    ///
    /// # Panics
    /// If the file cannot be read.
    #[track_caller]
    pub fn read(path: &Path) -> Named {
        Named::with(path, &SearchPath::default())
    }

    /// Reads a profile, with only the names in the file.
    ///
    /// # Panics
    /// If the file cannot be read.
    #[track_caller]
    pub fn read_alone(path: &Path) -> Named {
        let nowhere = SearchPath {
            debug_dirs: Vec::new(),
            sysroot: Some(PathBuf::from("/nonexistent")),
            ..SearchPath::default()
        };
        Named::with(path, &nowhere)
    }

    #[track_caller]
    fn with(path: &Path, search: &SearchPath) -> Named {
        match Input::open(path).and_then(|input| input.read(|_| {})) {
            Ok(profile) => Named::of(profile, search),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn of(profile: Profile, search: &SearchPath) -> Named {
        let symbols = Symbols::of(&profile, search);
        let functions_of = |stack| {
            let mut functions = Vec::new();
            for place in profile.places(stack) {
                let module = profile.module_of(place).map_or("", |module| module.name());
                for frame in symbols.frames(place) {
                    functions.push(Function {
                        plain: plain(&symbols.function(&profile, place, frame)).to_owned(),
                        module: module.to_owned(),
                        file: frame.file.as_deref().map(String::from),
                        line: frame.line,
                        inlined: frame.inlined,
                    });
                }
            }
            functions
        };
        let stacks = profile.stacks.iter().map(functions_of).collect();
        Named { profile, stacks }
    }

    /// Returns the site of a stack.
    pub fn site_of(&self, stack: usize) -> Option<&str> {
        let mut functions = self.stacks.get(stack)?.iter();
        let site = functions.find(|function| function.plain.starts_with("site_"))?;
        Some(&site.plain)
    }

    /// Returns true if a stack reaches its beginning: a thread's first function. Before main, that
    /// is the loader's entry, which has no unwind table and calls the constructors.
    pub fn is_whole(&self, stack: usize) -> bool {
        let in_loader = |function: &Function| function.module.starts_with("ld-linux");
        match self.profile.stacks[stack].end {
            Some(WalkEnd::Root) => true,
            Some(WalkEnd::NoRule) => self.stacks[stack].last().is_some_and(in_loader),
            _ => false,
        }
    }

    /// Returns the functions of a stack in one line, for messages.
    pub fn shown(&self, stack: usize) -> String {
        let functions = self.stacks[stack]
            .iter()
            .map(|function| function.plain.as_str());
        functions.collect::<Vec<_>>().join(" ")
    }
}

/// Returns a plain name: `Guard::~Guard() [clone .cold]`, `f.cold` and `f.part.0` are
/// `Guard::~Guard` and `f`.
fn plain(name: &str) -> &str {
    let end = match name.find(['(', ' ']) {
        Some(0) | None => name.len(),
        Some(_) if name.starts_with("operator ") => name.len(),
        Some(end) => end,
    };
    let name = &name[..end];
    name.find(".cold").map_or(name, |end| &name[..end])
}
