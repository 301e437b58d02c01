//! The end of the process: the last records, the last dump, and not a moment longer.
//!
//! Ways out: `exit` and return from main run our destructor; `quick_exit` its own list; `_exit` and `_Exit` are
//! exported here, because nothing else runs then. A signal's default action runs nothing: the log is whole up
//! to its last flush.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use heapprof_format::EndReason;

use crate::hooks::sample::{self, Phase};
use crate::host::fork;
use crate::os::{clock, diagnostics, private_stack, sys};
use crate::recording::session;
use crate::state::thread::{self, Inside};
use crate::writer::session_start;

/// `HEAPPROF_EXIT_WAIT_MS`: the program's end is delayed by at most that much. Moved at boot only.
static PATIENCE_NS: AtomicU64 = AtomicU64::new(0);

/// When all of that is over, by the monotonic clock; 0: the end has not begun.
static DEADLINE_NS: AtomicU64 = AtomicU64::new(0);

/// Whether the end has begun: it is one thread's.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// When the thread that ends the process went on from waiting, by the monotonic clock; 0: it has not.
static GONE_ON_NS: AtomicU64 = AtomicU64::new(0);

/// In which a process ends as a rule, once it goes on: destructors of libraries, the last of stdio.
const MOMENT_NS: u64 = 10_000_000;

/// Of the patience, so much is kept for what comes after the waiting: this thread has to be woken, and the kernel to free our
/// memory, 12 MB in a millisecond. Half as much again is kept for what the writer does after it has given up a last dump:
/// it deletes what there is of it. Of a short patience no more than a fifth is kept.
const RESERVE_NS: u64 = 20_000_000;

fn reserve_ns() -> u64 {
    RESERVE_NS.min(patience_ns() / 5)
}

#[unsafe(link_section = ".fini_array")]
#[used]
static DESTRUCTOR: extern "C" fn() = finish_last;

/// At boot.
pub(crate) fn register(patience_ns: u64) {
    PATIENCE_NS.store(patience_ns, Ordering::Relaxed);
    unsafe extern "C" {
        fn at_quick_exit(function: extern "C" fn()) -> c_int;
    }
    // SAFETY: a function that lives as long as the process.
    unsafe { at_quick_exit(finish_last) };
}

/// For the writer, which finishes: from here on the time counts, if it does not already.
pub(crate) fn begin_unless_begun() {
    if DEADLINE_NS.load(Ordering::Acquire) == 0 {
        begin();
    }
}

/// Returns when the patience will end.
fn begin() -> u64 {
    let deadline = clock::now_ns() + patience_ns();
    DEADLINE_NS.store(deadline, Ordering::Release);
    deadline
}

/// For the writer: whether the program ends, and what takes so long does not fit in any more.
pub(crate) fn forbids(takes_ns: u64) -> bool {
    let deadline = DEADLINE_NS.load(Ordering::Acquire);
    deadline != 0 && clock::now_ns() + takes_ns + reserve_ns() * 3 / 2 >= deadline
}

/// By how much the end may be delayed.
pub(crate) fn patience_ns() -> u64 {
    PATIENCE_NS.load(Ordering::Relaxed)
}

/// Ends the recording. Whoever comes second returns at once.
fn finish() {
    if !sample::is_recording() || !fork::is_own_process() {
        return;
    }
    let thread = thread::current();
    // Before anybody can see that it has begun: a signal handler of this thread would wait for itself.
    let was_inside = thread.inside.replace(Inside::Ours);
    if HAS_BEGUN.swap(true, Ordering::SeqCst) {
        thread.inside.set(was_inside);
        return;
    }
    if let Some(session) = session::current() {
        let deadline = begin() - reserve_ns(); // before the writer can see that it is to finish
        session.finish.store(1, Ordering::SeqCst);
        session.wake();
        // Threads that go on allocating wait with us: the writer would otherwise share the processors with all of them, and
        // have ever more to take from their lanes.
        sample::set_phase(Phase::Ending);
        session.wait_until_finished(deadline);
        diagnostics::what_is_unsaid();
        sample::set_phase(Phase::Off);
    } else {
        sample::set_phase(Phase::Off);
        if let Some(mut writer) = session_start::take_pending() {
            private_stack::run(|| writer.finish(None, EndReason::Exit));
        }
    }
    GONE_ON_NS.store(clock::now_ns(), Ordering::Relaxed);
    thread.inside.set(was_inside);
}

/// The same for a thread that ends the process after this: if another thread is at it, that one goes first.
pub(crate) extern "C" fn finish_last() {
    finish();
    let is_under_way = HAS_BEGUN.load(Ordering::SeqCst) && GONE_ON_NS.load(Ordering::Relaxed) == 0;
    // This thread's own end, if a signal handler came into the midst of it, would wait for itself.
    if is_under_way && thread::current().inside.get() != Inside::Ours {
        wait();
    }
}

/// For a thread that would sample: if another ends the process, sleeps until that one has gone on from here, and a moment longer: as
/// a rule the process has no more to do. It is not woken: with it all the others would be, and the one that ends the process
/// would share the processors with them once more. Whatever happens, the time that the end may take is the limit.
#[cold]
pub(crate) fn wait() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    // For while whoever has begun is just about to say how long that may take.
    let latest = clock::now_ns() + patience_ns();
    while HAS_BEGUN.load(Ordering::Relaxed) && fork::is_own_process() {
        let now = clock::now_ns();
        let deadline = match DEADLINE_NS.load(Ordering::Acquire) {
            0 => latest,
            deadline => deadline,
        };
        let gone = GONE_ON_NS.load(Ordering::Relaxed);
        if now >= deadline || gone != 0 && now >= gone + MOMENT_NS {
            break;
        }
        sys::futex_wait(&NEVER, 0, Some(MOMENT_NS.min(deadline - now)));
    }
}

/// In a forked child: it has an end of its own.
pub(crate) fn after_fork() {
    HAS_BEGUN.store(false, Ordering::Relaxed);
    DEADLINE_NS.store(0, Ordering::Relaxed);
    GONE_ON_NS.store(0, Ordering::Relaxed);
}

/// Ends the process without running anything but this.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(status: c_int) -> ! {
    finish_last();
    sys::exit_group(status)
}

/// C99's name of [`_exit`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Exit(status: c_int) -> ! {
    finish_last();
    sys::exit_group(status)
}
