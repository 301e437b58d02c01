//! fork: the child becomes a recorded process of its own.
//!
//! Law 7: the child touches nothing whose state another thread of the parent owned. It abandons the
//! parent's session and writer, and reads only which ids the parent may have given. The tables of
//! samples are lock-free and stay, so that frees find the parent's samples. The child's own session
//! begins with its first sample.
//!
//! The parent notes the time before the fork, and goes on behind it. It waits for nothing.
//!
//! Not here: when the handlers are called (`atfork`).

use crate::host::{main_thread, seccomp_filters};
use crate::os::{clock, diagnostics, fd_table, sys};
use crate::recording::{
    byte_count, labels, regime, request_word, requests, sampled_blocks, seats, session,
};
use crate::state::thread::{self, RunningCode};
use crate::state::{counters, interval, phase, process, shutdown};
use crate::unwind::modules;
use crate::writer::log::parent_log;
use crate::writer::{self, adopt_credentials, session_start};

/// Notes the time of the fork, in the parent. The child does not inherit what the parent allocates
/// later. After the fork is too late, because the parent may run before the child does.
pub(crate) extern "C" fn before() {
    process::will_fork();
    seccomp_filters::before_fork();
    let thread = thread::current();
    let is_recording = phase::is_recording();
    // If recording has ended, the clock may not be readable, and the time is not needed.
    let now_ns = if is_recording { clock::now_ns() } else { 0 };
    thread.forking_ns.set(now_ns);
    thread.is_forking.set(true);
}

pub(crate) extern "C" fn in_parent() {
    let thread = thread::current();
    thread.is_forking.set(false);
}

pub(crate) extern "C" fn in_child() {
    let thread = thread::current();
    if !process::has_booted() {
        return thread.is_forking.set(false);
    }
    // If recording has ended, a seccomp filter may end this process for the call. The id is then
    // not needed.
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
    labels::after_fork();
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
    thread.is_forking.set(false);
    thread.running_code.set(RunningCode::Program);
    // Draws a new mark from here on. The parent's next mark is the same in all its children, and
    // lies behind a part of the axis that the child has not laid.
    regime::redraw(thread);
}
