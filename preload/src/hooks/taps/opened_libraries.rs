//! Taps in libraries that the program opens while it runs.
//!
//! A library is tapped in the call of `dlopen` that has opened it, before the program gets the
//! handle. The library's constructors may have allocated before. Those blocks are unknown, and a
//! free of an unknown block is no error.
//!
//! Danger: code is changed while other threads exist. None of them runs it:
//!
//! - A thread that existed before the library does not call into it. It would find the library's
//!   functions by a handle, which nobody has yet, or by the name of an allocator's function that
//!   it was linked with and that nobody has defined before.
//! - A thread that the library has started may call into it. If the process has more threads than
//!   before the call, the library is tapped only while all of them wait in the kernel, outside of
//!   its code. This library waits for that for some milliseconds, and otherwise leaves the
//!   allocator alone.
//!
//! Not here: a library that is opened by its name alone. The loader looks for such a name where its
//! caller tells it to, so the call is made by the program itself (`host/dlopen`), and the library
//! is tapped in the next call with a path.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hooks::taps::{TapOutcome, install_in};
use crate::os::backoff::{self, Backoff};
use crate::os::diagnostics;
use crate::os::link_map;
use crate::os::procfs;
use crate::os::sys;
use crate::state::phase;
use crate::state::thread::{self, RunningCode};
use crate::unwind::modules;

/// The modules that have been looked at, by their identities. A thread that finds it locked
/// leaves it alone: the next call of `dlopen` looks again.
static SEEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// At boot: marks all modules as seen.
pub(crate) fn prepare() {
    if let Ok(mut seen) = SEEN.try_lock() {
        seen.extend(link_map::modules().map(link_map::Module::identity));
    }
}

/// After a call of `dlopen` that has succeeded: taps the allocators of new modules. `threads` is
/// the number of threads before the call; `None`: unknown.
pub(crate) fn tap_new_libraries(threads: Option<usize>) {
    if !phase::is_recording() {
        return;
    }
    let Some(entered) = thread::current().enter() else {
        return;
    };
    entered.thread.running_code.set(RunningCode::Ours);
    let (mut outcomes, mut tapped) = (Vec::new(), Vec::new());
    link_map::while_unchanged(&mut || tap_new_modules(threads, &mut outcomes, &mut tapped));
    outcomes.iter().for_each(report);
    for address in tapped {
        // No walk comes to a tapped function itself, which each stack begins with.
        modules::discover(&entered, address);
    }
}

/// After a call of `dlclose`: another module may appear where one has been.
pub(crate) fn forget_closed() {
    let Some(entered) = thread::current().enter() else {
        return;
    };
    entered.thread.running_code.set(RunningCode::Ours);
    link_map::while_unchanged(&mut || {
        if let Ok(mut seen) = SEEN.try_lock() {
            seen.retain(|&identity| link_map::modules().any(|it| it.identity() == identity));
        }
    });
}

/// `tapped` gets an address in each module that is tapped.
fn tap_new_modules(threads: Option<usize>, outcomes: &mut Vec<TapOutcome>, tapped: &mut Vec<u64>) {
    let Ok(mut seen) = SEEN.try_lock() else {
        return;
    };
    let is_at_rest = |code: &Range<u64>| {
        let mut patience = Backoff::with_limit(backoff::SHORT_NS);
        let has_started_none = || {
            let now = sys::threads();
            now == Some(1) || now.zip(threads).is_some_and(|(now, before)| now <= before)
        };
        loop {
            if has_started_none() || procfs::other_threads_wait_outside(code) {
                return true;
            }
            if !patience.pause() {
                return false;
            }
        }
    };
    for module in link_map::modules() {
        let identity = module.identity();
        if !seen.contains(&identity) {
            seen.push(identity);
            let known = outcomes.len();
            install_in(module, false, &is_at_rest, outcomes);
            if outcomes[known..].iter().any(TapOutcome::is_tapped) {
                tapped.push(identity as u64);
            }
        }
    }
}

/// Puts a notice into the log. A program may open a library again and again, so there is a bound.
fn report(outcome: &TapOutcome) {
    const MOST_NOTICES: usize = 32;
    static NOTICES: AtomicUsize = AtomicUsize::new(0);
    if NOTICES.fetch_add(1, Ordering::Relaxed) < MOST_NOTICES
        && let Some(notice) = outcome.notice_for_library()
    {
        diagnostics::put_notice(format_args!("{notice}"));
    }
}
