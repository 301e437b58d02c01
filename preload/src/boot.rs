//! Boot: what the loader's call of our constructor leads to.
//!
//! The constructor reads the settings, makes the log, learns the modules and turns the phase. It starts no
//! thread: the writer begins with the first sample (`writer/session_start.rs`), so a small program keeps its one thread. Only a
//! timed dump, a dump signal, or being listened to (`heapprof ctl`) or stopped from the start needs the writer at once.

use std::ffi::{c_char, c_int};

use crate::allocator;
use crate::hooks::{early_heap, malloc, operators};
use crate::host::foreign_allocators::{self, Malloc};
use crate::host::{
    atfork, exec, exit, main_thread, namespaces, privilege_drop, raw_syscalls, reexec, setid,
};
use crate::os::diagnostics::{self, say};
use crate::os::environment::Environment;
use crate::os::{cancellation, clock, dl, executable, libc_trampolines, seccomp, sys};
use crate::recording::{byte_count, sampled_blocks, seats};
use crate::state::settings::{self, Settings};
use crate::state::thread::{self, Entered, Inside};
use crate::state::{interval, phase, process};
use crate::unwind::{modules, stack_bounds, walk};
use crate::writer::log::output::{NoLog, Output};
use crate::writer::{self, dump_signal, session_start};

/// What boot takes: the list of modules, tables of those that move, seats for stacks of the usual depth.
const BOOT_BYTES: usize = 2 << 20;

/// Whether there is so much memory for us; else says that there is not.
fn has_room_for(bytes: usize) -> bool {
    let has_room = allocator::can_have(bytes);
    if !has_room {
        allocator::give_up_for_want_of_memory();
    }
    has_room
}

#[cfg(target_env = "gnu")]
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = construct;

/// musl passes nothing to constructors.
#[cfg(target_env = "musl")]
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct_alone() {
        let environment = allocator::environment_of_libc();
        // SAFETY: what the kernel gave the program: ours is the first constructor, so nobody has put another in its place.
        let arguments = unsafe { arguments_below(environment) };
        construct(0, arguments, environment);
    }
    construct_alone
};

/// The program's arguments, below its environment: their number, they themselves, and a null.
///
/// # Safety
/// The environment as the kernel wrote it.
#[cfg(target_env = "musl")]
unsafe fn arguments_below(environment: *const *const c_char) -> *const *const c_char {
    // From the null below the environment downwards: what stands below the first is their number, which no address is as small as.
    let mut first = environment.wrapping_sub(1);
    let mut count = 0;
    // SAFETY: the caller's promise: no further down than their number.
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
    entered.thread.inside.set(Inside::Ours);
    allocator::remember_environment(environment);
    libc_trampolines::prepare();
    diagnostics::remember();
    allocator::be_quiet();
    exec::prepare();
    raw_syscalls::prepare();
    seccomp::prepare();
    setid::prepare();
    namespaces::prepare();
    privilege_drop::prepare();
    if let Some(sanitizer) = dl::sanitizer() {
        // Before anything is allocated, or any function of libc's called that it intercepts: it is not ready for
        // that, and ThreadSanitizer would come back to us for memory, into a lock of jemalloc's.
        phase::give_up(format_args!(
            "the program is built with {sanitizer}, which wants to be its allocator: nothing is recorded; \
             profile a build without it"
        ));
        if sanitizer == dl::THREAD_SANITIZER {
            // SAFETY: what libc passes to constructors; ours runs before all others, so nothing of the program has.
            unsafe { reexec::without_us(arguments, environment) };
        }
        return;
    }
    allocator::stop_writer_by(writer::stop_if_it_is_me);
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
    // The default would print, with a backtrace, through locks and the loader.
    std::panic::set_hook(Box::new(|_| {}));
    let Some(settings) = settings_to_record_by(&entered, environment) else {
        phase::end();
        return;
    };
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
        Err(NoLog::Yet) => None, // the first sample makes it
        Err(NoLog::Ever) => {
            phase::end();
            return;
        }
    };
    if let Some(output) = output.as_ref().filter(|_| settings.verbose) {
        say!(
            "recording pid {} to {}, {}",
            sys::getpid(),
            output.log_path(),
            interval::in_words(settings.interval)
        );
    }
    sampled_blocks::prepare_filter(settings.interval, early_heap::addresses());
    interval::prepare(&settings);
    let with_dumps = settings.prefix.is_some();
    if !with_dumps {
        tell_of_signal(&settings, "without HEAPPROFILE no dumps are written");
    }
    let on_signal = with_dumps && dump_signal::install(settings.dump_signal);
    let at_once =
        settings.listens_from_the_start() || on_signal || with_dumps && settings.dump_seconds > 0;
    let patience_ns = settings.exit_wait_ms * 1_000_000;
    session_start::prepare(settings, output);
    main_thread::prepare();
    process::register();
    exit::register(patience_ns);
    byte_count::begin(entered.thread);
    phase::begin();
    if at_once {
        session_start::begin(&entered);
    }
}

/// The settings; `None`: nothing is to be recorded, which has been said where somebody may wonder.
fn settings_to_record_by(entered: &Entered, environment: *const *const c_char) -> Option<Settings> {
    // SAFETY: asks for one number of the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        // A program with more rights than its user: allocate and do nothing else.
        return None;
    }
    // SAFETY: glibc passes the process's environment block to constructors.
    let environment = unsafe { Environment::new(environment) };
    let settings = Settings::read(&environment);
    if settings.interval == 0 {
        if settings.verbose {
            say!("HEAPPROF_SAMPLE_INTERVAL=0: forwarding only, nothing is recorded");
        }
        tell_of_signal(
            &settings,
            "with HEAPPROF_SAMPLE_INTERVAL=0 nothing is recorded",
        );
        return None;
    }
    if foreign_allocators::valgrind_allocates(environment.get("LD_PRELOAD").unwrap_or_default()) {
        say!(
            "valgrind is the allocator of what it runs: nothing is recorded; \
             profile without valgrind, or take libheapprof.so out of LD_PRELOAD"
        );
        return None;
    }
    match foreign_allocators::malloc_of_program(entered, malloc::malloc_address()) {
        Malloc::Ours => {}
        Malloc::Others(library) => {
            match library {
                None => say!(
                    "{} has a malloc of its own, which nobody can replace: nothing is recorded",
                    String::from_utf8_lossy(&executable::path())
                ),
                Some(path) => say!(
                    "{path} stands before libheapprof.so and has a malloc of its own: nothing is recorded; \
                     name libheapprof.so first in LD_PRELOAD"
                ),
            }
            return None;
        }
    }
    if let Some((caller, function)) = foreign_allocators::allocates_beside_us() {
        let caller = match caller.to_bytes() {
            b"" => sys::readlink(c"/proc/self/exe").unwrap_or_default(),
            path => path.to_vec(),
        };
        say!(
            "{} takes memory by {}, which is another allocator's: that is not recorded, what it takes by malloc is",
            String::from_utf8_lossy(&caller),
            function.to_string_lossy()
        );
    }
    Some(settings)
}

/// The signal that is to make a dump is not ours then: whoever sends it would end the program.
fn tell_of_signal(settings: &Settings, why: &str) {
    if settings.dump_signal != 0 {
        say!(
            "HEAPPROFILESIGNAL={}: {why}, and the signal does what it would without us",
            settings.dump_signal
        );
    }
}
