//! The beginning of a session: with the first sample of a process, or before it where somebody may ask, or may be kept from it later.
//!
//! At boot, of what a session takes, the log is made: it says where the process began, and the program may not be allowed to make
//! it later. It waits here with the writer, which has no thread yet ([`take_pending`]). A forked child has nothing of
//! that, and makes its log when its session begins.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use heapprof_format::EndReason;

use crate::allocator;
use crate::os::backoff::{self, Patience};
use crate::os::{clock, private_stack};
use crate::recording::session::{self, Session};
use crate::recording::{pending_frees, requests, sampled_blocks, seats};
use crate::state::settings::Settings;
use crate::state::thread::{Entered, Inside};
use crate::state::{interval, phase, process};
use crate::writer::log::output::{NoLog, Output};
use crate::writer::log::parent_log;
use crate::writer::{self, Writer};

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
/// again. It may want a lock of libc's whose owner allocates a thousand times before it gives it up (in old glibc, whoever is in dlopen).
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// When it is tried again to make a log that there was no descriptor for, by the monotonic clock.
static NOT_BEFORE_NS: AtomicU64 = AtomicU64::new(0);
/// Between two tries.
const PAUSE_NS: u64 = 10_000_000;
/// Whether it begins without a sample (`host/privilege_drop.rs`).
static AHEAD: AtomicBool = AtomicBool::new(false);
/// Whether the session is to begin as soon as it can, so that it may be asked (`recording/requests.rs`), and has not.
static AWAITED: AtomicBool = AtomicBool::new(false);

/// At boot, when all else is ready. `output`: `None` where the first sample makes it.
pub(crate) fn prepare(settings: Settings, output: Option<Output>) {
    AWAITED.store(settings.listens_from_the_start(), Ordering::Release);
    if let Some(output) = output {
        parent_log::remember(&output);
        keep_pending(Box::new(Writer::new(output, &settings)));
    }
    SETTINGS.store(Box::into_raw(Box::new(settings)), Ordering::Release);
}

/// Begins the process's session: its lanes, and the thread that empties them. `None`: another thread is at it and
/// takes long, or it cannot be done, in which case we have given up.
#[cold]
pub(crate) fn begin(entered: &Entered) -> Option<&'static Session> {
    let mut patience = Patience::of(backoff::SHORT_NS);
    loop {
        if let Some(session) = session::current() {
            return Some(session);
        }
        if !process::is_own() {
            // A vfork child in its parent's memory: a thread that it started would end with it.
            return None;
        }
        if !BEGINNING.swap(true, Ordering::Acquire) {
            // What pthread_create allocates is not the program's.
            entered.thread.inside.set(Inside::Ours);
            // All of it where no signal comes: a handler that waited for the end of it, and jumps out of it, must find it ended.
            let session = private_stack::run(|| {
                let session = match session::current() {
                    // Whoever was at it before us may have given up, and said so.
                    None if phase::is_recording() => make(),
                    session => session,
                };
                entered.thread.inside.set(Inside::Hook);
                GIVEN_UP.store(false, Ordering::Relaxed);
                BEGINNING.store(false, Ordering::Release);
                session
            });
            if let Some(session) = session
                && pending_frees::exist()
            {
                session.register_and_replay_frees(entered.thread);
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
pub(crate) fn begin_early(entered: &Entered) {
    AHEAD.store(true, Ordering::Relaxed);
    begin(entered);
    AHEAD.store(false, Ordering::Relaxed);
}

/// Makes the session, if it can be made now.
fn make() -> Option<&'static Session> {
    if NOT_BEFORE_NS.load(Ordering::Relaxed) > clock::now_ns() {
        return None;
    }
    // SAFETY: null or leaked by `prepare`.
    let settings = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() }?;
    let writer = match take_pending() {
        Some(writer) => writer,
        None => {
            let output = match Output::create(settings, parent_log::described()) {
                Ok(output) => output,
                Err(NoLog::Yet) => {
                    NOT_BEFORE_NS.store(clock::now_ns() + PAUSE_NS, Ordering::Relaxed);
                    return None;
                }
                Err(NoLog::Ever) => {
                    phase::end();
                    return None;
                }
            };
            parent_log::remember(&output);
            let mut writer = Box::new(Writer::new(output, settings));
            writer.is_ahead = AHEAD.load(Ordering::Relaxed) || AWAITED.load(Ordering::Acquire);
            writer
        }
    };
    let was_said = allocator::is_short();
    let has_seats = seats::make_session_seats();
    // What was there for all of them need not be there for each: then it was said meanwhile.
    let is_said = was_said || has_seats && allocator::is_short();
    let has_room = has_seats
        && !is_said
        && allocator::can_have(SESSION_BYTES)
        && allocator::can_map(SESSION_MAPPED_BYTES)
        && sampled_blocks::make_table();
    let session = has_room.then(|| {
        let page = requests::make_page(settings.control != Some(false));
        session::install(interval::in_force(), page)
    });
    let Some(session) = session.flatten() else {
        match is_said {
            true => phase::end(),
            false => allocator::give_up_for_want_of_memory(),
        }
        let mut writer = writer;
        writer.end_log(None, EndReason::GaveUp);
        return None;
    };
    AWAITED.store(false, Ordering::Release);
    if let Err(mut writer) = writer::start(writer, session) {
        session::abandon();
        phase::give_up(format_args!(
            "cannot start a thread; nothing is recorded, the program runs on"
        ));
        writer.finish(None, EndReason::GaveUp);
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
    // SAFETY: null, or made by Box::into_raw in `keep_pending` and taken only once.
    (!writer.is_null()).then(|| unsafe { Box::from_raw(writer) })
}

/// Ends the log if no session has begun: none will.
pub(crate) fn end_pending() {
    if let Some(mut writer) = take_pending() {
        private_stack::run(|| writer.finish(None, EndReason::GaveUp));
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
pub(crate) fn after_fork() {
    GIVEN_UP.store(false, Ordering::Relaxed);
    AHEAD.store(false, Ordering::Relaxed);
    BEGINNING.store(false, Ordering::Release);
    // SAFETY: null or leaked by `prepare`.
    if let Some(settings) = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() } {
        AWAITED.store(settings.listens_from_the_start(), Ordering::Release);
    }
    // The parent's log is the parent's, also if it has not begun. Leaked: dropping it would run code
    // on memory of the parent's state.
    PENDING.store(std::ptr::null_mut(), Ordering::Release);
}
