//! The thread that the writer runs in: how it begins, and how it ends.
//!
//! It is one of ours for life, so that nothing it does is profiled, and takes no signal.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapprof_format::EndReason;

use super::Writer;
use crate::allocator;
use crate::os::{clock, credentials, fd_table, libc_trampolines, seccomp, sys};
use crate::recording::request_word::{self, END, FINISH, LEAVING};
use crate::recording::session::{self, Session};
use crate::state::{phase, thread};
use crate::unwind::stack_bounds;
use crate::writer::{adopt_credentials, last_thread};

/// Bytes of the writer's stack: its own frames are small, formatting and sorting a dump included.
const STACK_BYTES: usize = 512 << 10;

/// What the thread is given, until it has taken it.
struct Handover {
    /// Made from a box. Never freed: a forked child looks at it where it is, and dropping millions of entries would
    /// delay the end.
    place: *mut Writer,
    session: &'static Session,
}

/// The writer of the session, while it is not the thread's: see [`leave`].
static HANDOVER: AtomicPtr<Handover> = AtomicPtr::new(std::ptr::null_mut());

/// In a forked child: its writer is not there yet.
pub(crate) fn after_fork() {
    THREAD.store(0, Ordering::Relaxed);
    RUNS.store(0, Ordering::Relaxed);
    HAS_LEFT.store(false, Ordering::SeqCst);
    IS_CLAIMED.store(false, Ordering::SeqCst);
}

/// Set when the thread has begun. libc's own steps before that end the process if a seccomp filter forbids them.
static RUNS: AtomicU32 = AtomicU32::new(0);
/// How long a program's first sample waits for the thread to run.
const START_PATIENCE_NS: u64 = 100_000_000;

/// A program that fences itself in, or gives up its rights, right after its first sample shall find the thread complete, with its log open.
fn wait_until_it_runs() {
    let deadline = clock::now_ns() + START_PATIENCE_NS;
    while RUNS.load(Ordering::Acquire) == 0 {
        let now = clock::now_ns();
        if now >= deadline {
            return;
        }
        sys::futex_wait(&RUNS, 0, Some(deadline - now));
    }
}

/// Starts the thread. On failure the writer is given back.
pub(crate) fn start(writer: Box<Writer>, session: &'static Session) -> Result<(), Box<Writer>> {
    start_with(Handover {
        place: Box::into_raw(writer),
        session,
    })
}

fn start_with(handover: Handover) -> Result<(), Box<Writer>> {
    HANDOVER.store(Box::into_raw(Box::new(handover)), Ordering::Release);
    // The new thread inherits a mask that blocks everything: no signal meant for the program is ever
    // handled there.
    let mask = sys::block_signals();
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut id = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes are initialised before use and destroyed after; `live` matches the type
    // that pthread_create wants.
    let error = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        // Whole pages, as all other stacks are: see `stack_bounds::learn`.
        let bytes = STACK_BYTES + least_stack(attributes.as_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), bytes.next_multiple_of(4096));
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let error = libc::pthread_create(
            id.as_mut_ptr(),
            attributes.as_ptr(),
            live,
            std::ptr::null_mut(),
        );
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    sys::restore_signals(mask);
    if error == 0 {
        wait_until_it_runs();
        return Ok(());
    }
    let back = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: made above; no thread was started that could have taken it. The writer was made from a box.
    Err(unsafe { Box::from_raw(Box::from_raw(back).place) })
}

/// libc's `__pthread_get_minstack`; null: it has none.
static GET_MINSTACK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// How the program was to be scheduled when it began. Null: not known.
static AT_BOOT: AtomicPtr<sys::Scheduling> = AtomicPtr::new(std::ptr::null_mut());

/// In our thread: whoever took the first sample may keep to one processor, or be a real-time thread that never sleeps. What our thread has from
/// it is undone, but not with a filter in front that may not know these calls.
fn schedule_as_at_boot() {
    // SAFETY: null or leaked by `prepare`.
    if let Some(at_boot) = unsafe { AT_BOOT.load(Ordering::Acquire).as_ref() }
        && !credentials::is_filtered()
    {
        at_boot.take();
    }
}

/// At boot, while nobody else loads anything.
pub(crate) fn prepare() {
    if !credentials::is_filtered()
        && let Some(now) = sys::Scheduling::mine()
    {
        AT_BOOT.store(Box::into_raw(Box::new(now)), Ordering::Release);
    }
    let function = libc_trampolines::in_libc(c"__pthread_get_minstack");
    GET_MINSTACK.store(function.unwrap_or(0) as *mut c_void, Ordering::Relaxed);
}

/// What libc takes of a thread's stack before anything has run on it: thread-local memory of all that is loaded lies there, which may be
/// megabytes. What libc has for whoever makes threads of a given size (OpenJDK, Rust's library) is asked.
fn least_stack(attributes: *const libc::pthread_attr_t) -> usize {
    let function = GET_MINSTACK.load(Ordering::Relaxed);
    if function.is_null() {
        return 0;
    }
    // SAFETY: libc's function of that name, whose type this has been since glibc 2.15.
    let function: unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize =
        unsafe { std::mem::transmute(function) };
    // SAFETY: as above; it reads two words of the loader's.
    unsafe { function(attributes) }
}

/// The writer's thread, by the kernel's number; 0: there is none.
static THREAD: AtomicU32 = AtomicU32::new(0);

/// See [`THREAD`].
pub(crate) fn tid() -> u32 {
    THREAD.load(Ordering::Relaxed)
}

/// There is no memory for what this thread wants. The writer stands still then, for good; a thread of the program's
/// returns from here.
pub(crate) fn stop_if_it_is_me() {
    if THREAD.load(Ordering::Relaxed) != sys::gettid() {
        return;
    }
    if let Some(session) = session::current() {
        session.tell_finished();
    }
    loop {
        sys::sleep_ns(u64::MAX >> 1);
    }
}

/// Whether a thread asks the writer to leave, or has had it leave.
static IS_CLAIMED: AtomicBool = AtomicBool::new(false);

/// Whether the writer is in [`HANDOVER`], and its thread on its last steps.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);

/// How long the program waits for the writer to leave.
const LEAVE_PATIENCE_NS: u64 = 2_000_000_000;

/// In a thread of the program's that is inside our code: has the writer's thread end, until [`come_back`]. False: it stays.
pub(crate) fn leave() -> bool {
    let thread = tid();
    if thread == 0 || IS_CLAIMED.swap(true, Ordering::SeqCst) {
        return false;
    }
    let deadline = clock::now_ns() + LEAVE_PATIENCE_NS;
    LEAVING.ask(deadline, LEAVE_PATIENCE_NS, || {
        request_word::is_asked(FINISH)
    });
    if !HAS_LEFT.load(Ordering::SeqCst) {
        IS_CLAIMED.store(false, Ordering::SeqCst);
        return false;
    }
    wait_until_it_is_gone(thread, deadline);
    true
}

/// For a thread of ours that has said that it ends: a few instructions of libc's and of the kernel's.
fn wait_until_it_is_gone(thread: u32, deadline: u64) {
    while sys::has_thread(thread) && clock::now_ns() < deadline {
        sys::sleep_ns(20_000);
    }
}

/// In a thread of the program's: has the writer write what there is, and its thread end. It is waited for, [`LEAVE_PATIENCE_NS`] at
/// most.
pub(crate) fn end(session: &Session) {
    wait_until_it_runs();
    let thread = tid();
    if thread == 0 {
        return;
    }
    request_word::post(END);
    let deadline = clock::now_ns() + LEAVE_PATIENCE_NS;
    session.wait_until_finished(deadline);
    wait_until_it_is_gone(thread, deadline);
}

/// In the writer's thread: gives the writer back, and does not touch it any more. False: that is no longer wanted.
fn hand_back(place: *mut Writer, session: &'static Session) -> bool {
    let handover = Box::into_raw(Box::new(Handover { place, session }));
    HANDOVER.store(handover, Ordering::Release);
    THREAD.store(0, Ordering::Relaxed);
    HAS_LEFT.store(true, Ordering::SeqCst); // before the request is served
    if LEAVING.take() {
        LEAVING.tell_served();
        return true;
    }
    HAS_LEFT.store(false, Ordering::SeqCst);
    THREAD.store(sys::gettid(), Ordering::Relaxed);
    HANDOVER.store(std::ptr::null_mut(), Ordering::Release);
    // SAFETY: made above; only a thread whose request was served takes it.
    drop(unsafe { Box::from_raw(handover) });
    false
}

/// After [`leave`]: the writer has a thread again. If there is none to be had, recording ends.
pub(crate) fn come_back(session: &'static Session) {
    let handover = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    RUNS.store(0, Ordering::Relaxed);
    HAS_LEFT.store(false, Ordering::SeqCst);
    IS_CLAIMED.store(false, Ordering::SeqCst);
    if handover.is_null() {
        return;
    }
    // SAFETY: made by `hand_back`; the swap made it ours.
    let handover = *unsafe { Box::from_raw(handover) };
    if let Err(mut writer) = start_with(handover) {
        phase::give_up(format_args!(
            "cannot start a thread again; recording ends here, the program runs on"
        ));
        session.tell_finished();
        writer.finish(Some(session), EndReason::GaveUp);
    }
}

/// In the program's main thread, which is about to end (`host/main_thread.rs`): our thread may come to end the process in the name of the
/// last one, and needs the program's descriptors for that. One that left them ends, and another begins.
pub(crate) fn share_descriptors(session: &'static Session) {
    wait_until_it_runs();
    if fd_table::are_own() && !seccomp::has_filtered_itself() && leave() {
        come_back(session);
    }
}

/// The thread's first function, and its last. Not called `main`: a debugger's `break main` stops in every function of that name.
extern "C" fn live(_: *mut c_void) -> *mut c_void {
    thread::current().enter_for_life();
    THREAD.store(sys::gettid(), Ordering::Relaxed);
    sys::name_thread(c"heapprof");
    schedule_as_at_boot();
    stack_bounds::learn();
    adopt_credentials::remember();
    fd_table::take_own(last_thread::may_leave());
    let handover = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if handover.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: made by `start`; the swap made it ours.
    let Handover { place, session } = *unsafe { Box::from_raw(handover) };
    // SAFETY: made from a box, and never freed. In this process nobody else uses the address, until `hand_back`.
    let writer = unsafe { &mut *place };
    writer.hold_log();
    RUNS.store(1, Ordering::Release);
    sys::futex_wake(&RUNS);
    let work = std::panic::AssertUnwindSafe(|| {
        while writer.run(session) {
            writer.output.log_mut().let_go();
            if hand_back(place, session) {
                return true;
            }
            writer.hold_log();
        }
        if allocator::is_short() {
            writer.end_log(Some(session), EndReason::GaveUp);
        } else {
            let reason = match request_word::is_asked(END) {
                true => EndReason::GaveUp,
                false => EndReason::Exit,
            };
            writer.finish(Some(session), reason);
        }
        false
    });
    match std::panic::catch_unwind(work) {
        Ok(true) => return std::ptr::null_mut(),
        Ok(false) => {}
        Err(_) => phase::give_up_after_panic("the writer"),
    }
    THREAD.store(0, Ordering::Relaxed);
    session.tell_finished();
    if !request_word::is_asked(FINISH) && last_thread::all_have_left() {
        // Nobody asked for the end: the program's last thread has left.
        phase::end();
        last_thread::exit_for_the_last();
    }
    std::ptr::null_mut()
}
