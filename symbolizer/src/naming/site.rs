//! Site: a place in the source that allocates, with its own numbers and those of all calls from
//! there.
//!
//! A block's own site is its innermost frame that is neither an allocation function nor the
//! internal code of a standard library: the caller of `Vec::push` is interesting, `Vec::push` is
//! not. Where an interpreter ran a function, the innermost of its functions is the site: the
//! functions of C that it calls are the same for all that it runs.

use std::collections::HashMap;
use std::sync::Arc;

use heapprof_core::Totals;

use crate::model::loaded_module::LoadedModule;
use crate::model::metric::{Metric, Numbers};
use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::crate_name::crate_of_file;
use crate::naming::own_frame::OwnFrame;
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;

/// The identity of a site.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteKey {
    /// Function, or module and offset when it has no name.
    pub function: String,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line in it.
    pub line: Option<u32>,
    /// Path of the module; empty for code outside all of them.
    pub module: String,
}

impl SiteKey {
    /// Returns a name that stands in the place of a site's: of memory that is no site's alone.
    pub(crate) fn of_no_site(name: &str) -> SiteKey {
        SiteKey {
            function: name.into(),
            file: None,
            line: None,
            module: String::new(),
        }
    }

    /// File and line, or else the module.
    pub fn place(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.to_string(),
            _ => self.module.clone(),
        }
    }
}

/// A site with its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Where it is.
    pub key: SiteKey,
    /// Allocated here.
    pub own: Numbers,
    /// The same with errors.
    pub own_totals: Totals,
    /// Allocated here and by what is called from here.
    pub cumulative: Numbers,
    /// The same with errors.
    pub cumulative_totals: Totals,
}

/// All sites of a profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sites {
    /// In no order until [`Sites::sort`].
    pub sites: Vec<Site>,
}

impl Sites {
    /// The sites of a profile: each frame of each stack.
    pub fn of(profile: &Profile, symbols: &Symbols) -> Sites {
        let mut index = Index::default();
        let stacks: Vec<StackSites> = profile
            .stacks
            .iter()
            .map(|stack| index.stack(profile, symbols, stack))
            .collect();
        for row in &profile.rows {
            let numbers = Numbers::of(&row.totals);
            let Some(stack) = stacks.get(row.stack as usize) else {
                continue;
            };
            let own = &mut index.sites[stack.own as usize];
            own.own += numbers;
            own.own_totals.merge(&row.totals);
            for &site in &stack.all {
                let site = &mut index.sites[site as usize];
                site.cumulative += numbers;
                site.cumulative_totals.merge(&row.totals);
            }
        }
        Sites { sites: index.sites }
    }

    /// Largest first, by own or by cumulative numbers; equal ones by name, so that the order does
    /// not change from run to run.
    pub fn sort(&mut self, metric: Metric, cumulative: bool) {
        self.sites.sort_by(|a, b| {
            let of = |site: &Site| {
                let (own, all) = (site.own.get(metric), site.cumulative.get(metric));
                if cumulative { (all, own) } else { (own, all) }
            };
            of(b).cmp(&of(a)).then_with(|| a.key.cmp(&b.key))
        });
    }
}

/// The sites that the stacks of a profile belong to, for numbers other than the four.
#[derive(Debug)]
pub struct SiteMap {
    keys: Vec<SiteKey>,
    stacks: Vec<StackSites>,
}

impl SiteMap {
    /// That of a profile.
    pub fn of(profile: &Profile, symbols: &Symbols) -> SiteMap {
        let mut index = Index::default();
        let stacks = profile
            .stacks
            .iter()
            .map(|stack| index.stack(profile, symbols, stack))
            .collect();
        SiteMap {
            keys: index.sites.into_iter().map(|site| site.key).collect(),
            stacks,
        }
    }

    /// All sites; the indices below are theirs.
    pub fn keys(&self) -> &[SiteKey] {
        &self.keys
    }

    /// The index of the site whose own the blocks of a stack are.
    pub fn own(&self, stack: u32) -> Option<usize> {
        Some(self.stacks.get(stack as usize)?.own as usize)
    }

    /// That site.
    pub fn own_of(&self, stack: u32) -> Option<&SiteKey> {
        self.keys.get(self.own(stack)?)
    }

    /// The sites that a stack passes, each once.
    pub fn all(&self, stack: u32) -> impl Iterator<Item = usize> + '_ {
        let sites = self.stacks.get(stack as usize);
        sites
            .into_iter()
            .flat_map(|sites| sites.all.iter().map(|&site| site as usize))
    }
}

/// The sites of one stack.
#[derive(Debug)]
struct StackSites {
    own: u32,
    /// Each once, however often the stack passes there.
    all: Vec<u32>,
}

/// The sites that a stack passes, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SitePath {
    /// The site whose own the blocks of the stack are.
    pub(crate) own: u32,
    /// Innermost first, as often as the stack passes there; none if the stack has no frames.
    pub(crate) sites: Vec<u32>,
}

/// The paths of all stacks of a profile whose stacks become more.
#[derive(Debug, Default)]
pub(crate) struct GrowingPaths {
    index: Index,
    paths: Arc<SitePaths>,
    generation: u64,
}

/// Sites, and the paths of stacks through them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SitePaths {
    /// All sites, by the numbers in the paths.
    pub(crate) keys: Vec<SiteKey>,
    /// By stack.
    pub(crate) stacks: Vec<SitePath>,
}

impl GrowingPaths {
    /// The paths of all stacks of the profile. In another generation, numbers of stacks mean other
    /// ones, and the paths begin anew.
    pub(crate) fn of(
        &mut self,
        profile: &Profile,
        generation: u64,
        symbols: &Symbols,
    ) -> Arc<SitePaths> {
        if self.generation != generation {
            *self = GrowingPaths {
                generation,
                ..GrowingPaths::default()
            };
        }
        let known = self.paths.stacks.len();
        if profile.stacks.len() > known {
            let paths = Arc::make_mut(&mut self.paths);
            for stack in &profile.stacks[known..] {
                let path = self.index.path(profile, symbols, stack);
                paths.stacks.push(path);
            }
            let news = self.index.sites.iter().skip(paths.keys.len());
            paths.keys.extend(news.map(|site| site.key.clone()));
        }
        Arc::clone(&self.paths)
    }
}

#[derive(Debug, Default)]
struct Index {
    sites: Vec<Site>,
    by_key: HashMap<SiteKey, u32>,
    /// The sites of a place, innermost first, and whether each is library code.
    by_place: HashMap<Place, Vec<(u32, bool)>>,
}

impl Index {
    fn stack(&mut self, profile: &Profile, symbols: &Symbols, stack: &CallStack) -> StackSites {
        let SitePath { own, sites } = self.path(profile, symbols, stack);
        let mut all = sites;
        all.push(own);
        all.sort_unstable();
        all.dedup();
        StackSites { own, all }
    }

    /// The sites that a stack passes, innermost first.
    fn path(&mut self, profile: &Profile, symbols: &Symbols, stack: &CallStack) -> SitePath {
        let mut all = Vec::new();
        let mut own = OwnFrame::new();
        for (depth, place) in profile.places(stack).enumerate() {
            let sites = match self.by_place.get(&place) {
                Some(sites) => sites,
                None => {
                    let frames = symbols.frames(place).iter();
                    let made = frames
                        .map(|frame| self.frame(profile, symbols, place, frame))
                        .collect();
                    self.by_place.entry(place).or_insert(made)
                }
            };
            for &(site, is_library_code) in sites {
                own.add(profile, stack, (depth, place), is_library_code, &site);
                all.push(site);
            }
        }
        let own = own.finish().unwrap_or_else(|| {
            self.site(SiteKey {
                function: "(no stack)".into(),
                file: None,
                line: None,
                module: String::new(),
            })
        });
        SitePath { own, sites: all }
    }

    fn frame(
        &mut self,
        profile: &Profile,
        symbols: &Symbols,
        place: Place,
        frame: &Frame,
    ) -> (u32, bool) {
        let module = profile.module_of(place);
        let key = SiteKey {
            function: symbols.function(profile, place, frame),
            file: frame.file.clone(),
            line: frame.line,
            module: module.map_or_else(String::new, |module| module.path.clone()),
        };
        let is_library_code = is_library_code(module, &key.function, key.file.as_deref());
        (self.site(key), is_library_code)
    }

    fn site(&mut self, key: SiteKey) -> u32 {
        let sites = &mut self.sites;
        *self.by_key.entry(key).or_insert_with_key(|key| {
            sites.push(Site {
                key: key.clone(),
                own: Numbers::default(),
                own_totals: Totals::default(),
                cumulative: Numbers::default(),
                cumulative_totals: Totals::default(),
            });
            sites.len() as u32 - 1
        })
    }
}

/// Returns true if a frame is an allocation function or internal code of a standard library:
/// nobody's site.
pub(crate) fn is_library_code(
    module: Option<&LoadedModule>,
    function: &str,
    file: Option<&str>,
) -> bool {
    module.is_some_and(|module| module.is_allocator())
        || is_allocator(function)
        || is_library(function)
        || file.is_some_and(is_library_file)
}

/// Returns true if a function of that name is an allocation function, of C, C++ or Rust.
pub fn is_allocator(function: &str) -> bool {
    const EXACT: [&str; 24] = [
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
        "__libc_malloc",
        "__libc_calloc",
        "__libc_realloc",
        "__libc_memalign",
        "__rust_alloc",
        "__rust_alloc_zeroed",
        "__rust_realloc",
        "__rdl_alloc",
        "__rdl_alloc_zeroed",
        "__rdl_realloc",
        "__rg_alloc",
        "__rg_alloc_zeroed",
        "__rg_realloc",
        "__rustc::__rust_alloc",
        "exchange_malloc",
    ];
    const BEGIN: [&str; 4] = [
        "operator new(",
        "operator new[](",
        "__rustc::__r",
        "alloc::alloc::",
    ];
    EXACT.contains(&function)
        || BEGIN.iter().any(|begin| function.starts_with(begin))
        || is_of_another_allocator(function)
        || is_inside_jemalloc(function)
        || function.contains(" as core::alloc::global::GlobalAlloc>::")
}

/// Returns true if the blocks of a stack come from `realloc` or a relative: it is among the
/// allocation functions at the top of the stack.
pub(crate) fn is_by_realloc(profile: &Profile, symbols: &Symbols, stack: &CallStack) -> bool {
    let names = profile.places(stack).flat_map(|place| {
        let frames = symbols.frames(place).iter();
        frames.map(move |frame| symbols.function(profile, place, frame))
    });
    let is_realloc = |name: String| name.contains("realloc") || name.ends_with("rallocx");
    names.take_while(|name| is_allocator(name)).any(is_realloc)
}

/// Returns true if a function of that name is inside jemalloc, whose own profiler stands on top of
/// the stacks in its dumps. Builds have prefixes: `je_prof_backtrace`, `_rjem_je_prof_backtrace`.
fn is_inside_jemalloc(function: &str) -> bool {
    const INSIDE: [&str; 9] = [
        "prof_backtrace_impl",
        "prof_backtrace",
        "prof_tctx_create",
        "prof_alloc_prep",
        "imalloc",
        "imalloc_body",
        "imalloc_no_sample",
        "malloc_default",
        "do_rallocx",
    ];
    let is_prefix = |text: &str| {
        text.is_empty() || text.ends_with('_') && (text.contains("je_") || text.contains("rjem_"))
    };
    let mut prefixes = INSIDE.iter().filter_map(|it| function.strip_suffix(it));
    prefixes.any(is_prefix) || function.starts_with("void* newImpl<")
}

/// Returns true if a function of that name is one by which jemalloc, mimalloc, tcmalloc or snmalloc
/// give out blocks. The library records some of them (`preload/src/hooks/taps/functions.rs`).
fn is_of_another_allocator(function: &str) -> bool {
    const JEMALLOCS: [&str; 3] = ["mallocx", "rallocx", "xallocx"];
    let rest = |prefixes: &[&str]| {
        let mut rests = prefixes.iter().filter_map(|it| function.strip_prefix(it));
        rests.next()
    };
    if let Some(rest) = rest(&["mi_heap_", "mi_", "tc_", "_rjem_", "je_"]) {
        let of_c = rest.contains("alloc") || rest.contains("memalign");
        return of_c || rest.starts_with("new");
    }
    JEMALLOCS.iter().any(|name| function.ends_with(name)) || function.starts_with("sn_rust_alloc")
}

/// Returns true if a function belongs to the standard library of C++ or Rust, or to what Rust's
/// maps are made of.
pub(crate) fn is_library(function: &str) -> bool {
    const ROOTS: [&str; 6] = [
        "std::",
        "__gnu_cxx::",
        "__cxxabiv1::",
        "alloc::",
        "core::",
        "hashbrown::",
    ];
    // `<alloc::vec::Vec<T> as core::clone::Clone>::clone`, `<&mut …`
    let function = function
        .trim_start_matches(['<', '&', '*'])
        .trim_start_matches("mut ");
    if ROOTS.iter().any(|root| function.starts_with(root)) {
        return true;
    }
    // C++ templates come with their return type: `void std::vector<…>::_M_realloc_insert<…>(…)`.
    // Only words before the first bracket can be one; `Foo<std::string>::bar(std::string)` is
    // Foo's.
    let plain = function.split(['<', '(']).next().unwrap_or(function);
    let after_type = plain.rsplit(' ').next().unwrap_or(plain);
    ROOTS[..3].iter().any(|root| after_type.starts_with(root))
}

/// Returns true if a source file belongs to the standard library of Rust or C++. Names do not tell
/// always: a method of a primitive type (`<str>::to_uppercase`), or an inlined function of which
/// only the last part of its name is known.
fn is_library_file(file: &str) -> bool {
    let rust = file.contains("/rustc/") && file.contains("/library/")
        || file.contains("/lib/rustlib/src/rust/library/")
        // Other crates, of which the standard library is made.
        || file.contains("/rust/deps/")
        || crate_of_file(file).as_deref() == Some("hashbrown");
    rust || file.contains("/include/c++/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_by_their_whole_name() {
        for name in [
            "malloc",
            "operator new(unsigned long)",
            "alloc::alloc::alloc",
            "__rdl_alloc",
            "_rjem_malloc",
            "je_arrow_private_mallocx",
            "mi_heap_malloc_aligned",
            "tc_newarray",
            "prof_backtrace_impl",
            "je_prof_tctx_create",
            "_rjem_je_prof_backtrace",
            "imalloc_body",
            "void* newImpl<false>(unsigned long)",
            "<tikv_jemallocator::Jemalloc as core::alloc::global::GlobalAlloc>::realloc",
        ] {
            assert!(is_allocator(name), "{name}");
        }
        for name in [
            "my_malloc",
            "malloc_pool",
            "allocate",
            "xmalloc",
            "operator new_thing",
            "mi_collect",
            "je_parse",
            "my_prof_backtrace",
            "imalloc_table",
            "Pool::malloc",
        ] {
            assert!(!is_allocator(name), "{name}");
        }
    }

    #[test]
    fn library_files_are_told_from_others() {
        for file in [
            "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/alloc/src/slice.rs",
            "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/ops/function.rs",
            "/rust/deps/hashbrown-0.15.2/src/raw/mod.rs",
            "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/hashbrown-0.16.0/src/map.rs",
            "/usr/include/c++/12/bits/new_allocator.h",
        ] {
            assert!(is_library_file(file), "{file}");
        }
        for file in [
            "/home/me/library/src/slice.rs",
            "/src/rustc/parser.rs",
            "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-1.0.1/src/de.rs",
            "a.c",
        ] {
            assert!(!is_library_file(file), "{file}");
        }
    }

    #[test]
    fn libraries_are_told_from_their_users() {
        for name in [
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
            "void std::vector<Foo>::_M_realloc_insert<Foo const&>(Foo const&)",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            "alloc::raw_vec::RawVec<T>::grow_one",
            "__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)",
        ] {
            assert!(is_library(name), "{name}");
        }
        for name in [
            "Foo<std::string>::bar(std::string const&)",
            "mystd::thing()",
            "load(std::string)",
            "<server::Table as core::default::Default>::default",
            "main",
            "standard",
        ] {
            assert!(!is_library(name), "{name}");
        }
    }
}
