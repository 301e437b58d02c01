//! Boot: what the loader's call of our constructor leads to.
//!
//! The constructor reads the settings, makes the log, learns the modules and turns the phase. It starts no
//! thread: the writer begins with the first sample (`beginning.rs`), so a small program keeps its one thread. Only a
//! timed dump, a dump signal, or being listened to (`heapprof ctl`) or stopped from the start needs the writer at once.

use std::ffi::{c_char, c_int};

use crate::environment::Environment;
use crate::hook::{self, Phase};
use crate::loader::{self, Malloc};
use crate::output::{NoLog, Output};
use crate::say::{self, say};
use crate::settings::Settings;
use crate::tls::{self, Entered, Inside};
use crate::{
    again, ahead, atfork, beginning, blocks, cancel, clock, control, exec, exit, exports, fork,
    genuine, health, je, je_cache, je_large, je_map, je_system, je_threads, main_thread, modules,
    namespace, operators, own_alloc, program, seats, setid, signal, spare, stack, sys, system_call,
    walk, writer,
};

/// What boot takes: the list of modules, tables of those that move, seats for stacks of the usual depth.
const BOOT_BYTES: usize = 2 << 20;

/// Whether there is so much memory for us; else says that there is not.
fn has_room_for(bytes: usize) -> bool {
    let has_room = own_alloc::can_have(bytes);
    if !has_room {
        own_alloc::say_that_there_is_none();
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
        let environment = je_system::environment_of_libc();
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
    let Some(entered) = tls::current().enter() else {
        return;
    };
    entered.thread.inside.set(Inside::Ours);
    je_system::remember_environment(environment);
    genuine::prepare();
    say::remember();
    je::be_quiet();
    exec::prepare();
    system_call::prepare();
    setid::prepare();
    namespace::prepare();
    ahead::prepare();
    if let Some(sanitizer) = loader::sanitizer() {
        // Before anything is allocated, or any function of libc's called that it intercepts: it is not ready for
        // that, and ThreadSanitizer would come back to us for memory, into a lock of jemalloc's.
        say!(
            "the program is built with {sanitizer}, which wants to be its allocator: nothing is recorded; \
             profile a build without it"
        );
        hook::set_phase(Phase::Off);
        if sanitizer == loader::THREAD_SANITIZER {
            // SAFETY: what libc passes to constructors; ours runs before all others, so nothing of the program has.
            unsafe { again::without_us(arguments, environment) };
        }
        return;
    }
    spare::prepare();
    if !has_room_for(BOOT_BYTES) {
        return;
    }
    je::learn();
    je_map::learn();
    je_cache::learn();
    je_large::learn();
    je_threads::prepare();
    atfork::register_ours();
    clock::choose();
    operators::prepare();
    // The default would print, with a backtrace, through locks and the loader.
    std::panic::set_hook(Box::new(|_| {}));
    let Some(settings) = settings_to_record_by(&entered, environment) else {
        hook::set_phase(Phase::Off);
        return;
    };
    cancel::learn();
    stack::remember_main(arguments as u64);
    modules::discover_all(&entered);
    walk::prepare(settings.depth);
    if !has_room_for(seats::bytes_at_first()) {
        return;
    }
    seats::prepare();
    writer::prepare();
    let output = match Output::create(&settings, None) {
        Ok(output) => Some(output),
        Err(NoLog::Yet) => None, // the first sample makes it
        Err(NoLog::Ever) => {
            hook::set_phase(Phase::Off);
            return;
        }
    };
    if let Some(output) = output.as_ref().filter(|_| settings.verbose) {
        say!(
            "recording pid {} to {}, {}",
            sys::getpid(),
            output.log_path(),
            control::in_words(settings.interval)
        );
    }
    blocks::prepare_filter(settings.interval);
    control::prepare(&settings);
    let with_dumps = settings.prefix.is_some();
    if !with_dumps {
        tell_of_signal(&settings, "without HEAPPROFILE no dumps are written");
    }
    let on_signal = with_dumps && signal::install(settings.dump_signal);
    let at_once =
        settings.listens_from_the_start() || on_signal || with_dumps && settings.dump_seconds > 0;
    let patience_ns = settings.exit_wait_ms * 1_000_000;
    beginning::prepare(settings, output);
    main_thread::prepare();
    fork::register();
    exit::register(patience_ns);
    health::begin(entered.thread);
    hook::set_phase(Phase::Recording);
    if at_once {
        beginning::begin(&entered);
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
    if loader::valgrind_allocates(environment.get("LD_PRELOAD").unwrap_or_default()) {
        say!(
            "valgrind is the allocator of what it runs: nothing is recorded; \
             profile without valgrind, or take libheapprof.so out of LD_PRELOAD"
        );
        return None;
    }
    match loader::malloc_of_program(entered, exports::malloc_address()) {
        Malloc::Ours => {}
        Malloc::Others(library) => {
            match library {
                None => say!(
                    "{} has a malloc of its own, which nobody can replace: nothing is recorded",
                    String::from_utf8_lossy(&program::path())
                ),
                Some(path) => say!(
                    "{path} stands before libheapprof.so and has a malloc of its own: nothing is recorded; \
                     name libheapprof.so first in LD_PRELOAD"
                ),
            }
            return None;
        }
    }
    if let Some((caller, function)) = loader::allocates_beside_us() {
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
