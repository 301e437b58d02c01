//! Mapping changes: what the hooks record of a range that was mapped or unmapped.
//!
//! A mapping of at least [`LEAST`] bytes is recorded with its stack, and the end of each part of a
//! mapping without one. Nothing is sampled: the numbers are exact.
//!
//! Danger: callers of all kinds. An allocator calls while it holds its lock, a signal handler while
//! it interrupts a hook. So nothing here takes memory or a lock, and errno is preserved. Changes
//! before the session wait (`pending_mappings`). A session makes a thread, for which libc
//! allocates. So it begins here only if many changes or much memory wait, and no allocator and no
//! handler is among the callers.
//!
//! Not here: the exported functions (`mappings`).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heapprof_format::WalkEnd;

use crate::arch::registers::stack_pointer;
use crate::hooks::sample::{self, unless_it_panics};
use crate::os::cancellation::DeferredCancellation;
use crate::os::clock::{self, Ticks};
use crate::os::{errno, sys};
use crate::recording::events::MappingEvent;
use crate::recording::pending_mappings::{self, PendingStack};
use crate::recording::session::{self, Session};
use crate::recording::{regime, seats};
use crate::state::thread::{self, Entered, RunningCode, Thread};
use crate::state::{counters, phase, process};
use crate::unwind::walk::{self, WalkStart};

const PAGE: usize = sys::PAGE as usize;

/// Bytes from which a mapping is recorded; the largest number: none is, as before boot.
static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// True if no allocator of the program's own may be a caller.
static IS_OWN_ALLOCATOR_ALONE: AtomicBool = AtomicBool::new(false);

/// Begins the recording of mappings, at boot. `least` is in bytes; 0: none is recorded.
pub(crate) fn begin(least: u64, is_own_allocator_alone: bool) {
    let least = match usize::try_from(least) {
        Ok(least @ 1..) => least,
        _ => usize::MAX,
    };
    IS_OWN_ALLOCATOR_ALONE.store(is_own_allocator_alone, Ordering::Relaxed);
    LEAST.store(least, Ordering::Release);
}

/// The pages that a call has mapped, and by which stack. Without a length: the descriptor of a
/// thread that was made.
struct Mapped {
    entry: u64,
    start: u64,
    len: u64,
    here: WalkStart,
}

/// Returns true if mappings are recorded.
pub(super) fn are_recorded() -> bool {
    LEAST.load(Ordering::Acquire) != usize::MAX && phase::is_recording()
}

/// Records that a thread with that descriptor was made.
pub(super) fn on_thread_made(entry: u64, descriptor: u64, here: WalkStart) {
    on_large_mapped(&Mapped {
        entry,
        start: descriptor,
        len: MappingEvent::OF_THREAD,
        here,
    });
}

/// Records a mapping. One that is too small ends the recorded ones that it replaces.
#[inline(always)]
pub(super) fn on_mapped(entry: u64, start: usize, len: usize, replaces: bool, here: WalkStart) {
    if len < LEAST.load(Ordering::Acquire) {
        if replaces {
            on_unmapped(start, len, clock::ticks());
        }
        return;
    }
    let (start, len) = whole_pages(&(start..start.wrapping_add(len)));
    let mapped = Mapped {
        entry,
        start,
        len,
        here,
    };
    on_large_mapped(&mapped);
}

#[cold]
#[inline(never)]
fn on_large_mapped(mapped: &Mapped) {
    if !phase::is_recording() {
        return;
    }
    errno::preserve(|| {
        let _deferred = DeferredCancellation::begin();
        let thread = thread::current();
        match thread.enter() {
            Some(entered) => mapped_deferred(&entered, mapped),
            None if thread.running_code.get() == RunningCode::Hook => {
                counters::LOST_MAPPINGS.add(1);
            }
            None => {}
        }
    });
}

/// Records a mapping. Out of line, as [`unless_it_panics`] requires.
#[inline(never)]
extern "C" fn mapped_deferred(entered: &Entered, mapped: &Mapped) {
    unless_it_panics(|| {
        let thread = entered.thread;
        if process::is_unprepared_child(thread) {
            return;
        }
        let is_stopped = regime::of(thread).interval == 0;
        let Some(session) = session::current() else {
            if !is_stopped {
                push(entered, mapped);
            }
            return;
        };
        if thread.session.get() != session.number {
            session.register_thread(thread);
        }
        let stack = match is_stopped {
            true => None,
            false => sample::stack_of(entered, session, mapped.entry, mapped.here),
        };
        send(
            session,
            thread,
            (mapped.start, mapped.len),
            stack,
            clock::ticks(),
        );
    });
}

/// Lets a mapping wait for the session.
fn push(entered: &Entered, mapped: &Mapped) {
    let Some(mut seat) = seats::take(entered.thread) else {
        return counters::LOST_MAPPINGS.add(1);
    };
    let (walker, hazard) = seat.parts();
    let walked = walk::walk(entered, walker, hazard, mapped.entry, mapped.here);
    let stack = PendingStack {
        hash: walked.hash,
        end: walked.end,
        entry: mapped.entry,
        memo: walker.memos.chosen(),
    };
    if !pending_mappings::push(clock::ticks(), mapped.start, mapped.len, Some(&stack)) {
        counters::LOST_MAPPINGS.add(1);
    }
    // A handler may have interrupted the allocator.
    let is_in_handler = || {
        let mut frames = stack.memo.innermost_first();
        frames.any(|frame| !frame.returns)
    };
    let may_begin = pending_mappings::are_many()
        && IS_OWN_ALLOCATOR_ALONE.load(Ordering::Relaxed)
        && walked.end == WalkEnd::Root
        && !is_in_handler();
    drop(seat);
    if may_begin {
        sample::ready_session(entered, mapped.here);
    }
    // Another thread may have begun the session meanwhile.
    if let Some(session) = session::current() {
        session.replay_mappings(entered.thread);
    }
}

/// Records that a range is not what it was at that time.
#[inline(always)]
pub(super) fn on_unmapped(start: usize, len: usize, at: Ticks) {
    if LEAST.load(Ordering::Acquire) != usize::MAX && len > 0 && phase::is_recording() {
        on_recorded_unmapped(start, len, at);
    }
}

#[cold]
#[inline(never)]
fn on_recorded_unmapped(start: usize, len: usize, at: Ticks) {
    errno::preserve(|| {
        let _deferred = DeferredCancellation::begin();
        let thread = thread::current();
        if thread.running_code.get() == RunningCode::Ours {
            return;
        }
        // An end is recorded even inside a hook, as a free is: nothing here takes memory or a lock.
        let was_at = thread.entered_at.replace(stack_pointer());
        let outer_code = thread.running_code.replace(RunningCode::Hook);
        unmapped_deferred(thread, start, len, &at);
        thread.running_code.set(outer_code);
        thread.entered_at.set(was_at);
    });
}

/// Records an end. Out of line, as [`unless_it_panics`] requires.
#[inline(never)]
extern "C" fn unmapped_deferred(thread: &'static Thread, start: usize, len: usize, at: &Ticks) {
    unless_it_panics(|| {
        let range = start..start.wrapping_add(len);
        match session::current() {
            _ if process::is_unprepared_child(thread) => {}
            Some(session) => {
                if thread.session.get() != session.number {
                    session.register_thread(thread);
                }
                send(session, thread, whole_pages(&range), None, *at);
            }
            // Without a mapping that waits, there is none to end.
            None if pending_mappings::exist() => {
                let (start, len) = whole_pages(&range);
                if !pending_mappings::push(*at, start, len, None) {
                    counters::LOST_MAPPINGS.add(1);
                }
            }
            None => {}
        }
    });
}

/// Records that the heap's end moved.
pub(super) fn on_moved_end(entry: u64, before: usize, after: usize, here: WalkStart) {
    if after > before {
        on_mapped(entry, before, after - before, false, here);
    } else if after < before {
        on_unmapped(after.next_multiple_of(PAGE), before - after, clock::ticks());
    }
}

/// Returns the start and the length of the pages of a range, to which the kernel extends it.
fn whole_pages(range: &Range<usize>) -> (u64, u64) {
    let (start, end) = (range.start & !(PAGE - 1), range.end.next_multiple_of(PAGE));
    (start as u64, end.saturating_sub(start) as u64)
}

/// Sends a change of pages, of that start and length.
fn send(
    session: &Session,
    thread: &Thread,
    (start, len): (u64, u64),
    stack: Option<u64>,
    at: Ticks,
) {
    let sent = session.send_mapping(MappingEvent {
        at,
        start,
        len,
        stack: stack.unwrap_or(0),
        thread: thread.number.get(),
    });
    if !sent {
        counters::LOST_MAPPINGS.add(1);
    }
}
