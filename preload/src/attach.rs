//! Attach: the order of start in a running process, and of another start after a detach.
//!
//! `heapprof attach` loads this library with libc's `dlopen`, in a thread that it has made for this
//! purpose, and calls [`heapprof_attach`] there. The library begins the log, prepares the taps of
//! the allocators, and lists the changes of their entries in the [`BLOCK`]. The other program
//! writes these changes while it has stopped all threads. Recording is in force before, so nothing
//! is missed from the first changed entry on.
//!
//! If the other program is killed before it has written all changes, recording ends by itself. Some
//! entries stay changed then, which is harmless: a tap passes on every call.
//!
//! Law 7: a forked child of the process is not recorded, and its taps pass on every call. It keeps
//! nothing that a thread of the parent may have been changing. So heapprof can be attached to it,
//! as to any process.
//!
//! Danger: the loader's list is read while other threads run. The constructor has the loader's lock
//! by its caller, and later reads happen in a call of `dl_iterate_phdr`, which has the lock of the
//! list.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_core::Sampler;
use heapprof_format::{ATTACH_MAGIC, AttachInput, COUNTDOWN_LEN, attach_state};

use crate::allocator;
use crate::arch::thread_block::{thread_block, thread_pointer};
use crate::hooks::mapping_changes;
use crate::hooks::taps::{attach_taps, library_changes};
use crate::os::environment::Environment;
use crate::os::{
    cancellation, clock, diagnostics, fd_table, files, libc_trampolines, seccomp, sys,
};
use crate::recording::attach_block::{self, heapprof_attach_block as BLOCK};
use crate::recording::{
    byte_count, labels, request_word, requests, sampled_blocks, seats, session,
};
use crate::state::settings::Settings;
use crate::state::thread::{self, Entered, RunningCode};
use crate::state::{counters, interval, phase, process, shutdown};
use crate::unwind::{modules, python, stack_bounds, walk};
use crate::writer::log::output::Output;
use crate::writer::{self, adopt_credentials, last_thread, session_start};

/// How long the library waits for the changes of the entries.
const PATCH_TIMEOUT_NS: u64 = 10_000_000_000;
/// The time between two looks.
const LOOK_NS: u64 = 200_000;

/// Memory for the list of modules, and for seats.
const BOOT_BYTES: usize = 2 << 20;

#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = construct;

/// Finds functions of libc and of the program's allocator.
extern "C" fn construct() {
    allocator::prepare();
    libc_trampolines::prepare();
    BLOCK.pid.store(sys::getpid(), Ordering::Relaxed);
    let block = thread_block().addr().wrapping_sub(thread_pointer().addr());
    let countdown = block.wrapping_add(thread::LEFT).cast_signed();
    BLOCK
        .countdown_at
        .store(countdown as i64, Ordering::Relaxed);
    BLOCK.magic.store(ATTACH_MAGIC, Ordering::Release);
}

/// Begins a recording, and returns when all entries are changed, or when that has failed. Returns
/// 0, or 1 after a failure, whose reason is in the block.
///
/// # Safety
/// `input` is valid during the call. The thread is no thread of the program, and holds no lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn heapprof_attach(input: *const AttachInput) -> c_int {
    // SAFETY: the caller's promise.
    let input = unsafe { &*input };
    let work = std::panic::AssertUnwindSafe(|| attach(input));
    let outcome = std::panic::catch_unwind(work);
    let outcome = outcome.unwrap_or_else(|_| Err("internal error. Please report this".into()));
    match outcome {
        Ok(()) => 0,
        Err(why) => {
            phase::end();
            BLOCK.set_message(&why);
            BLOCK.state.store(attach_state::FAILED, Ordering::Release);
            1
        }
    }
}

fn attach(input: &AttachInput) -> Result<(), String> {
    if input.magic != ATTACH_MAGIC {
        return Err("heapprof and its library are of different versions".into());
    }
    if phase::is_recording() {
        return Err("it is being recorded already".into());
    }
    let Some(entered) = thread::current().enter() else {
        return Err("the thread is inside the library".into());
    };
    entered.thread.running_code.set(RunningCode::Ours);
    BLOCK
        .state
        .store(attach_state::PREPARING, Ordering::Release);
    match IS_PREPARED.load(Ordering::Acquire) {
        false => prepare_first(&entered)?,
        true => renew(input.is_quiet == 1)?,
    }
    IS_PREPARED.store(true, Ordering::Release);
    stack_bounds::remember_main_thread(arguments(), input.main_thread);
    let mut settings = settings(input);
    let named = settings.named_taps.as_deref().unwrap_or_default();
    let tapped = attach_taps::prepare(input.is_quiet == 1, named, library_changes::begin)?;
    settings.tapped = tapped.allocators;
    if !tapped.maps {
        settings.mmap_from = 0;
    }
    let log = begin(&entered, settings)?;
    BLOCK.set_message(&log);
    BLOCK.state.store(attach_state::PLANNED, Ordering::Release);
    let deadline = clock::now_ns() + PATCH_TIMEOUT_NS;
    loop {
        let state = BLOCK.state.load(Ordering::Acquire);
        if attach_state::is_recording(state) || attach_block::is_end_asked() {
            break;
        }
        if state != attach_state::PLANNED || clock::now_ns() > deadline {
            end();
            return Err("heapprof attach ended before it was done".into());
        }
        sys::sleep_ns(LOOK_NS);
    }
    library_changes::follow_from_here();
    Ok(())
}

const _: () = assert!(Sampler::RESTART_LEN == COUNTDOWN_LEN);

static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// The first start in this process.
fn prepare_first(entered: &Entered) -> Result<(), String> {
    std::panic::set_hook(Box::new(|_| {}));
    allocator::set_writer_stop(writer::stop_if_writer);
    if !allocator::can_allocate(BOOT_BYTES) {
        return Err("there is no memory for it".into());
    }
    files::remember_root();
    seccomp::prepare();
    clock::choose();
    cancellation::learn();
    modules::discover_all(entered);
    seats::prepare();
    writer::prepare();
    writer::set_before_end(library_changes::note_untapped);
    // No function of ours learns that the main thread ends.
    last_thread::set_exit_is_silent(true);
    // SAFETY: functions that live as long as the process: the library is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    Ok(())
}

/// Another start in this process: forgets the last recording. If no thread is in our code
/// (`is_quiet`), its memory is freed, else it is left.
fn renew(is_quiet: bool) -> Result<(), String> {
    let is_known_child = BLOCK.pid.load(Ordering::Relaxed) == 0;
    if process::has_booted() && !process::is_own() && !is_known_child {
        return Err("it is a copy of a process that heapprof was attached to".into());
    }
    attach_block::note_process();
    if !writer::renew() {
        return Err("the thread of the last recording has not ended yet".into());
    }
    if is_quiet {
        seats::release();
        session::renew();
        sampled_blocks::renew();
        requests::renew();
    } else {
        session::abandon();
        requests::leave();
    }
    seats::equip_vacant();
    session_start::renew();
    request_word::after_fork();
    shutdown::after_fork();
    interval::after_fork();
    fd_table::after_fork();
    adopt_credentials::after_fork();
    labels::after_fork();
    counters::reset();
    process::renew();
    modules::note_dlclose(); // modules may be gone, and cached walks with them
    Ok(())
}

/// In a forked child: nothing is recorded. The child forgets its parent's recording, and can be
/// attached to.
unsafe extern "C" fn in_child() {
    let thread = thread::current();
    phase::end();
    process::after_fork(0);
    session::abandon();
    request_word::after_fork();
    requests::after_fork();
    interval::after_fork();
    sampled_blocks::after_fork();
    labels::after_fork();
    shutdown::after_fork();
    modules::after_fork();
    seats::leave_to_parent(thread);
    counters::reset();
    writer::after_fork();
    fd_table::after_fork();
    diagnostics::after_fork();
    adopt_credentials::after_fork();
    session_start::after_fork();
    session::after_fork(thread);
    // The child may be under a seccomp filter that forbids to ask for its id.
    BLOCK.pid.store(0, Ordering::Relaxed);
    let idle = attach_state::IDLE;
    BLOCK.state.store(idle, Ordering::Release);
}

/// Returns the address of the program's arguments, above all frames of the main thread.
fn arguments() -> u64 {
    unsafe extern "C" {
        /// The stack pointer at the entry of the process.
        static __libc_stack_end: *const usize;
    }
    // SAFETY: a word of the loader's, set before the program ran.
    unsafe { __libc_stack_end }.wrapping_add(1) as u64
}

/// Returns the settings. The program's environment has none for us.
fn settings(input: &AttachInput) -> Settings {
    // SAFETY: null is an empty environment.
    let nothing = unsafe { Environment::new(std::ptr::null::<*const c_char>()) };
    let mut settings = Settings::read(&nothing);
    settings.interval = input.interval.max(1);
    settings.depth = input.depth;
    settings.folder = Some(input.folder().to_vec());
    settings.log_name = Some(input.name().to_vec()).filter(|name| !name.is_empty());
    let taps = String::from_utf8_lossy(input.taps()).into_owned();
    settings.named_taps = Some(taps).filter(|taps| !taps.is_empty());
    settings.is_attached = true;
    settings.control = Some(true);
    settings
}

/// Begins the log and the session. Returns the log's path.
fn begin(entered: &Entered, settings: Settings) -> Result<String, String> {
    walk::prepare(settings.depth);
    let output = Output::create(&settings, None);
    let Ok(output) = output else {
        let name = settings.log_name.unwrap_or_default();
        let folder = settings.folder.unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        let space = if name.is_empty() { "" } else { " " };
        return Err(format!(
            "it cannot create its log{space}{name} in {}: the process has no such folder, its \
             user may not write there, or the file system is read-only; name another folder with -o",
            String::from_utf8_lossy(&folder)
        ));
    };
    let log = output.log_path();
    sampled_blocks::prepare_bloom_filter(settings.interval, std::iter::empty());
    interval::prepare(&settings);
    labels::prepare(settings.label_values);
    python::prepare(settings.python, false);
    shutdown::prepare(settings.exit_wait_ms * 1_000_000);
    let mmap_from = settings.mmap_from;
    session_start::prepare(settings, Some(output));
    process::register();
    byte_count::begin(entered.thread);
    phase::begin();
    mapping_changes::begin(mmap_from, false);
    match session_start::begin(entered) {
        Some(_) => Ok(log),
        None => Err("it cannot start a thread, or has no memory for it".into()),
    }
}

/// Ends the recording, whose entries are not all changed.
fn end() {
    phase::end();
    if let Some(session) = session::current() {
        writer::end_recording(session);
    }
}
