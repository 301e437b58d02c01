//! Session start: a session begins with the first sample, or before it if that is necessary.
//!
//! | begins before a sample | file |
//! | --- | --- |
//! | at boot, to listen to `heapprof ctl`, or for dumps by the clock or a signal | `boot.rs` |
//! | when a function of the C API needs the writer | `hooks/c_api.rs` |
//! | when many mappings wait | `hooks/mapping_changes.rs` |
//! | before the process gives up rights, or installs a seccomp filter | `host/privilege_drop.rs` |
//! | when `heapprof attach` starts the recording | `attach.rs` |
//!
//! Boot makes only the log, which tells where the process began, and which the program may later
//! not be allowed to make. The writer waits here without a thread ([`take_pending`]). A forked
//! child has nothing, and makes its log when its session begins.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use heapprof_format::EndReason;

use crate::allocator;
use crate::os::backoff::{self, Backoff};
use crate::os::{clock, private_stack};
use crate::recording::session::{self, Session};
use crate::recording::{pending_frees, pending_mappings, requests, sampled_blocks, seats};
use crate::state::settings::Settings;
use crate::state::thread::{Entered, RunningCode};
use crate::state::{interval, phase, process};
use crate::writer::log::file_names::NoLog;
use crate::writer::log::output::Output;
use crate::writer::log::parent_log;
use crate::writer::{self, Writer};

/// Address space that is left to an allocator of the program's. glibc's maps a mebibyte where the
/// heap cannot grow.
pub(crate) const NEXT_ALLOCATOR_BYTES: usize = 2 << 20;
/// Memory that a session takes from our arena: its channels, and the writer's first buffers.
const SESSION_BYTES: usize = 2 << 20;
/// Memory that a session maps: the writer's stack, a first lane, a first level of the tables.
const SESSION_MAPPED_BYTES: usize = 1 << 20;

/// The settings, read once and leaked.
static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(std::ptr::null_mut());
/// The writer before it has a thread: the log exists, and nothing has been sampled.
static PENDING: AtomicPtr<Writer> = AtomicPtr::new(std::ptr::null_mut());
/// True while one thread begins the session.
static IS_BEGINNING: AtomicBool = AtomicBool::new(false);
/// True if a thread timed out while another one begins the session. Until that one is done, no
/// thread waits for it again. It may need a lock of libc whose owner allocates many times before it
/// releases the lock (in old glibc, a thread in dlopen).
static HAS_TIMED_OUT: AtomicBool = AtomicBool::new(false);
/// When to try again to make a log for which there was no descriptor, by the monotonic clock.
static RETRY_AT_NS: AtomicU64 = AtomicU64::new(0);
/// The time between two tries.
const RETRY_NS: u64 = 10_000_000;
/// True while the session begins without a sample, before the process gives up rights.
static IS_EARLY: AtomicBool = AtomicBool::new(false);
/// True if the session is to begin as soon as possible, to listen to requests, and has not begun.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Before another recording in this process: forgets the settings and the state of the last one.
#[cfg(feature = "attach")]
pub(crate) fn renew() {
    after_fork();
    IS_AWAITED.store(false, Ordering::Release);
    let settings = SETTINGS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !settings.is_null() {
        // SAFETY: leaked by `prepare`; no other thread begins a session now.
        drop(unsafe { Box::from_raw(settings) });
    }
}

/// Stores the settings and the log, at boot, when everything else is ready. `output` is `None` if
/// the first sample makes the log.
pub(crate) fn prepare(settings: Settings, output: Option<Output>) {
    IS_AWAITED.store(settings.listens_from_the_start(), Ordering::Release);
    if let Some(output) = output {
        parent_log::note_log(&output);
        store_pending(Box::new(Writer::new(output, &settings)));
    }
    SETTINGS.store(Box::into_raw(Box::new(settings)), Ordering::Release);
}

/// Begins the process's session: its lanes, and the writer's thread. `None`: another thread takes
/// long to begin it, or it cannot be begun, and recording has ended.
#[cold]
pub(crate) fn begin(entered: &Entered) -> Option<&'static Session> {
    let mut patience = Backoff::with_limit(backoff::SHORT_NS);
    loop {
        if let Some(session) = session::current() {
            return Some(session);
        }
        if !process::is_own() {
            // A vfork child runs in its parent's memory: a thread that it starts would end with it.
            return None;
        }
        if !IS_BEGINNING.swap(true, Ordering::Acquire) {
            // The allocations of pthread_create are not the program's.
            entered.thread.running_code.set(RunningCode::Ours);
            // No signal may come in this part: a handler that waits for its end and jumps out must
            // find it ended.
            let session = private_stack::run(|| {
                let session = match session::current() {
                    // Another thread may have tried before, given up, and reported it.
                    None if phase::is_recording() => make(),
                    session => session,
                };
                entered.thread.running_code.set(RunningCode::Hook);
                HAS_TIMED_OUT.store(false, Ordering::Relaxed);
                IS_BEGINNING.store(false, Ordering::Release);
                session
            });
            if let Some(session) = session
                && pending_frees::exist()
            {
                session.register_and_replay_frees(entered.thread);
            }
            if let Some(session) = session
                && pending_mappings::exist()
            {
                session.replay_mappings(entered.thread);
            }
            return session;
        }
        if HAS_TIMED_OUT.load(Ordering::Relaxed) {
            return None;
        }
        if !patience.pause() {
            HAS_TIMED_OUT.store(true, Ordering::Relaxed);
            return None; // the sample counts as lost
        }
    }
}

/// Returns the session, in the thread that ends the process. If another thread begins the session
/// or has the writer, waits for that, until that time of the monotonic clock at most.
pub(crate) fn settled(deadline_ns: u64) -> Option<&'static Session> {
    let mut patience = Backoff::with_limit(deadline_ns.saturating_sub(clock::now_ns()));
    while IS_BEGINNING.load(Ordering::Acquire) {
        if !patience.pause() {
            break;
        }
    }
    session::current()
}

/// Begins the session without a sample. A forked process that never has a sample deletes its log.
pub(crate) fn begin_early(entered: &Entered) {
    IS_EARLY.store(true, Ordering::Relaxed);
    begin(entered);
    IS_EARLY.store(false, Ordering::Relaxed);
}

/// Makes the session, if it can be made now.
fn make() -> Option<&'static Session> {
    if RETRY_AT_NS.load(Ordering::Relaxed) > clock::now_ns() {
        return None;
    }
    // SAFETY: null or leaked by `prepare`.
    let settings = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() }?;
    let writer = match take_pending() {
        Some(writer) => writer,
        None => {
            let output = match Output::create(settings, parent_log::origin()) {
                Ok(output) => output,
                Err(NoLog::Transient) => {
                    RETRY_AT_NS.store(clock::now_ns() + RETRY_NS, Ordering::Relaxed);
                    return None;
                }
                Err(NoLog::Permanent) => {
                    phase::end();
                    return None;
                }
            };
            parent_log::note_log(&output);
            let mut writer = Box::new(Writer::new(output, settings));
            writer.is_provisional =
                IS_EARLY.load(Ordering::Relaxed) || IS_AWAITED.load(Ordering::Acquire);
            writer
        }
    };
    let was_reported = allocator::is_short();
    let has_seats = seats::make_session_seats();
    // There may be room for all seats together and not for each one. Then that has been reported.
    let is_reported = was_reported || has_seats && allocator::is_short();
    let next_allocator_bytes = match allocator::has_next() {
        true => NEXT_ALLOCATOR_BYTES,
        false => 0,
    };
    let has_room = has_seats
        && !is_reported
        && allocator::can_allocate(SESSION_BYTES)
        && allocator::can_map(SESSION_MAPPED_BYTES + next_allocator_bytes)
        && sampled_blocks::make_table();
    let session = has_room.then(|| {
        let page = requests::make_page(settings.control != Some(false));
        session::install(interval::in_force(), page)
    });
    let Some(session) = session.flatten() else {
        match is_reported {
            true => phase::end(),
            false => allocator::give_up_without_memory(),
        }
        let mut writer = writer;
        writer.end_log(None, EndReason::GaveUp);
        return None;
    };
    IS_AWAITED.store(false, Ordering::Release);
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

/// Returns true if the session is to begin in the next hook of any thread, sample or not.
#[inline]
pub(crate) fn is_awaited() -> bool {
    IS_AWAITED.load(Ordering::Relaxed)
}

/// Takes the writer, if no session has begun.
pub(crate) fn take_pending() -> Option<Box<Writer>> {
    let writer = PENDING.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or made by Box::into_raw in `store_pending` and taken only once.
    (!writer.is_null()).then(|| unsafe { Box::from_raw(writer) })
}

/// Ends the log if no session has begun. None will begin.
pub(crate) fn end_pending() {
    if let Some(mut writer) = take_pending() {
        private_stack::run(|| writer.finish(None, EndReason::GaveUp));
    }
}

/// Lends the writer, if no session has begun or is beginning. Meanwhile none can begin and make its
/// own log.
pub(crate) fn with_pending(work: impl FnOnce(&mut Writer)) {
    if IS_BEGINNING.swap(true, Ordering::Acquire) {
        return;
    }
    if let Some(mut writer) = take_pending() {
        work(&mut writer);
        store_pending(writer);
    }
    HAS_TIMED_OUT.store(false, Ordering::Relaxed);
    IS_BEGINNING.store(false, Ordering::Release);
}

fn store_pending(writer: Box<Writer>) {
    PENDING.store(Box::into_raw(writer), Ordering::Release);
}

/// Resets the state in a forked child, whose session is still to begin, with its own files.
pub(crate) fn after_fork() {
    HAS_TIMED_OUT.store(false, Ordering::Relaxed);
    IS_EARLY.store(false, Ordering::Relaxed);
    IS_BEGINNING.store(false, Ordering::Release);
    // SAFETY: null or leaked by `prepare`.
    if let Some(settings) = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() } {
        IS_AWAITED.store(settings.listens_from_the_start(), Ordering::Release);
    }
    // The parent's log is not the child's, even if the parent's session has not begun. Leaked:
    // dropping it would run code on the parent's state.
    PENDING.store(std::ptr::null_mut(), Ordering::Release);
}
