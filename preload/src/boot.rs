//! Boot: from the loader's call of our constructor to the first sample.
//!
//! The constructor reads the settings, makes the log, learns the modules and turns the phase. It starts no
//! thread: the writer begins with the first sample, so a small program keeps its one thread. Only a
//! timed dump, a dump signal, or being listened to (`heapprof ctl`) or stopped from the start needs the writer at once.
//!
//! A forked child begins its session in the same way, with its first sample (`fork.rs`).

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::blocks;
use crate::environment::Environment;
use crate::hook::{self, Phase};
use crate::loader::{self, Malloc};
use crate::output::{Forked, NoLog, Output};
use crate::patience::{self, Patience};
use crate::say::{self, say};
use crate::session::{self, Session};
use crate::settings::Settings;
use crate::tls::{self, Entered, Inside};
use crate::writer::{self, Writer};
use crate::{
    again, ahead, cancel, clock, control, desk, early_frees, exec, exit, exports, fork, genuine,
    health, je, je_map, je_system, main_thread, modules, namespace, operators, own_alloc,
    own_stack, seats, setid, signal, spare, stack, sys, system_call, walk,
};

/// What boot takes: the list of modules, tables of those that move, seats for stacks of the usual depth.
const BOOT_BYTES: usize = 2 << 20;
/// What a session takes: its channels, the writer's first buffers.
const SESSION_BYTES: usize = 2 << 20;
/// And beside our own arena: the writer's stack, a first lane, a first level of the tables.
const SESSION_MAPPED_BYTES: usize = 1 << 20;

/// Read once; leaked.
static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(std::ptr::null_mut());
/// The writer before it has a thread: the log exists, nothing has been sampled.
static PENDING: AtomicPtr<Writer> = AtomicPtr::new(std::ptr::null_mut());
/// Held by the thread that begins the session.
static BEGINNING: AtomicBool = AtomicBool::new(false);
/// Set when somebody's patience with the thread that begins the session has ended: until it is done, nobody waits for it
/// again. It may want a lock of libc's whose owner allocates a thousand times before it gives it up (a dlopen, in old ones).
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// When it is tried again to make a log that there was no descriptor for, by the monotonic clock.
static NOT_BEFORE_NS: AtomicU64 = AtomicU64::new(0);
/// Between two tries.
const PAUSE_NS: u64 = 10_000_000;
/// Whether it begins without a sample (`ahead.rs`).
static AHEAD: AtomicBool = AtomicBool::new(false);
/// Whether the session is to begin as soon as it can, so that it may be asked (`desk.rs`), and has not.
static AWAITED: AtomicBool = AtomicBool::new(false);
/// Where this process comes from, if it was forked.
static ORIGIN: Origin = Origin {
    parent: AtomicU32::new(0),
    forked_ns: AtomicU64::new(0),
    has_log: AtomicBool::new(false),
    log: AtomicPtr::new(std::ptr::null_mut()),
};

/// What a forked process knows of the one it is a copy of: enough for a reader to find there what was in
/// use at the fork. Words only, so that the fork's handler can write them.
struct Origin {
    /// Process id of the nearest ancestor that has a log.
    parent: AtomicU32,
    /// When that one forked, by the monotonic clock.
    forked_ns: AtomicU64,
    /// Whether `log` is this process's own.
    has_log: AtomicBool,
    /// Path of that ancestor's log: this process's own, until it forks. Leaked.
    log: AtomicPtr<String>,
}

impl Origin {
    /// As `output.rs` wants it; `None` in a process that was not forked.
    fn described(&self) -> Option<Forked> {
        let parent = self.parent.load(Ordering::Acquire);
        // SAFETY: null or leaked by `remember`.
        let log = unsafe { self.log.load(Ordering::Acquire).as_ref() };
        (parent != 0).then(|| Forked {
            parent,
            forked_ns: self.forked_ns.load(Ordering::Acquire),
            log: log.cloned().unwrap_or_default(),
        })
    }

    /// Notes the log that this process's children will come from.
    fn remember(&self, output: &Output) {
        let path = Box::into_raw(Box::new(output.log_path()));
        self.log.store(path, Ordering::Release);
        self.has_log.store(true, Ordering::Release);
    }
}

/// Whether there is so much memory for us; else says that there is not.
fn has_room_for(bytes: usize) -> bool {
    let has_room = own_alloc::can_have(bytes);
    if !has_room {
        say!("there is no memory for us (is it limited, as by ulimit -v?); nothing is recorded");
    }
    has_room
}

#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = construct;

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
    je_map::learn();
    clock::choose();
    operators::prepare();
    // The default would print, with a backtrace, through locks and the loader.
    std::panic::set_hook(Box::new(|_| {}));
    // SAFETY: asks for one number of the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        // A program with more rights than its user: allocate and do nothing else.
        hook::set_phase(Phase::Off);
        return;
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
        hook::set_phase(Phase::Off);
        return;
    }
    if loader::valgrind_allocates(environment.get("LD_PRELOAD").unwrap_or_default()) {
        say!(
            "valgrind is the allocator of what it runs: nothing is recorded; \
             profile without valgrind, or take libheapprof.so out of LD_PRELOAD"
        );
        hook::set_phase(Phase::Off);
        return;
    }
    match loader::malloc_of_program(&entered, exports::malloc_address()) {
        Malloc::Ours => {}
        Malloc::Others(library) => {
            match library {
                None => say!(
                    "{} has a malloc of its own, which nobody can replace: nothing is recorded",
                    String::from_utf8_lossy(&sys::readlink(c"/proc/self/exe").unwrap_or_default())
                ),
                Some(path) => say!(
                    "{path} stands before libheapprof.so and has a malloc of its own: nothing is recorded; \
                     name libheapprof.so first in LD_PRELOAD"
                ),
            }
            hook::set_phase(Phase::Off);
            return;
        }
    }
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
    if let Some(output) = &output {
        if settings.verbose {
            say!(
                "recording pid {} to {}, {}",
                sys::getpid(),
                output.log_path(),
                describe(settings.interval)
            );
        }
        ORIGIN.remember(output);
    }
    blocks::prepare_filter(settings.interval);
    control::prepare(&settings);
    let awaited = settings.listens_from_the_start();
    AWAITED.store(awaited, Ordering::Release);
    let with_dumps = settings.prefix.is_some();
    if !with_dumps {
        tell_of_signal(&settings, "without HEAPPROFILE no dumps are written");
    }
    let on_signal = with_dumps && signal::install(settings.dump_signal);
    let at_once = awaited || on_signal || with_dumps && settings.dump_seconds > 0;
    let patience_ns = settings.exit_wait_ms * 1_000_000;
    if let Some(output) = output {
        keep_pending(Box::new(Writer::new(output, &settings)));
    }
    SETTINGS.store(Box::into_raw(Box::new(settings)), Ordering::Release);
    main_thread::prepare();
    fork::register();
    exit::register(patience_ns);
    health::begin(entered.thread);
    hook::set_phase(Phase::Recording);
    if at_once {
        begin_session(&entered);
    }
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

fn describe(interval: u64) -> String {
    match interval {
        1 => "every allocation".to_owned(),
        n => format!("one sample every {n} bytes on average"),
    }
}

/// Begins the process's session: its lanes, and the thread that empties them. `None`: another thread is at it and
/// takes long, or it cannot be done, in which case we have given up.
#[cold]
pub(crate) fn begin_session(entered: &Entered) -> Option<&'static Session> {
    let mut patience = Patience::of(patience::SHORT_NS);
    loop {
        if let Some(session) = session::current() {
            return Some(session);
        }
        if !fork::is_own_process() {
            // A vfork child in its parent's memory: a thread that it started would end with it.
            return None;
        }
        if !BEGINNING.swap(true, Ordering::Acquire) {
            // What pthread_create allocates is not the program's.
            entered.thread.inside.set(Inside::Ours);
            let session = match session::current() {
                // Whoever was at it before us may have given up, and said so.
                None if hook::is_recording() => own_stack::run(begin),
                session => session,
            };
            entered.thread.inside.set(Inside::Hook);
            GIVEN_UP.store(false, Ordering::Relaxed);
            BEGINNING.store(false, Ordering::Release);
            if let Some(session) = session
                && early_frees::are_kept()
            {
                session.take_in(entered.thread);
            }
            return session;
        }
        if GIVEN_UP.load(Ordering::Relaxed) {
            return None;
        }
        if !patience.pause() {
            GIVEN_UP.store(true, Ordering::Relaxed);
            return None; // the sample counts as lost
        }
    }
}

/// The same without a sample: a forked process that never has one takes its log back.
pub(crate) fn begin_session_ahead(entered: &Entered) {
    AHEAD.store(true, Ordering::Relaxed);
    begin_session(entered);
    AHEAD.store(false, Ordering::Relaxed);
}

fn begin() -> Option<&'static Session> {
    if NOT_BEFORE_NS.load(Ordering::Relaxed) > clock::now_ns() {
        return None;
    }
    // SAFETY: null or leaked by the constructor.
    let settings = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() }?;
    let writer = match take_pending() {
        Some(writer) => writer,
        None => {
            let output = match Output::create(settings, ORIGIN.described()) {
                Ok(output) => output,
                Err(NoLog::Yet) => {
                    NOT_BEFORE_NS.store(clock::now_ns() + PAUSE_NS, Ordering::Relaxed);
                    return None;
                }
                Err(NoLog::Ever) => {
                    hook::set_phase(Phase::Off);
                    return None;
                }
            };
            ORIGIN.remember(&output);
            let mut writer = Box::new(Writer::new(output, settings));
            writer.is_ahead = AHEAD.load(Ordering::Relaxed) || AWAITED.load(Ordering::Acquire);
            writer
        }
    };
    let is_said = own_alloc::is_short();
    let has_room = own_alloc::can_have(SESSION_BYTES)
        && own_alloc::can_map(SESSION_MAPPED_BYTES)
        && blocks::make_table();
    let session = has_room.then(|| {
        let page = desk::make_page(settings.control != Some(false));
        session::install(control::in_force(), page)
    });
    let Some(session) = session.flatten() else {
        hook::set_phase(Phase::Off);
        if !is_said {
            say!(
                "there is no memory for us (is it limited, as by ulimit -v?); nothing is recorded"
            );
        }
        let mut writer = writer;
        writer.end_log(None, heapprof_format::EndReason::GaveUp);
        return None;
    };
    AWAITED.store(false, Ordering::Release);
    if let Err(mut writer) = writer::start(writer, session) {
        hook::set_phase(Phase::Off);
        session::abandon();
        say!("cannot start a thread; nothing is recorded, the program runs on");
        writer.finish(None, heapprof_format::EndReason::GaveUp);
        return None;
    }
    Some(session)
}

/// Whether a session should begin with the next question of any thread, sample or not.
#[inline]
pub(crate) fn is_awaited() -> bool {
    AWAITED.load(Ordering::Relaxed)
}

/// The writer, if no session has begun.
pub(crate) fn take_pending() -> Option<Box<Writer>> {
    let writer = PENDING.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or made by Box::into_raw in the constructor and taken only once.
    (!writer.is_null()).then(|| unsafe { Box::from_raw(writer) })
}

/// Ends the log if no session has begun: none will.
pub(crate) fn end_unbegun() {
    if let Some(mut writer) = take_pending() {
        own_stack::run(|| writer.finish(None, heapprof_format::EndReason::GaveUp));
    }
}

/// Lends the writer, if no session has begun or is being begun: none will be meanwhile, with a log of its own.
pub(crate) fn with_pending(work: impl FnOnce(&mut Writer)) {
    if BEGINNING.swap(true, Ordering::Acquire) {
        return;
    }
    if let Some(mut writer) = take_pending() {
        work(&mut writer);
        keep_pending(writer);
    }
    GIVEN_UP.store(false, Ordering::Relaxed);
    BEGINNING.store(false, Ordering::Release);
}

fn keep_pending(writer: Box<Writer>) {
    PENDING.store(Box::into_raw(writer), Ordering::Release);
}

/// In a forked child: its session is still to begin, with files of its own.
pub(crate) fn after_fork(parent: u32, forked_ns: u64) {
    // A parent without a log of its own passes on where it came from.
    if ORIGIN.has_log.swap(false, Ordering::AcqRel) {
        ORIGIN.parent.store(parent, Ordering::Release);
        ORIGIN.forked_ns.store(forked_ns, Ordering::Release);
    }
    GIVEN_UP.store(false, Ordering::Relaxed);
    AHEAD.store(false, Ordering::Relaxed);
    BEGINNING.store(false, Ordering::Release);
    // SAFETY: null or leaked by the constructor.
    if let Some(settings) = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() } {
        AWAITED.store(settings.listens_from_the_start(), Ordering::Release);
    }
    // The parent's log is the parent's, also if it has not begun. Leaked: dropping it would run code
    // on memory of the parent's state.
    PENDING.store(std::ptr::null_mut(), Ordering::Release);
}
