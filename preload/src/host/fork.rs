//! fork: the child is a process of its own.
//!
//! Law 7: it touches nothing whose state another thread of the parent owned. The parent's session and
//! writer are left behind unread, but for which ids were given and, if it stood still, its ledger (`writer/dump/inherited.rs`); the tables of samples are lock-free and stay, so that frees of blocks
//! that the parent sampled find them; the child's own session begins with its first sample.
//!
//! Which handlers are called when: `host/atfork.rs`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::allocator::{large_cache, magazines};
use crate::hooks::sample;
use crate::host::{exit, main_thread, seccomp_filters, setid};
use crate::os::{clock, diagnostics, fd_table, sys};
use crate::recording::sampled_blocks;
use crate::recording::{byte_count, requests, seats, session};
use crate::state::thread::{self, Inside, Thread};
use crate::state::{counters, interval};
use crate::unwind::modules;
use crate::writer::dump::inherited;
use crate::writer::log::parent_log;
use crate::writer::{self, quiesce, session_start};

/// The process we believe to be in; 0: one in which nothing is recorded.
static PID: AtomicU32 = AtomicU32::new(0);
/// Whether there is anything in this process that a copy of it could be wrong about.
static BOOTED: AtomicBool = AtomicBool::new(false);

/// Whether this process has made copies of itself, which name its log as where they come from.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// See [`HAS_FORKED`].
pub(crate) fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// At boot.
pub(crate) fn register() {
    PID.store(sys::getpid(), Ordering::Release);
    BOOTED.store(true, Ordering::Release);
}

/// Whether this is the process that our state belongs to, and not a vfork child that borrows it.
#[cold]
#[inline(never)]
pub(crate) fn is_own_process() -> bool {
    PID.load(Ordering::Acquire) == sys::getpid()
}

/// Whether this is a child before our handler has run in it: another one, registered earlier and past us, runs first. The
/// session in force is still the parent's.
#[inline]
pub(crate) fn is_unprepared_child(thread: &Thread) -> bool {
    thread.forking.get() && !is_own_process()
}

/// In the parent: from here on, what it does is not the child's. Afterwards would be too late: the parent may
/// run before the child does.
pub(crate) extern "C" fn before() {
    HAS_FORKED.store(true, Ordering::Relaxed);
    seccomp_filters::before_fork();
    let thread = thread::current();
    let is_recording = sample::is_recording();
    let session = session::current().filter(|_| is_recording && writer::keeps_ledger());
    thread.holds_writer.set(session.is_some_and(quiesce::ask));
    // Where recording has ended there may be no clock that could be read (`seccomp_filters::before_loss_of_counter`), and nobody wants to know.
    let now_ns = if is_recording { clock::now_ns() } else { 0 };
    thread.forking_ns.set(now_ns);
    thread.forking.set(true);
}

pub(crate) extern "C" fn in_parent() {
    let thread = thread::current();
    thread.forking.set(false);
    if thread.holds_writer.replace(false) {
        quiesce::release();
    }
}

pub(crate) extern "C" fn in_child() {
    let thread = thread::current();
    large_cache::after_fork(thread);
    magazines::after_fork(thread);
    if !BOOTED.load(Ordering::Acquire) {
        return thread.forking.set(false);
    }
    HAS_FORKED.store(false, Ordering::Relaxed);
    // Where recording has ended, it may be for a filter that would end this process for the question: then it is nobody's.
    let pid = if sample::is_recording() {
        sys::getpid()
    } else {
        0
    };
    let parent = PID.swap(pid, Ordering::AcqRel);
    let still = quiesce::held_until_now(thread.forking_ns.get());
    let held = thread.holds_writer.replace(false) && still;
    // Otherwise this process's parent allocated nothing: what it inherited is what this one inherits.
    let parent_recorded = session::current().is_some();
    if parent_recorded {
        inherited::after_fork(held);
    }
    session::abandon();
    requests::after_fork();
    interval::after_fork();
    sample::after_fork();
    sampled_blocks::after_fork();
    exit::after_fork();
    modules::after_fork();
    seats::after_fork(thread);
    counters::reset();
    main_thread::after_fork();
    writer::after_fork();
    fd_table::after_fork();
    diagnostics::after_fork();
    setid::after_fork();
    seccomp_filters::after_fork();
    byte_count::begin(thread);
    parent_log::after_fork(parent, thread.forking_ns.get());
    session_start::after_fork();
    session::after_fork(thread);
    thread.forking.set(false);
    thread.inside.set(Inside::No);
    // A mark of its own, from here: the parent's is the same in all its children, and where it fell would be forgotten.
    sample::redraw(thread);
}
