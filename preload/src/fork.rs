//! fork: the child is a process of its own.
//!
//! Law 7: it touches nothing whose state another thread of the parent owned. The parent's session and
//! writer are left behind unread, but for which ids were given and, if it stood still, its ledger (`inheritance.rs`); the tables of samples are lock-free and stay, so that frees of blocks
//! that the parent sampled find them; the child's own session begins with its first sample.
//!
//! libc calls the handlers of `pthread_atfork` in their order, those before the fork in reverse. Ours must come between
//! jemalloc's, which take and give back its locks, and all others, which may allocate:
//!
//! ```text
//!  before:      the program's ── ours ── jemalloc's
//!  afterwards:  jemalloc's ── ours ── the program's
//! ```
//!
//! A library may register its own before anything has allocated, or before our constructor. So what registers them is
//! exported, and sees to it that ours and jemalloc's are there.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::blocks;
use crate::tls::{self, Inside, Thread};
use crate::{
    beginning, clock, control, counters, descriptors, desk, early, exit, fence, genuine, health,
    hold, hook, inheritance, je, main_thread, modules, origin, say, seats, session, setid, sys,
    writer,
};

/// The process we believe to be in; 0: one in which nothing is recorded.
static PID: AtomicU32 = AtomicU32::new(0);
/// Whether our handlers are registered.
static REGISTERED: AtomicBool = AtomicBool::new(false);
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
    register_handlers();
    BOOTED.store(true, Ordering::Release);
}

/// At boot, or when somebody else registers handlers before.
fn register_handlers() {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: functions that live as long as the process: the library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

/// A handler, or null.
type Handler = *mut c_void;

unsafe extern "C" {
    /// What stands for this library in what it registers. Of the compiler's start files.
    static __dso_handle: u8;
}

/// libc's own, once it is found: with jemalloc's first allocation, at boot at the latest.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What `pthread_atfork` calls, which is linked into every program and library; `owner` is what goes with the
/// library when that is unloaded. 0, or ENOMEM.
///
/// # Safety
/// As pthread_atfork(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    owner: *mut c_void,
) -> c_int {
    if early::is_now() {
        return libc::ENOMEM; // in an IFUNC resolver: libc cannot be reached from here yet
    }
    let mut real = REAL.load(Ordering::Acquire);
    if real.is_null() {
        real = genuine::in_libc(c"__register_atfork").unwrap_or(0) as *mut c_void;
        REAL.store(real, Ordering::Release);
    }
    if real.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: libc's function of that name, whose type is this one's.
    let real: unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
        unsafe { std::mem::transmute(real) };
    if owner.cast_const() != (&raw const __dso_handle).cast() {
        // Its first allocation has jemalloc register its handlers, by way of us: they are ours.
        // SAFETY: a block that nobody else has.
        unsafe { je::free(je::malloc(1)) };
        register_handlers();
    }
    // SAFETY: the caller's promise.
    unsafe { real(prepare, parent, child, owner) }
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
extern "C" fn before() {
    HAS_FORKED.store(true, Ordering::Relaxed);
    fence::before_fork();
    let thread = tls::current();
    let is_recording = hook::is_recording();
    let session = session::current().filter(|_| is_recording && writer::keeps_ledger());
    thread.holds_writer.set(session.is_some_and(hold::ask));
    // Where recording has ended there may be no clock that could be read (`fence::before_loss_of_counter`), and nobody wants to know.
    let now_ns = if is_recording { clock::now_ns() } else { 0 };
    thread.forking_ns.set(now_ns);
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
    let thread = tls::current();
    if !BOOTED.load(Ordering::Acquire) {
        return thread.forking.set(false);
    }
    HAS_FORKED.store(false, Ordering::Relaxed);
    // Where recording has ended, it may be for a filter that would end this process for the question: then it is nobody's.
    let pid = if hook::is_recording() {
        sys::getpid()
    } else {
        0
    };
    let parent = PID.swap(pid, Ordering::AcqRel);
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
    blocks::after_fork();
    exit::after_fork();
    modules::after_fork();
    seats::after_fork(thread);
    counters::reset();
    main_thread::after_fork();
    writer::after_fork();
    descriptors::after_fork();
    say::after_fork();
    setid::after_fork();
    fence::after_fork();
    health::begin(thread);
    origin::after_fork(parent, thread.forking_ns.get());
    beginning::after_fork();
    session::after_fork(thread);
    thread.forking.set(false);
    thread.inside.set(Inside::No);
    // A mark of its own, from here: the parent's is the same in all its children, and where it fell would be forgotten.
    hook::redraw(thread);
}
