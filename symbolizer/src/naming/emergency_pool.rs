//! Emergency pool: the memory that libstdc++ keeps for throwing exceptions when there is no other.
//!
//! A static initialiser of the library allocates it when a program of C++ starts. Mostly no symbol
//! names that code, and its callers are the loader's. So the place has a name of its own.

use std::sync::Arc;

use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::site::is_allocator;
use crate::naming::symbols::Symbols;
use crate::resolve::{Frame, Name};

/// Its name. It is no function's, and so no library code.
const NAME: &str = "(libstdc++'s emergency pool for exceptions)";

/// The initialiser of libstdc++'s `eh_alloc.cc`, where the library is linked into the program.
const INITIALISERS: [&str; 2] = [
    "_GLOBAL__sub_I__ZN9__gnu_cxx9__freeresEv",
    "_GLOBAL__sub_I_eh_alloc.cc",
];

impl Symbols {
    /// Names the places that allocate the pool.
    pub(crate) fn name_emergency_pool(&mut self, profile: &Profile) {
        let stacks = profile.stacks.iter();
        let places: Vec<Place> = stacks
            .filter_map(|stack| pool_in(profile, self, stack))
            .collect();
        for place in places {
            let frame = Frame {
                function: Some(Arc::new(Name::new(NAME))),
                file: None,
                line: None,
                column: None,
                inlined: false,
            };
            self.replace_frames(place, vec![frame]);
        }
    }
}

/// The place that calls the allocation function, if it is the pool's initialiser. The library has
/// no other one that the loader calls and that allocates.
fn pool_in(profile: &Profile, symbols: &Symbols, stack: &CallStack) -> Option<Place> {
    let mut places = profile.places(stack).peekable();
    let place = places.find(|&place| !allocates(profile, symbols, place))?;
    let module_is = |place: &Place, begins: &[&str]| {
        let module = profile.module_of(*place);
        module.is_some_and(|it| begins.iter().any(|begin| it.name().starts_with(begin)))
    };
    let caller = places.peek();
    let is_shared = module_is(&place, &["libstdc++.so"])
        && caller.is_some_and(|caller| module_is(caller, &["ld-", "ld.so"]));
    let is_initialiser = || {
        let names = symbols
            .frames(place)
            .iter()
            .filter_map(|it| it.function.as_ref());
        let mut names = names.map(|name| name.raw());
        names.any(|name| INITIALISERS.contains(&name))
    };
    (is_shared || is_initialiser()).then_some(place)
}

/// Returns true if it is in an allocation function.
fn allocates(profile: &Profile, symbols: &Symbols, place: Place) -> bool {
    let module = profile.module_of(place);
    module.is_some_and(|module| module.is_allocator())
        || (symbols.frames(place).iter()).any(|frame| {
            let name = frame.function.as_ref();
            name.is_some_and(|name| is_allocator(name.demangled()))
        })
}
