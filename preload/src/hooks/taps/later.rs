//! Allocators in libraries that the program opens while heapprof is attached to it.
//!
//! They are named when the recording ends, and not tapped. The entries are changed from outside,
//! while all threads are stopped, and the program that stops them may have gone. A tap of `dlopen`
//! cannot look behind the call: the loader looks for a name where the caller of `dlopen` tells it
//! to, and the caller would be this library. docs/hosts.md has the other ways.

use std::sync::Mutex;

use super::{Outcome, for_each_allocator};
use crate::os::{diagnostics, link_map};

/// Most lines about such libraries.
const MOST_LINES: usize = 8;

/// The modules that were there when the taps were prepared, by their identities.
static SEEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Before a recording: remembers the modules. The loader's list does not change meanwhile.
pub(crate) fn remember_modules() {
    if let Ok(mut seen) = SEEN.try_lock() {
        seen.clear();
        seen.extend(link_map::modules().map(link_map::Module::identity));
    }
}

/// Before the end of a recording: notes the allocators of modules that have come since.
pub(crate) fn note_untapped() {
    let mut untapped = Vec::new();
    link_map::while_unchanged(&mut || {
        let Ok(seen) = SEEN.try_lock() else {
            return;
        };
        let is_new =
            |module: &&link_map::Module| !module.is_ours() && !seen.contains(&module.identity());
        for module in link_map::modules().filter(is_new) {
            for_each_allocator(module, false, None, &mut untapped);
        }
    });
    for outcome in untapped.iter().take(MOST_LINES) {
        if let Outcome::Refused(name) = outcome {
            diagnostics::note(format_args!(
                "blocks of {name} are not recorded: it was opened after heapprof was attached; \
                 attach again while it is open"
            ));
        }
    }
}
