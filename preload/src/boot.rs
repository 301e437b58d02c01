//! Boot: the constructor, which the loader calls before all others, and the order of start.
//!
//! The constructor reads the settings, makes the log, learns the modules, and begins the recording.
//! It starts no thread: the writer starts with the first sample, so a small program keeps its one
//! thread. The writer starts at once if dumps by the clock or by a signal are wanted. It also
//! starts at once if the process listens to `heapprof ctl` from the start, or if recording is
//! stopped at the start.

use std::ffi::{CStr, c_char, c_int};

use crate::allocator::{self, OwnCall};
use crate::hooks::taps::{self, TapOutcome};
use crate::hooks::{
    early_heap, malloc, mapping_changes, mappings, next_fast, operators, thread_creation,
};
use crate::host::foreign_allocators::{self, MallocOwner};
use crate::host::{
    atfork, dlopen, exec, exit, main_thread, namespaces, privilege_drop, raw_syscalls, reexec,
    setid,
};
use crate::os::diagnostics::{self, say};
#[cfg(target_env = "musl")]
use crate::os::environment;
use crate::os::environment::Environment;
use crate::os::{cancellation, clock, dl, executable, files, libc_trampolines, seccomp, sys};
use crate::recording::{byte_count, labels, sampled_blocks, seats};
use crate::state::settings::{self, Settings};
use crate::state::thread::{self, Entered, RunningCode};
use crate::state::{interval, phase, process};
use crate::unwind::{modules, python, stack_bounds, walk};
use crate::writer::log::file_names::NoLog;
use crate::writer::log::output::Output;
use crate::writer::session_start::{self, NEXT_ALLOCATOR_BYTES};
use crate::writer::{self, dump_signal};

/// The memory that boot needs: the list of modules, tables that grow with it, and seats for stacks
/// of the usual depth.
const BOOT_BYTES: usize = 2 << 20;

/// Returns true if there is so much memory for us. Otherwise it reports that there is not.
fn has_room_for(bytes: usize) -> bool {
    let has_room = allocator::can_allocate(bytes)
        && (!allocator::has_next() || allocator::can_map(NEXT_ALLOCATOR_BYTES));
    if !has_room {
        allocator::give_up_without_memory();
    }
    has_room
}

#[cfg(target_env = "gnu")]
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = construct;

/// musl passes no arguments to constructors.
#[cfg(target_env = "musl")]
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct_alone() {
        let environment = environment::of_libc();
        // SAFETY: the kernel wrote it, and ours is the first constructor, so no other code has
        // replaced it.
        let arguments = unsafe { arguments_below(environment) };
        construct(0, arguments, environment);
    }
    construct_alone
};

/// Returns the program's arguments, which lie below its environment: their number, the arguments,
/// and a null.
///
/// # Safety
/// The environment as the kernel wrote it.
#[cfg(target_env = "musl")]
unsafe fn arguments_below(environment: *const *const c_char) -> *const *const c_char {
    // Downwards from the null below the environment. Below the first argument stands the number of
    // arguments, which is smaller than any address.
    let mut first = environment.wrapping_sub(1);
    let mut count = 0;
    // SAFETY: the caller's promise: no further down than the number of arguments.
    while unsafe { *first.wrapping_sub(1) } as usize != count {
        first = first.wrapping_sub(1);
        count += 1;
    }
    first
}

extern "C" fn construct(
    _count: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    let Some(entered) = thread::current().enter() else {
        return;
    };
    entered.thread.running_code.set(RunningCode::Ours);
    libc_trampolines::prepare();
    diagnostics::remember();
    files::remember_root();
    allocator::redirect_messages();
    exec::prepare();
    exit::prepare();
    raw_syscalls::prepare();
    mappings::prepare();
    thread_creation::prepare();
    seccomp::prepare();
    setid::prepare();
    namespaces::prepare();
    privilege_drop::prepare();
    if let Some(sanitizer) = dl::sanitizer() {
        // First: before any allocation, and before any libc function that the sanitizer intercepts.
        // The sanitizer is not ready. ThreadSanitizer would call our malloc while jemalloc's lock
        // is held.
        phase::give_up(format_args!(
            "the program is built with {sanitizer}, which must be its allocator: nothing is recorded; \
             profile a build without it"
        ));
        if sanitizer == dl::THREAD_SANITIZER {
            // SAFETY: what libc passes to constructors; ours runs before all others, so no code of
            // the program has run.
            unsafe { reexec::exec_without_us(arguments, environment) };
        }
        return;
    }
    allocator::set_writer_stop(writer::stop_if_writer);
    allocator::prepare();
    if !has_room_for(BOOT_BYTES) {
        return;
    }
    // SAFETY: glibc passes the process's environment block to constructors.
    let uses_fast_path = settings::uses_fast_path(&unsafe { Environment::new(environment) });
    allocator::learn(uses_fast_path);
    atfork::register_ours();
    clock::choose();
    operators::prepare();
    if uses_fast_path {
        next_fast::prepare();
    }
    // The default hook would print, with a backtrace, through locks and the loader.
    std::panic::set_hook(Box::new(|_| {}));
    let Some(settings) = settings_if_recording(&entered, arguments, environment) else {
        phase::end();
        return;
    };
    if allocator::is_next_missed() {
        notice_without_next();
    }
    cancellation::learn();
    stack_bounds::remember_main(arguments as u64);
    modules::discover_all(&entered);
    walk::prepare(settings.depth);
    if !has_room_for(seats::initial_bytes()) {
        return;
    }
    seats::prepare();
    writer::prepare();
    let output = match Output::create(&settings, None) {
        Ok(output) => Some(output),
        // The first sample makes the log.
        Err(NoLog::Transient) => None,
        Err(NoLog::Permanent) => {
            phase::end();
            return;
        }
    };
    if let Some(output) = output.as_ref().filter(|_| settings.verbose) {
        say!(
            "recording pid {} to {}, {}",
            sys::getpid(),
            output.log_path(),
            interval::describe(settings.interval)
        );
    }
    sampled_blocks::prepare_bloom_filter(settings.interval, early_heap::addresses());
    interval::prepare(&settings);
    labels::prepare(settings.label_values);
    let with_dumps = settings.prefix.is_some();
    if !with_dumps {
        report_ignored_signal(&settings, "without HEAPPROFILE no dumps are written");
    }
    let on_signal = with_dumps && dump_signal::install(settings.dump_signal);
    let at_once =
        settings.listens_from_the_start() || on_signal || with_dumps && settings.dump_seconds > 0;
    let exit_timeout_ns = settings.exit_wait_ms * 1_000_000;
    let watches = settings.taps;
    let mmap_from = settings.mmap_from;
    let is_own_allocator_alone = !allocator::has_next() && settings.tapped.is_empty();
    python::prepare(settings.python, is_own_allocator_alone);
    session_start::prepare(settings, output);
    main_thread::prepare();
    process::register();
    exit::register(exit_timeout_ns);
    byte_count::begin(entered.thread);
    phase::begin();
    mapping_changes::begin(mmap_from, is_own_allocator_alone);
    if watches {
        taps::opened_libraries::prepare();
        dlopen::watch(dlopen::Watcher {
            opened: taps::opened_libraries::tap_new_libraries,
            closed: taps::opened_libraries::forget_closed,
        });
    }
    if at_once {
        session_start::begin(&entered);
    }
}

/// The argument of a process of Chromium, and of programs that contain it, from which others are
/// forked. It counts its threads, and aborts if there are two.
const ZYGOTE: &CStr = c"--type=zygote";

/// Returns the settings. `None`: nothing is recorded. If the user may wonder why, it has been
/// reported.
fn settings_if_recording(
    entered: &Entered,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> Option<Settings> {
    // SAFETY: asks for one number of the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        // A program with more rights than its user: only allocate.
        return None;
    }
    // SAFETY: glibc passes the process's environment block to constructors.
    let environment = unsafe { Environment::new(environment) };
    let mut settings = Settings::read(&environment);
    if settings.verbose {
        diagnostics::be_verbose();
    }
    if !is_wanted(&settings) {
        return None;
    }
    // SAFETY: libc passes the program's arguments to constructors.
    if unsafe { executable::has_argument(arguments, ZYGOTE) } {
        if settings.verbose {
            say!(
                "a zygote ends if it has a second thread: nothing is recorded here, or in its children"
            );
        }
        return None;
    }
    if settings.interval == 0 {
        if settings.verbose {
            say!("HEAPPROF_SAMPLE_INTERVAL=0: nothing is recorded");
        }
        report_ignored_signal(
            &settings,
            "with HEAPPROF_SAMPLE_INTERVAL=0 nothing is recorded",
        );
        return None;
    }
    if foreign_allocators::is_valgrind_allocating(environment.get("LD_PRELOAD").unwrap_or_default())
    {
        say!(
            "valgrind replaces the program's allocator: nothing is recorded; \
             profile without valgrind, or remove libheapprof.so from LD_PRELOAD"
        );
        return None;
    }
    let owner = foreign_allocators::owner_of_malloc(entered, malloc::malloc_address());
    if let MallocOwner::Other(Some(path)) = &owner {
        say!(
            "{path} is loaded before libheapprof.so and has its own malloc: nothing is recorded; \
             name libheapprof.so first in LD_PRELOAD"
        );
        return None;
    }
    let owns_malloc = matches!(owner, MallocOwner::Other(None));
    let mut why_not = "HEAPPROF_TAP=0".to_owned();
    if settings.taps {
        why_not = tap_allocators(&mut settings, owns_malloc)
            .unwrap_or_else(|| "its symbols do not tell of a malloc and a free".to_owned());
    }
    if owns_malloc && settings.tapped.is_empty() {
        say!(
            "{} has its own malloc, which cannot be replaced, and is not tapped ({why_not}): \
             nothing is recorded",
            String::from_utf8_lossy(&executable::path()),
        );
        return None;
    }
    notice_own_functions(settings.tapped.is_empty());
    Some(settings)
}

/// Returns true if `HEAPPROF_ONLY` names this program, by its file's name or by the name by which
/// it was executed.
fn is_wanted(settings: &Settings) -> bool {
    if settings.only.is_none() {
        return true;
    }
    let path = executable::path();
    let file = executable::file_name(&path);
    let executed_as = executable::executed_as(&path);
    let is_wanted = settings.wants_program([file, executed_as.as_deref().unwrap_or(file)]);
    if !is_wanted && settings.verbose {
        say!(
            "HEAPPROF_ONLY does not name {}: nothing is recorded",
            String::from_utf8_lossy(file)
        );
    }
    is_wanted
}

/// Taps the allocators inside of the program, and lists them in the settings. Returns the reason if
/// the program's own malloc is not tapped.
fn tap_allocators(settings: &mut Settings, owns_malloc: bool) -> Option<String> {
    let mut why_not = None;
    if let Some(named) = &settings.named_taps {
        taps::read_named(named);
    }
    for outcome in taps::install(owns_malloc) {
        match outcome {
            TapOutcome::Tapped(what) | TapOutcome::TappedNext(what) => settings.tapped.push(what),
            TapOutcome::RefusedMalloc(why) => why_not = Some(why),
            TapOutcome::Refused(why) => diagnostics::put_notice_for_next_log(format_args!(
                "blocks of {why}; they are not recorded"
            )),
        }
    }
    why_not
}

/// Reports calls of functions that only one allocator has: that the allocator serves the program
/// for them, or that they are not recorded.
fn notice_own_functions(is_none_tapped: bool) {
    let words = |call: &OwnCall| {
        let caller = match call.caller.to_bytes() {
            b"" => executable::path(),
            path => path.to_vec(),
        };
        let caller = String::from_utf8_lossy(&caller).into_owned();
        format!("{caller} calls {}", call.function.to_string_lossy())
    };
    if allocator::is_chosen_for_calls()
        && let Some(call) = allocator::own_call_into_next()
    {
        diagnostics::put_notice_for_next_log(format_args!(
            "{}, a function of its allocator's own: {} serves the program, and not heapprof's jemalloc \
             (HEAPPROF_ALLOCATOR=jemalloc overrides that)",
            words(&call),
            allocator::next_library()
                .unwrap_or_default()
                .to_string_lossy()
        ));
    }
    if is_none_tapped && let Some(call) = allocator::own_call_into_any() {
        diagnostics::put_notice_for_next_log(format_args!(
            "{}, a function of an allocator's own: such calls are not recorded (malloc and free are){}",
            words(&call),
            match allocator::has_next() {
                true => ", and a block of malloc that they free stays in use",
                false => "",
            }
        ));
    }
}

/// Reports that jemalloc serves the program, although its own allocator was to.
fn notice_without_next() {
    diagnostics::put_notice_for_next_log(format_args!(
        "HEAPPROF_ALLOCATOR=program: no library behind libheapprof.so defines malloc, calloc, \
         realloc, free and posix_memalign; jemalloc serves the program"
    ));
}

/// Reports that the signal for dumps is not caught: a user who sends it would end the program.
fn report_ignored_signal(settings: &Settings, why: &str) {
    if settings.dump_signal != 0 {
        say!(
            "HEAPPROFILESIGNAL={}: {why}, so the signal keeps its usual effect",
            settings.dump_signal
        );
    }
}
