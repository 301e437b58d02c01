//! Libraries that come and go while heapprof is attached.
//!
//! For debuggers, glibc's loader calls an empty function (`_dl_debug_state`) at each change of its
//! list. The function is tapped as an allocator's is. So a thread of the program comes here, within
//! its call of `dlopen` or `dlclose`, while it has the loader's lock:
//!
//! ```text
//!  dlopen:   maps libraries, CONSISTENT, constructors, a handle for the program
//!                            └─ taps the allocators of the new libraries
//!  dlclose:  destructors, unmaps libraries, CONSISTENT
//!                                           └─ forgets the taps of closed libraries
//! ```
//!
//! Danger: code is changed while other threads exist. No thread runs it. A library that is new at
//! CONSISTENT has run no constructor, and nobody has a handle of it. No other thread can look up a
//! name in it, because that takes the loader's lock. New is a library that was not there at the
//! last CONSISTENT, or at the start of the recording ([`follow_from_here`]). If an announcement was
//! missed, the libraries at the next one are left alone. Code that is still to be relocated is left
//! alone, too.
//!
//! `heapprof detach` restores the entries from outside. The attach block has the order of both
//! ([`Changes`]).
//!
//! Not here: libraries of other namespaces (`dlmopen`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::attach_taps::{self, Attached};
use super::plan::{PatchPlan, write_jumps};
use super::{TapOutcome, for_each_allocator, tapped_function};
use crate::os::link_map::{self, Module};
use crate::os::{diagnostics, errno, private_stack};
use crate::recording::attach_block::Changes;
use crate::state::phase;
use crate::state::thread::{self, Entered, RunningCode};
use crate::unwind::modules;

/// Most notices in a recording about libraries that were opened.
const MOST_NOTICES: usize = 32;

/// The modules of a recording, by their identities.
struct KnownModules {
    /// Those whose allocators were looked for.
    looked_at: Vec<usize>,
    /// Those that were there at the last announcement.
    known: Vec<usize>,
    /// The lines in the log. A library may be opened again and again.
    told: Vec<String>,
}

/// A thread that finds it locked leaves it alone.
static KNOWN_MODULES: Mutex<KnownModules> = Mutex::new(KnownModules {
    looked_at: Vec::new(),
    known: Vec::new(),
    told: Vec::new(),
});

/// True if the modules of the last announcement are not known.
static HAS_MISSED: AtomicBool = AtomicBool::new(true);

fn identities() -> impl Iterator<Item = usize> {
    link_map::modules().map(Module::identity)
}

/// Before a recording: notes that all modules are looked at. The loader's list does not change
/// meanwhile.
pub(crate) fn begin() {
    tapped_function::watch_loader(tap_new_libraries);
    HAS_MISSED.store(true, Ordering::Relaxed);
    if let Ok(mut seen) = KNOWN_MODULES.try_lock() {
        seen.told.clear();
        seen.looked_at.clear();
        seen.looked_at.extend(identities());
    }
}

/// When all entries are changed: modules that come from here on are new.
pub(crate) fn follow_from_here() {
    link_map::while_unchanged(&mut || {
        if let Ok(mut seen) = KNOWN_MODULES.try_lock() {
            seen.known.clear();
            seen.known.extend(identities());
            HAS_MISSED.store(false, Ordering::Relaxed);
        }
    });
}

/// Behind an announcement of the loader.
fn tap_new_libraries() {
    if !phase::is_recording() || !link_map::is_consistent() {
        return;
    }
    let has_missed = HAS_MISSED.swap(true, Ordering::Relaxed);
    let Some(entered) = thread::current().enter() else {
        return;
    };
    entered.thread.running_code.set(RunningCode::Ours);
    errno::preserve(|| {
        let work = || private_stack::run_deep(|| follow(&entered, has_missed));
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
            Ok(has_followed) => HAS_MISSED.store(!has_followed, Ordering::Relaxed),
            Err(_) => phase::give_up_after_panic("a tap of the loader"),
        }
    });
}

/// Follows the loader's list. `has_missed`: modules that are not known may be running. Returns
/// false if another thread is at work.
fn follow(entered: &Entered, has_missed: bool) -> bool {
    let (Ok(mut seen), Some(mut attached)) = (KNOWN_MODULES.try_lock(), attach_taps::lock()) else {
        return false;
    };
    let KnownModules {
        looked_at,
        known,
        told,
    } = &mut *seen;
    let is_new = |module: &&Module| !has_missed && !known.contains(&module.identity());
    let new: Vec<_> = link_map::modules().filter(is_new).collect();
    known.clear();
    known.extend(identities());
    looked_at.retain(|looked_at| known.contains(looked_at));
    forget_gone(&mut attached, &new);
    for module in new {
        looked_at.push(module.identity());
        let change = |planned: &PatchPlan| write(module, planned);
        let outcomes = attached.tap(module, Some(&change));
        if outcomes.iter().any(TapOutcome::is_tapped) {
            // No walk comes to a tapped function itself, which each stack begins with.
            modules::discover(entered, module.identity() as u64);
        }
        for notice in outcomes.iter().filter_map(TapOutcome::notice_for_library) {
            if told.len() < MOST_NOTICES && !told.contains(&notice) {
                diagnostics::put_notice(format_args!("{notice}"));
                told.push(notice);
            }
        }
    }
    true
}

/// Frees the code of the taps of modules that are gone.
fn forget_gone(attached: &mut Attached, come: &[&Module]) {
    // Without the right, the next recording does it.
    let Some(_changes) = Changes::begin() else {
        return;
    };
    for generated in attached.take_gone(come) {
        // SAFETY: the modules are unmapped, and the entries with them. A thread in the code would
        // be in a call of a module that the program has closed.
        unsafe { generated.free() };
    }
}

/// Changes the entries of an allocator, which are listed.
fn write(module: &Module, planned: &PatchPlan) -> Result<(), String> {
    if module.has_text_relocations() {
        return Err("its code is still to be relocated".into());
    }
    // SAFETY: no thread runs code of the module: see the module's text.
    unsafe { write_jumps(planned) }
}

/// Before the end of a recording: notes the allocators of modules that have come unseen.
pub(crate) fn note_untapped() {
    let mut untapped = Vec::new();
    link_map::while_unchanged(&mut || {
        let Ok(seen) = KNOWN_MODULES.try_lock() else {
            return;
        };
        let is_new =
            |module: &&Module| !module.is_ours() && !seen.looked_at.contains(&module.identity());
        for module in link_map::modules().filter(is_new) {
            for_each_allocator(module, false, None, &mut untapped);
        }
    });
    for outcome in untapped.iter().take(MOST_NOTICES) {
        if let TapOutcome::Refused(name) = outcome {
            diagnostics::put_notice(format_args!(
                "blocks of {name} are not recorded: it was opened just when heapprof was attached; \
                 attach again while it is open"
            ));
        }
    }
}
