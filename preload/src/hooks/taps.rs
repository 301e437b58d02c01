//! Taps: allocators that are linked into the program or into a library, tapped at the entries of
//! their functions.
//!
//! Glossary: function tap.
//!
//! Such an allocator is called directly, and not through a name that this library could define. So
//! the first instructions of its functions are moved into generated code nearby, and a jump to a
//! stub takes their place (`arch/tap_stubs`, core's `EntryPatch`):
//!
//! ```text
//!  program ──> mi_malloc ──jmp──> check ─┬─────────────> moved instructions ──> rest of mi_malloc
//!                                        └─> handler ─┬─> moved instructions ──> …
//!                                                     └─> sample
//! ```
//!
//! The allocator stays the program's: it serves each call, with the same arguments. One block is
//! one event. While the allocator serves a call, its own calls of tapped functions, or of malloc,
//! are not recorded. Functions that are known to make no such calls have the check, by which most
//! calls pass without the handler. A frame of the function itself is the innermost frame of each
//! stack.
//!
//! Functions are found by the symbols of the program and of its libraries. If a function cannot be
//! changed exactly, its whole allocator is left alone: a block that is recorded when it is
//! allocated must be seen when it is freed.
//!
//! Danger: code of the program is changed (`os/code`), at boot, before other threads exist, and
//! when a library has been opened ([`opened_libraries`]). In a running process it is changed from
//! outside ([`attach_taps`]), and when a library is opened ([`library_changes`]).

#[cfg(not(feature = "attach"))]
use std::ops::Range;

use heapprof_format::TAPPED_LATER;

use crate::os::diagnostics;
#[cfg(not(feature = "attach"))]
use crate::os::diagnostics::say;
use crate::os::link_map;
#[cfg(not(feature = "attach"))]
use crate::os::link_map::Module;

mod allocators;
#[cfg(feature = "attach")]
pub(crate) mod attach_taps;
#[cfg(not(feature = "attach"))]
mod enclosure;
mod functions;
#[cfg(feature = "attach")]
pub(crate) mod library_changes;
mod mapping_call;
#[cfg(not(feature = "attach"))]
pub(crate) mod opened_libraries;
mod plan;
mod tapped_function;
mod user_functions;

use allocators::for_each_allocator;
#[cfg(not(feature = "attach"))]
use plan::{PatchPlan, apply};

/// The result for one allocator, in words.
pub(crate) enum TapOutcome {
    /// It is tapped.
    Tapped(String),
    /// It is tapped at functions that the hooks may call, too, because it serves the program.
    TappedNext(String),
    /// It is left alone.
    Refused(String),
    /// It is the program's own malloc, and is left alone.
    RefusedMalloc(String),
    /// It is the loader, which is left alone.
    #[cfg(feature = "attach")]
    RefusedLoader(String),
    /// They are libc's functions for mappings, and are tapped.
    #[cfg(feature = "attach")]
    TappedMappings,
    /// They are libc's functions for mappings, and are left alone.
    #[cfg(feature = "attach")]
    RefusedMappings(String),
}

impl TapOutcome {
    fn is_tapped(&self) -> bool {
        matches!(self, TapOutcome::Tapped(_) | TapOutcome::TappedNext(_))
    }

    /// Returns the notice about an allocator of a library that the program has opened.
    fn notice_for_library(&self) -> Option<String> {
        match self {
            TapOutcome::Tapped(what) | TapOutcome::TappedNext(what) => {
                Some(format!("{TAPPED_LATER}{what}"))
            }
            TapOutcome::Refused(why) | TapOutcome::RefusedMalloc(why) => {
                Some(format!("blocks of {why}; they are not recorded"))
            }
            #[cfg(feature = "attach")]
            TapOutcome::RefusedLoader(_)
            | TapOutcome::TappedMappings
            | TapOutcome::RefusedMappings(_) => None,
        }
    }
}

/// At boot: reads the functions that the user names in `HEAPPROF_TAP`. Prints a line if the value
/// is wrong.
#[cfg(not(feature = "attach"))]
pub(crate) fn read_named(value: &str) {
    if let Err(why) = user_functions::set(value) {
        say!("HEAPPROF_TAP={value}: {why}; only known allocators are recorded");
    }
}

/// At boot: taps the allocators of the program and of its libraries. `owns_malloc`: the program's
/// own `malloc` stands before this library's, and is tapped, too.
///
/// The caller is the only thread, inside of our code.
#[cfg(not(feature = "attach"))]
pub(crate) fn install(owns_malloc: bool) -> Vec<TapOutcome> {
    let mut outcomes = Vec::new();
    for module in link_map::modules().filter(|module| !module.is_ours()) {
        install_in(module, owns_malloc, &|_| true, &mut outcomes);
    }
    note_absent_modules();
    if outcomes
        .iter()
        .any(|it| matches!(it, TapOutcome::TappedNext(_)))
    {
        enclosure::begin();
    }
    outcomes
}

/// Notes the modules of `HEAPPROF_TAP` that are not loaded. Such a name may be wrong.
fn note_absent_modules() {
    for named in user_functions::all() {
        if !link_map::modules().any(|module| named.is_of(module)) {
            diagnostics::put_notice_for_next_log(format_args!(
                "HEAPPROF_TAP names {}, which is not loaded at the start: its functions are \
                 recorded when the program opens it by a path",
                named.module()
            ));
        }
    }
}

/// Taps the allocators of a module. `is_at_rest` returns true if no other thread runs code in that
/// range.
#[cfg(not(feature = "attach"))]
fn install_in(
    module: &Module,
    owns_malloc: bool,
    is_at_rest: &dyn Fn(&Range<u64>) -> bool,
    outcomes: &mut Vec<TapOutcome>,
) {
    let take = &mut |planned: &PatchPlan, code: &Range<u64>| apply(planned, code, is_at_rest);
    for_each_allocator(module, owns_malloc, Some(take), outcomes);
}
