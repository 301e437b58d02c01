//! C API: gperftools' functions by their names, and ours. `include/heapprof.h` documents each one.
//!
//! The program calls them on purpose, so unlike a hook they may wait for the writer, for a bounded
//! time. They are safe at any time and with any arguments. They do nothing before boot, after the
//! end, in a child of vfork, in a process that records nothing, and in a signal handler that
//! interrupted a hook.

use std::ffi::{CStr, c_char, c_int};

use crate::allocator;
use crate::hooks::sample;
use crate::os::cancellation::DeferredCancellation;
use crate::os::{clock, sys};
use crate::recording::events::{self, Note, NoteKind, SideEvent};
use crate::recording::requests::RequestKind;
use crate::recording::session::Session;
use crate::recording::{labels, regime};
use crate::state::thread::{self, Entered, RunningCode};
use crate::state::{counters, interval, phase, process};
use crate::unwind::walk::current_registers;

/// Runs `work` in this thread with the session, and begins the session if need be. `None`: the
/// process does not record, or the thread is inside our code.
fn with_session<R>(work: impl FnOnce(&Entered, &'static Session) -> R) -> Option<R> {
    if !phase::is_recording() || !process::is_own() {
        return None;
    }
    let _deferred = DeferredCancellation::begin(); // first made, last dropped
    let entered = thread::current().enter()?;
    let guarded = std::panic::AssertUnwindSafe(|| {
        let session = sample::ready_session(&entered, current_registers!())?;
        entered.thread.running_code.set(RunningCode::Ours);
        Some(work(&entered, session))
    });
    match std::panic::catch_unwind(guarded) {
        Ok(done) => done,
        Err(_) => {
            phase::give_up_after_panic("the API");
            None
        }
    }
}

/// Puts a note among the events of this thread. False: there was no room.
fn note(session: &Session, kind: NoteKind) -> bool {
    let at = clock::ticks();
    let sent = session.send(SideEvent::Note(Box::new(Note { at, kind })));
    if !sent {
        counters::LOST_QUEUE_FULL.add(1);
    }
    sent
}

fn note_regime(session: &Session) {
    note(session, NoteKind::Regime(interval::in_force()));
}

/// Returns the bytes of a C string; `None` for null.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: not null, so a C string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Starts recording, if it is stopped. Dumps then go to `prefix`, unless HEAPPROFILE names a
/// prefix. A null `prefix` changes nothing.
///
/// # Safety
/// `prefix` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn HeapProfilerStart(prefix: *const c_char) {
    // SAFETY: the caller's promise.
    let prefix = unsafe { bytes(prefix) }.filter(|prefix| !prefix.is_empty());
    with_session(|_, session| {
        if let Some(prefix) = prefix {
            let path = match (prefix.first(), sys::getcwd()) {
                (Some(b'/'), _) | (_, Err(_)) => prefix.to_vec(),
                (_, Ok(folder)) => [&folder[..], b"/", prefix].concat(),
            };
            let _ = session.request(RequestKind::SetDumpPrefix(path));
        }
        if interval::set_running(true) {
            note_regime(session);
        }
    });
    regime::redraw(thread::current());
}

/// Stops recording: there are no new samples. Frees of recorded blocks are still recorded.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn HeapProfilerStop() {
    with_session(|_, session| {
        if interval::set_running(false) {
            note_regime(session);
        }
    });
    regime::redraw(thread::current());
}

/// Writes a dump, and returns when it is written.
///
/// # Safety
/// `reason` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn HeapProfilerDump(reason: *const c_char) {
    // SAFETY: the caller's promise.
    let reason = events::name_of(unsafe { bytes(reason) }.unwrap_or(b"requested"));
    with_session(|_, session| session.request(RequestKind::Dump(reason)));
}

/// Returns 1 if samples are taken, else 0.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn IsHeapProfilerRunning() -> c_int {
    c_int::from(phase::is_recording() && interval::is_running())
}

/// Returns the text of a dump, which the caller frees. The text is empty if there is no dump. Null:
/// no memory.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn GetHeapProfile() -> *mut c_char {
    let text = with_session(|_, session| session.request(RequestKind::Profile));
    let text = text.and_then(Result::ok).unwrap_or_default();
    let copy = allocator::malloc(text.len() + 1).cast::<u8>();
    if !copy.is_null() {
        // SAFETY: `copy` is a new block of one byte more than the text.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len());
            *copy.add(text.len()) = 0;
        }
    }
    copy.cast()
}

/// Returns 1: the library is present.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn heapprof_is_present() -> c_int {
    1
}

/// Sets the mean interval, in bytes. Returns 0, or -1 if it is out of range or nothing can be
/// recorded.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn heapprof_set_interval(interval: usize) -> c_int {
    let set = with_session(|_, session| {
        let before = interval::in_force();
        let set = interval::set_interval(interval as u64);
        if interval::in_force() != before {
            note_regime(session);
        }
        set
    });
    regime::redraw(thread::current());
    if set == Some(true) { 0 } else { -1 }
}

/// Returns the mean interval in force, in bytes; 0 if nothing is recorded.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn heapprof_interval() -> usize {
    if phase::is_recording() {
        interval::in_force() as usize
    } else {
        0
    }
}

/// Records a marker with that name. Returns 0, or -1 if it could not be recorded.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn heapprof_mark(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Some(bytes) = (unsafe { bytes(name) }) else {
        return -1;
    };
    let name = NoteKind::Marker(events::name_of(bytes));
    match with_session(|_, session| note(session, name)) {
        Some(true) => 0,
        _ => -1,
    }
}

/// Excludes this thread until it is resumed as often as it was paused.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn heapprof_thread_pause() {
    let thread = thread::current();
    thread.pauses.set(thread.pauses.get().saturating_add(1));
    regime::redraw(thread);
}

/// Takes back one pause, if there is one.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn heapprof_thread_resume() {
    let thread = thread::current();
    thread.pauses.set(thread.pauses.get().saturating_sub(1));
    regime::redraw(thread);
}

/// Puts a label on what this thread does from now on.
///
/// # Safety
/// Each is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn heapprof_label_push(
    key: *const c_char,
    value: *const c_char,
) {
    if !phase::is_recording() {
        return;
    }
    // SAFETY: the caller's promise.
    let (key, value) = unsafe { (bytes(key), bytes(value)) };
    let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
    let thread = thread::current();
    let _deferred = DeferredCancellation::begin(); // first made, last dropped
    // In a signal handler that interrupted our code, nothing new can be made.
    let entered = thread.enter();
    let guarded = std::panic::AssertUnwindSafe(|| {
        labels::push(thread, key, value, entered.is_some());
    });
    if std::panic::catch_unwind(guarded).is_err() {
        phase::give_up_after_panic("the API");
    }
}

/// Takes the last label of this thread back.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn heapprof_label_pop() {
    if phase::is_recording() {
        labels::pop(thread::current());
    }
}
