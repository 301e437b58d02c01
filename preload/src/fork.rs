//! fork: the child is a process of its own.
//!
//! Law 7: it touches nothing whose state another thread of the parent owned. The parent's session, queue and
//! writer are left behind unread; the tables of samples are lock-free and stay, so that frees of blocks
//! that the parent sampled find them; the child's own session begins with its first sample.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::tls::{self, Inside};
use crate::{boot, clock, counters, health, hook, main_thread, modules, session, sys, walkers};

/// The process we believe to be in.
static PID: AtomicU32 = AtomicU32::new(0);

/// At boot.
pub(crate) fn register() {
    PID.store(sys::getpid(), Ordering::Release);
    // SAFETY: functions that live as long as the process: the library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
}

/// Whether this is the process that our state belongs to, and not a vfork child that borrows it.
pub(crate) fn is_own_process() -> bool {
    PID.load(Ordering::Acquire) == sys::getpid()
}

/// In the parent: from here on, what it does is not the child's. Afterwards would be too late: the parent may
/// run before the child does.
extern "C" fn before() {
    tls::current().forking_ns.set(clock::now_ns());
}

extern "C" fn in_child() {
    let parent = PID.swap(sys::getpid(), Ordering::AcqRel);
    session::abandon();
    hook::after_fork();
    modules::after_fork();
    walkers::after_fork();
    counters::reset();
    main_thread::after_fork();
    let thread = tls::current();
    health::begin(thread);
    boot::after_fork(parent, thread.forking_ns.get());
    thread.inside.set(Inside::No);
    thread.session.set(0);
}
