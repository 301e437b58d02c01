//! fork: the child is a process of its own.
//!
//! Law 7: it touches nothing whose state another thread of the parent owned. The parent's session, queue and
//! writer are left behind unread; the tables of samples are lock-free and stay, so that frees of blocks
//! that the parent sampled find them; the child's own session begins with its first sample.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::tls::{self, Inside, Thread};
use crate::{
    boot, clock, control, counters, desk, health, hold, hook, inheritance, main_thread, modules,
    session, setid, sys, walkers, writer,
};

/// The process we believe to be in.
static PID: AtomicU32 = AtomicU32::new(0);

/// At boot.
pub(crate) fn register() {
    PID.store(sys::getpid(), Ordering::Release);
    // SAFETY: functions that live as long as the process: the library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Whether this is the process that our state belongs to, and not a vfork child that borrows it.
pub(crate) fn is_own_process() -> bool {
    PID.load(Ordering::Acquire) == sys::getpid()
}

/// Whether this is a child before our handler has run in it: another one, registered earlier, runs first. The
/// session in force is still the parent's.
#[inline]
pub(crate) fn is_unprepared_child(thread: &Thread) -> bool {
    thread.forking.get() && !is_own_process()
}

/// In the parent: from here on, what it does is not the child's. Afterwards would be too late: the parent may
/// run before the child does.
extern "C" fn before() {
    let thread = tls::current();
    let session = session::current().filter(|_| hook::is_recording() && writer::keeps_ledger());
    thread.holds_writer.set(session.is_some_and(hold::ask));
    thread.forking_ns.set(clock::now_ns());
    thread.forking.set(true);
}

extern "C" fn in_parent() {
    let thread = tls::current();
    thread.forking.set(false);
    if thread.holds_writer.replace(false) {
        hold::release();
    }
}

extern "C" fn in_child() {
    let parent = PID.swap(sys::getpid(), Ordering::AcqRel);
    let thread = tls::current();
    let still = hold::held_until_now(thread.forking_ns.get());
    let held = thread.holds_writer.replace(false) && still;
    // Otherwise this process's parent allocated nothing: what it inherited is what this one inherits.
    let parent_recorded = session::current().is_some();
    if parent_recorded {
        inheritance::after_fork(held);
    }
    session::abandon();
    desk::after_fork();
    control::after_fork();
    hook::after_fork();
    modules::after_fork();
    walkers::after_fork();
    counters::reset();
    main_thread::after_fork();
    writer::after_fork();
    setid::after_fork();
    health::begin(thread);
    boot::after_fork(parent, thread.forking_ns.get());
    session::after_fork(thread);
    thread.forking.set(false);
    thread.inside.set(Inside::No);
}
