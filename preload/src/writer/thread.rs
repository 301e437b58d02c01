//! Writer thread: how the thread of the writer starts and ends.
//!
//! The thread counts as inside our code for life, so nothing it does is profiled, and it takes no
//! signals. It ends when
//!
//! - the process ends ([`FINISH`]), or the program's last thread does (`last_thread`);
//! - a detach ends the recording ([`END`]);
//! - the program needs to be alone in its process, such as for `unshare` ([`THREAD_STOP`]); it
//!   starts again afterwards;
//! - our arena has no memory.

use std::ffi::{CStr, c_void};
#[cfg(feature = "attach")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapprof_core::ThreadProgress;
use heapprof_format::EndReason;

use super::Writer;
use crate::allocator;
use crate::os::{clock, credentials, fd_table, libc_trampolines, procfs, seccomp, sys};
#[cfg(feature = "attach")]
use crate::recording::attach_block;
use crate::recording::request_word::{self, END, FINISH, THREAD_STOP};
use crate::recording::session::{self, Session};
#[cfg(feature = "attach")]
use crate::recording::{sampled_blocks, seats};
use crate::state::{phase, thread};
#[cfg(feature = "attach")]
use crate::unwind::modules;
use crate::unwind::stack_bounds;
use crate::writer::log::cut_mark;
use crate::writer::{adopt_credentials, last_thread};

/// Bytes of the writer's own stack: its frames are small, even while it formats and sorts a dump.
const STACK_BYTES: usize = 512 << 10;

/// The writer and its session, on the way to the thread or back.
struct Handover {
    /// Made from a box, and never freed at the end of the process: dropping millions of entries
    /// would delay the end.
    writer: *mut Writer,
    session: &'static Session,
}

/// The writer of the session while it has no thread: see [`stop_thread`].
static HANDOVER: AtomicPtr<Handover> = AtomicPtr::new(std::ptr::null_mut());

/// Function that the writer calls before the end of a recording; 0: none.
#[cfg(feature = "attach")]
static BEFORE_END: AtomicUsize = AtomicUsize::new(0);

/// At the first start: sets the function for the writer, which notes what the log is to tell.
#[cfg(feature = "attach")]
pub(crate) fn set_before_end(note: fn()) {
    BEFORE_END.store(note as usize, Ordering::Release);
}

/// Calls the function, if the recording ends by a detach. The taps are gone, so no thread that has
/// the loader's lock waits for the writer.
#[cfg(feature = "attach")]
fn note_before_end() {
    let note = BEFORE_END.load(Ordering::Acquire);
    if note != 0 && attach_block::is_end_asked() {
        // SAFETY: the address of a function of that type, stored by `set_before_end`.
        unsafe { std::mem::transmute::<usize, fn()>(note)() };
    }
}

/// Before another recording in this process: forgets the last one. Returns false if its thread may
/// still run.
#[cfg(feature = "attach")]
pub(crate) fn renew() -> bool {
    let last = STACK_OWNER.load(Ordering::Relaxed);
    if last != 0 {
        wait_until_gone(last, clock::now_ns() + STOP_TIMEOUT_NS);
        if sys::has_thread(last) {
            return false;
        }
    }
    IS_RUNNING.store(0, Ordering::Relaxed);
    IS_HANDED_BACK.store(false, Ordering::SeqCst);
    STOP_IS_CLAIMED.store(false, Ordering::SeqCst);
    cut_mark::after_fork();
    true
}

/// Resets the state in a forked child, whose writer has no thread yet.
pub(crate) fn after_fork() {
    TID.store(0, Ordering::Relaxed);
    STACK.store(std::ptr::null_mut(), Ordering::Relaxed);
    IS_RUNNING.store(0, Ordering::Relaxed);
    IS_HANDED_BACK.store(false, Ordering::SeqCst);
    STOP_IS_CLAIMED.store(false, Ordering::SeqCst);
    cut_mark::after_fork();
}

/// Set when the thread runs. Before that, libc's own steps end the process if a seccomp filter
/// forbids them.
static IS_RUNNING: AtomicU32 = AtomicU32::new(0);
/// How long a program's first sample waits for the thread to run.
const START_TIMEOUT_NS: u64 = 100_000_000;

/// Waits until the thread runs. A program may restrict its system calls or give up its rights right
/// after its first sample, and then needs the thread complete, with its log open.
fn wait_until_running() {
    sys::wait_for_change(&IS_RUNNING, 0, clock::now_ns() + START_TIMEOUT_NS);
}

/// Starts the thread. On failure it returns the writer.
pub(crate) fn start(writer: Box<Writer>, session: &'static Session) -> Result<(), Box<Writer>> {
    start_with(Handover {
        writer: Box::into_raw(writer),
        session,
    })
}

fn start_with(handover: Handover) -> Result<(), Box<Writer>> {
    HANDOVER.store(Box::into_raw(Box::new(handover)), Ordering::Release);
    // The new thread inherits a mask that blocks every signal: no signal for the program is ever
    // handled there.
    let mask = sys::block_signals();
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut id = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes are initialised before use and destroyed after; the thread's function
    // matches the type that pthread_create wants.
    let error = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        // Whole pages, as all other stacks are: see `stack_bounds::learn`.
        let bytes = STACK_BYTES + min_stack_bytes(attributes.as_ptr());
        let bytes = bytes.next_multiple_of(sys::PAGE as usize);
        match own_stack(bytes) {
            Some(low) => {
                libc::pthread_attr_setstack(attributes.as_mut_ptr(), low.cast(), bytes);
            }
            None => {
                libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), bytes);
            }
        }
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let error = libc::pthread_create(
            id.as_mut_ptr(),
            attributes.as_ptr(),
            run_thread,
            std::ptr::null_mut(),
        );
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    sys::restore_signals(mask);
    if error == 0 {
        wait_until_running();
        return Ok(());
    }
    let back = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: made above; no thread was started that could have taken it. The writer was made from
    // a box.
    Err(unsafe { Box::from_raw(Box::from_raw(back).writer) })
}

/// The stack of the last thread, leaked; null if there is none.
static STACK: AtomicPtr<sys::Stack> = AtomicPtr::new(std::ptr::null_mut());
/// The kernel's id of the thread that has it, or had it.
static STACK_OWNER: AtomicU32 = AtomicU32::new(0);

/// Returns the lowest address of a stack of ours for the thread, with a guard page below it. libc
/// would map one in a gap that the program may keep free (`os/sys/places.rs`). `None`: libc maps it
/// nevertheless. That is always so over musl, which puts a thread's descriptor elsewhere if the
/// stack is not its own, where [`stack_bounds::learn`] does not find it.
fn own_stack(bytes: usize) -> Option<*mut u8> {
    if cfg!(target_env = "musl") {
        return None;
    }
    let kept = STACK.swap(std::ptr::null_mut(), Ordering::AcqRel);
    let owner = STACK_OWNER.load(Ordering::Relaxed);
    // SAFETY: null, or leaked below.
    let kept =
        unsafe { kept.as_ref() }.filter(|stack| stack.bytes() == bytes && !sys::has_thread(owner));
    let stack = match kept {
        Some(stack) => stack,
        None => Box::leak(Box::new(sys::map_stack(bytes)?)),
    };
    STACK.store(std::ptr::from_ref(stack).cast_mut(), Ordering::Release);
    Some(stack.top.wrapping_sub(bytes))
}

/// libc's `__pthread_get_minstack`, or null.
static GET_MINSTACK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// How the program was scheduled when it began; null if unknown.
static BOOT_SCHEDULING: AtomicPtr<sys::Scheduling> = AtomicPtr::new(std::ptr::null_mut());

/// Gives our thread the scheduling of the program's start. It inherits the scheduling of the thread
/// that took the first sample, which may be bound to one processor or be a real-time thread that
/// never sleeps. A seccomp filter may not allow these calls, so nothing is done behind one.
fn restore_scheduling() {
    // SAFETY: null or leaked by `prepare`.
    if let Some(scheduling) = unsafe { BOOT_SCHEDULING.load(Ordering::Acquire).as_ref() }
        && !credentials::has_seccomp_filter()
    {
        scheduling.apply();
    }
}

/// Looks up libc's function and the scheduling, at boot, while no other thread uses the loader.
pub(crate) fn prepare() {
    if !credentials::has_seccomp_filter()
        && let Some(now) = sys::Scheduling::of_this_thread()
    {
        BOOT_SCHEDULING.store(Box::into_raw(Box::new(now)), Ordering::Release);
    }
    let function = libc_trampolines::in_libc(c"__pthread_get_minstack");
    GET_MINSTACK.store(function.unwrap_or(0) as *mut c_void, Ordering::Relaxed);
}

/// Returns how much of a thread's stack libc needs before any code runs on it. Thread-local memory
/// of all loaded libraries lies there, which may be megabytes. libc has a function for runtimes
/// that make threads of a given size (OpenJDK, Rust's library).
fn min_stack_bytes(attributes: *const libc::pthread_attr_t) -> usize {
    let function = GET_MINSTACK.load(Ordering::Relaxed);
    if function.is_null() {
        return 0;
    }
    // SAFETY: libc's function of that name, which has this type.
    let function: unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize =
        unsafe { std::mem::transmute(function) };
    // SAFETY: as above; it reads two words of the loader's.
    unsafe { function(attributes) }
}

/// The kernel's id of the writer's thread; 0 if there is none.
static TID: AtomicU32 = AtomicU32::new(0);

/// Returns the kernel's id of the writer's thread; 0 if there is none.
pub(crate) fn tid() -> u32 {
    TID.load(Ordering::Relaxed)
}

/// The name of the thread.
const NAME: &CStr = c"heapprof";

/// Returns the processor time and the state of the thread. `None`: they cannot be read.
pub(crate) fn progress() -> Option<ThreadProgress> {
    let (ran_ns, is_runnable) = procfs::progress(tid(), NAME.to_bytes())?;
    Some(ThreadProgress {
        now_ns: clock::now_ns(),
        ran_ns,
        is_runnable,
    })
}

/// Stops the writer for good if the calling thread is the writer's, for which there is no memory.
/// Other threads return from here.
pub(crate) fn stop_if_writer() {
    if TID.load(Ordering::Relaxed) != sys::gettid() {
        return;
    }
    if let Some(session) = session::current() {
        session.tell_finished();
    }
    loop {
        sys::sleep_ns(u64::MAX >> 1);
    }
}

/// True while a thread asks the writer's thread to end, or has made it end.
static STOP_IS_CLAIMED: AtomicBool = AtomicBool::new(false);

/// True if the writer is in [`HANDOVER`], and its thread is at its last steps.
static IS_HANDED_BACK: AtomicBool = AtomicBool::new(false);

/// How long the program waits for the thread to end.
const STOP_TIMEOUT_NS: u64 = 2_000_000_000;

/// Ends the writer's thread, until [`restart_thread`]. False: it runs on. Called in a thread of the
/// program that is inside our code.
pub(crate) fn stop_thread() -> bool {
    let thread = tid();
    if thread == 0 || STOP_IS_CLAIMED.swap(true, Ordering::SeqCst) {
        return false;
    }
    let deadline = clock::now_ns() + STOP_TIMEOUT_NS;
    THREAD_STOP.ask(deadline, STOP_TIMEOUT_NS, || request_word::is_asked(FINISH));
    if !IS_HANDED_BACK.load(Ordering::SeqCst) {
        STOP_IS_CLAIMED.store(false, Ordering::SeqCst);
        return false;
    }
    wait_until_gone(thread, deadline);
    true
}

/// Waits until a thread of ours is gone that is at its last instructions, in libc and in the
/// kernel.
fn wait_until_gone(thread: u32, deadline: u64) {
    while sys::has_thread(thread) && clock::now_ns() < deadline {
        sys::sleep_ns(20_000);
    }
}

/// Ends the recording in a thread of the program: the writer flushes the log, and its thread ends.
/// Waits for that for [`STOP_TIMEOUT_NS`] at most.
pub(crate) fn end_recording(session: &Session) {
    wait_until_running();
    let thread = tid();
    if thread == 0 {
        return;
    }
    request_word::post(END);
    let deadline = clock::now_ns() + STOP_TIMEOUT_NS;
    session.wait_until_finished(deadline);
    wait_until_gone(thread, deadline);
}

/// Hands the writer back, in the writer's thread, which does not touch it any more. False: the
/// request was withdrawn.
fn hand_back(writer: *mut Writer, session: &'static Session) -> bool {
    let handover = Box::into_raw(Box::new(Handover { writer, session }));
    HANDOVER.store(handover, Ordering::Release);
    TID.store(0, Ordering::Relaxed);
    IS_HANDED_BACK.store(true, Ordering::SeqCst); // before the request is served
    if THREAD_STOP.take() {
        THREAD_STOP.tell_served();
        return true;
    }
    IS_HANDED_BACK.store(false, Ordering::SeqCst);
    TID.store(sys::gettid(), Ordering::Relaxed);
    HANDOVER.store(std::ptr::null_mut(), Ordering::Release);
    // SAFETY: made above; only a thread whose request was served takes it.
    drop(unsafe { Box::from_raw(handover) });
    false
}

/// Starts a thread for the writer after [`stop_thread`]. If that fails, recording ends.
pub(crate) fn restart_thread(session: &'static Session) {
    let handover = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    IS_RUNNING.store(0, Ordering::Relaxed);
    IS_HANDED_BACK.store(false, Ordering::SeqCst);
    STOP_IS_CLAIMED.store(false, Ordering::SeqCst);
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

/// Makes the writer's thread share the program's descriptors. Called in the program's main thread,
/// which is about to end: our thread may have to end the process as its last thread, which needs
/// the program's descriptors. If our thread has a table of its own, it ends and another one starts.
pub(crate) fn share_descriptors(session: &'static Session) {
    wait_until_running();
    if fd_table::is_separate() && !seccomp::has_installed_filter() && stop_thread() {
        restart_thread(session);
    }
}

/// Frees the memory of a recording that has ended: the writer, and what hooks work with if none
/// runs any more.
#[cfg(feature = "attach")]
fn release_memory(writer: Box<Writer>, session: &Session) {
    drop(writer);
    if attach_block::is_release_asked() {
        seats::release();
        session.release();
        sampled_blocks::renew();
        modules::free_retired(seats::may_be_reading);
    }
}

/// The function of the thread. Its name is not `main`: a debugger's `break main` stops in every
/// function of that name.
extern "C" fn run_thread(_: *mut c_void) -> *mut c_void {
    thread::current().enter_permanently();
    TID.store(sys::gettid(), Ordering::Relaxed);
    STACK_OWNER.store(tid(), Ordering::Relaxed);
    sys::name_thread(NAME);
    restore_scheduling();
    stack_bounds::learn();
    adopt_credentials::note_own();
    fd_table::leave_program_table(last_thread::main_may_have_ended());
    let handover = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if handover.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: made by `start`; the swap made it ours.
    let Handover {
        writer: address,
        session,
    } = *unsafe { Box::from_raw(handover) };
    // SAFETY: made from a box, and not freed before the end of the work below. In this process, no
    // other thread uses the address until `hand_back`.
    let writer = unsafe { &mut *address };
    writer.hold_log();
    IS_RUNNING.store(1, Ordering::Release);
    sys::futex_wake(&IS_RUNNING);
    let work = std::panic::AssertUnwindSafe(|| {
        while writer.run(session) {
            writer.output.log_mut().let_go();
            if hand_back(address, session) {
                return true;
            }
            writer.hold_log();
        }
        #[cfg(feature = "attach")]
        note_before_end();
        if allocator::is_short() {
            writer.end_log(Some(session), EndReason::GaveUp);
        } else {
            let reason = match request_word::is_asked(END) {
                true if cfg!(feature = "attach") => EndReason::Detached,
                true => EndReason::GaveUp,
                false => EndReason::Exit,
            };
            writer.finish(Some(session), reason);
        }
        false
    });
    match std::panic::catch_unwind(work) {
        Ok(true) => return std::ptr::null_mut(),
        Ok(false) => {
            #[cfg(feature = "attach")]
            if attach_block::is_end_asked() {
                // SAFETY: made from a box, and this thread alone has the address.
                let writer = unsafe { Box::from_raw(address) };
                let work = std::panic::AssertUnwindSafe(|| release_memory(writer, session));
                // After a panic, the rest stays. The log is complete.
                let _ = std::panic::catch_unwind(work);
            }
        }
        Err(_) => phase::give_up_after_panic("the writer"),
    }
    #[cfg(feature = "attach")]
    attach_block::tell_ended();
    TID.store(0, Ordering::Relaxed);
    session.tell_finished();
    if !request_word::is_asked(FINISH) && last_thread::is_program_gone() {
        // There was no request to finish: the program's last thread has ended.
        phase::end();
        last_thread::exit_as_last_thread();
    }
    std::ptr::null_mut()
}
