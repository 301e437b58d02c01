//! Selection: the stacks of a profile whose names match a pattern.

use std::collections::HashMap;

use crate::model::profile::{Place, Profile};
use crate::naming::pattern::Pattern;
use crate::naming::site::{SiteKey, SiteMap};
use crate::naming::symbols::Symbols;

/// The names of a stack that a pattern is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The allocation site: its function, or its file and line.
    Site,
    /// The function of any frame.
    Function,
    /// The module of the allocation site: its path.
    Module,
}

impl Subject {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Site => "site",
            Subject::Function => "function",
            Subject::Module => "module",
        }
    }

    /// Returns, for each stack of a profile, whether the pattern matches.
    pub fn select(self, pattern: &Pattern, profile: &Profile, symbols: &Symbols) -> Vec<bool> {
        match self {
            Subject::Function => in_any_function(pattern, profile, symbols),
            Subject::Site => of_sites(profile, symbols, |site| {
                pattern.matches_function(&site.function) || pattern.matches(&site.place())
            }),
            Subject::Module => of_sites(profile, symbols, |site| pattern.matches(&site.module)),
        }
    }

    /// Returns true if names are missing without which a pattern may match nothing.
    pub fn lacks_names(self, profile: &Profile, symbols: &Symbols) -> bool {
        match self {
            Subject::Module => false,
            Subject::Site => {
                let sites = SiteMap::of(profile, symbols);
                sites
                    .keys()
                    .iter()
                    .any(|site| site.function.starts_with('['))
            }
            Subject::Function => {
                let mut places = profile.stacks.iter().flat_map(|it| profile.places(it));
                places.any(|place| {
                    let is_of_program = profile
                        .module_of(place)
                        .is_none_or(|module| !is_of_system(module.name()));
                    let frames = symbols.frames(place);
                    is_of_program && frames.iter().any(|frame| frame.function.is_none())
                })
            }
        }
    }
}

/// Returns true for the modules that call a program's first function. Mostly nobody has all names
/// of the C library.
fn is_of_system(module: &str) -> bool {
    const BEGIN: [&str; 6] = [
        "libc.so",
        "libc-",
        "ld-",
        "libpthread",
        "[vdso]",
        "libheapprof",
    ];
    BEGIN.iter().any(|begin| module.starts_with(begin))
}

fn of_sites(profile: &Profile, symbols: &Symbols, matches: impl Fn(&SiteKey) -> bool) -> Vec<bool> {
    let sites = SiteMap::of(profile, symbols);
    let matching: Vec<bool> = sites.keys().iter().map(matches).collect();
    let is_selected = |stack: u32| sites.own(stack).is_some_and(|site| matching[site]);
    (0..profile.stacks.len() as u32).map(is_selected).collect()
}

fn in_any_function(pattern: &Pattern, profile: &Profile, symbols: &Symbols) -> Vec<bool> {
    let mut known: HashMap<Place, bool> = HashMap::new();
    let mut matches = |place: Place| {
        *known.entry(place).or_insert_with(|| {
            let frames = symbols.frames(place).iter();
            let mut functions = frames.map(|frame| symbols.function(profile, place, frame));
            functions.any(|function| pattern.matches_function(&function))
        })
    };
    let stacks = profile.stacks.iter();
    stacks
        .map(|stack| profile.places(stack).any(&mut matches))
        .collect()
}
