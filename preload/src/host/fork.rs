//! fork: the child is a process of its own.
//!
//! Law 7: it touches nothing whose state another thread of the parent owned. The parent's session and
//! writer are left behind unread, but for which ids were given; the tables of samples are lock-free and stay, so that frees of blocks
//! that the parent sampled find them; the child's own session begins with its first sample.
//!
//! Which handlers are called when: `host/atfork.rs`.

use crate::host::{main_thread, seccomp_filters};
use crate::os::{clock, diagnostics, fd_table, sys};
use crate::recording::{
    byte_count, regime, request_word, requests, sampled_blocks, seats, session,
};
use crate::state::thread::{self, Inside};
use crate::state::{counters, interval, phase, process, shutdown};
use crate::unwind::modules;
use crate::writer::log::parent_log;
use crate::writer::{self, adopt_credentials, session_start};

/// In the parent: from here on, what it does is not the child's. Afterwards would be too late: the parent may
/// run before the child does.
pub(crate) extern "C" fn before() {
    process::will_fork();
    seccomp_filters::before_fork();
    let thread = thread::current();
    let is_recording = phase::is_recording();
    // Where recording has ended there may be no clock that could be read (`seccomp_filters::before_loss_of_counter`), and nobody wants to know.
    let now_ns = if is_recording { clock::now_ns() } else { 0 };
    thread.forking_ns.set(now_ns);
    thread.forking.set(true);
}

pub(crate) extern "C" fn in_parent() {
    let thread = thread::current();
    thread.forking.set(false);
}

pub(crate) extern "C" fn in_child() {
    let thread = thread::current();
    if !process::has_booted() {
        return thread.forking.set(false);
    }
    // Where recording has ended, it may be for a filter that would end this process for the question: then it is nobody's.
    let pid = if phase::is_recording() {
        sys::getpid()
    } else {
        0
    };
    let parent = process::after_fork(pid);
    session::abandon();
    request_word::after_fork();
    requests::after_fork();
    interval::after_fork();
    sampled_blocks::after_fork();
    shutdown::after_fork();
    modules::after_fork();
    seats::after_fork(thread);
    counters::reset();
    main_thread::after_fork();
    writer::after_fork();
    fd_table::after_fork();
    diagnostics::after_fork();
    adopt_credentials::after_fork();
    seccomp_filters::after_fork();
    byte_count::begin(thread);
    parent_log::after_fork(parent, thread.forking_ns.get());
    session_start::after_fork();
    session::after_fork(thread);
    thread.forking.set(false);
    thread.inside.set(Inside::No);
    // A mark of its own, from here: the parent's is the same in all its children, and where it fell would be forgotten.
    regime::redraw(thread);
}
