//! The set*id functions: the program changes its ids, and our thread with it.
//!
//! To the kernel ids are a thread's own. libc has every thread of the process change them, ours as well, and ends the
//! process if one is refused what another is granted. So where the calling thread's rights are no longer what ours are, as
//! it kept capabilities (`PR_SET_KEEPCAPS`, `capset`: each for one thread) or changed its ids past libc, the writer first
//! takes on the same:
//!
//! ```text
//!          calling thread                          writer
//!  Free ──> Claimed ── its rights ──> Asked ──> Taking ── the same ──> Free
//!                                      └── it did not come in time: Free, and the call goes on as without us
//! ```
//!
//! Then both are refused or granted the same. Our thread is not ended instead: POSIX allows these functions in signal
//! handlers, where no thread can be started again. Nothing here takes a lock or memory. libc's functions do not call
//! each other through the names that a library can replace, so each is exported.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::host::{fork, privilege_drop};
use crate::os::cancellation::Deferred;
use crate::os::credentials::{self, Capabilities, Rights};
use crate::os::next_symbol::Next;
use crate::os::{clock, errno, sys};
use crate::recording::session::{self, Session};
use crate::state::thread::{self, Inside};
use crate::writer;

macro_rules! exported {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) = $place:ident, $c_name:literal;)*) => {
        $(
            /// libc's own.
            static $place: Next = Next::new($c_name);

            $(#[$doc])*
            ///
            /// # Safety
            /// As in the manual.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
                let Some(real) = $place.address() else {
                    return errno::no_function();
                };
                // SAFETY: libc's function of that name, which has this type.
                let real: unsafe extern "C-unwind" fn($($kind),*) -> c_int = unsafe { std::mem::transmute(real) };
                privilege_drop::begin();
                let before = ready();
                // SAFETY: the caller's promise.
                let answer = unsafe { real($($argument),*) };
                if answer == 0 {
                    changed(before);
                }
                answer
            }
        )*

        /// At boot: finds libc's functions.
        pub(crate) fn prepare() {
            FILTERED.store(credentials::is_filtered(), Ordering::Relaxed);
            for place in [$(&$place),*] {
                let _ = place.address();
            }
        }
    };
}

exported! {
    /// As setuid(2).
    setuid(id: u32) = SETUID, c"setuid";
    /// As setgid(2).
    setgid(id: u32) = SETGID, c"setgid";
    /// As seteuid(2).
    seteuid(id: u32) = SETEUID, c"seteuid";
    /// As setegid(2).
    setegid(id: u32) = SETEGID, c"setegid";
    /// As setreuid(2).
    setreuid(real: u32, effective: u32) = SETREUID, c"setreuid";
    /// As setregid(2).
    setregid(real: u32, effective: u32) = SETREGID, c"setregid";
    /// As setresuid(2).
    setresuid(real: u32, effective: u32, saved: u32) = SETRESUID, c"setresuid";
    /// As setresgid(2).
    setresgid(real: u32, effective: u32, saved: u32) = SETRESGID, c"setresgid";
    /// As setgroups(2).
    setgroups(count: usize, groups: *const u32) = SETGROUPS, c"setgroups";
    /// As initgroups(3).
    initgroups(user: *const c_char, group: u32) = INITGROUPS, c"initgroups";
}

/// Whether the program was under a system call filter when it began.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// Whether the program is under one since: it might be ended for a call that it does not expect.
pub(crate) fn has_fenced_itself_in() -> bool {
    credentials::is_filtered() && !FILTERED.load(Ordering::Relaxed)
}

/// What is known of the writer's rights before a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// There is no writer, or what it may do cannot be known.
    Unknown,
    /// They are this thread's.
    Same,
}

/// Has the writer's rights be this thread's. errno is left alone.
fn ready() -> Before {
    let tid = writer::tid();
    let Some(session) = session::current().filter(|_| tid != 0 && tid != sys::gettid()) else {
        return Before::Unknown;
    };
    if !fork::is_own_process() {
        return Before::Unknown; // a child of vfork: libc finds no thread there but itself
    }
    if has_fenced_itself_in() {
        return Before::Unknown;
    }
    let Ok(mine) = Rights::mine() else {
        return Before::Unknown;
    };
    let are_same = || is_known(mine) && Capabilities::of(tid) == Ok(mine.capabilities);
    if !are_same() {
        let _deferred = Deferred::begin();
        ask(session, mine);
    }
    if are_same() {
        Before::Same
    } else {
        Before::Unknown
    }
}

/// After a call that succeeded: what was the same still is, or libc would have ended the process.
fn changed(before: Before) {
    if before == Before::Same
        && let Ok(mine) = Rights::mine()
    {
        know(mine);
    }
}

/// The writer's ids and bits, as [`Rights::to_words`] has them. Its capabilities can be asked for.
static KNOWN: [AtomicU64; 4] = [const { AtomicU64::new(u64::MAX) }; 4];

fn know(rights: Rights) {
    for (place, word) in KNOWN.iter().zip(rights.to_words()) {
        place.store(word, Ordering::SeqCst);
    }
}

fn is_known(rights: Rights) -> bool {
    let mut words = KNOWN.iter().zip(rights.to_words());
    words.all(|(place, word)| place.load(Ordering::SeqCst) == word)
}

/// For the writer, when it begins and when its rights have changed.
pub(crate) fn remember() {
    if let Ok(mine) = Rights::mine() {
        know(mine);
    }
}

/// How long a thread waits for the writer, which may be in the middle of a large dump, or wait for a disk. Without it, the
/// process might be ended.
const PATIENCE_NS: u64 = 10_000_000_000;
/// In a signal handler that interrupted a hook: what that was in the middle of, the writer may be waiting for.
const PATIENCE_INSIDE_NS: u64 = 100_000_000;
/// Between two looks whether the writer has ended.
const LOOK_NS: u64 = 100_000_000;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const ASKED: u32 = 2;
const TAKING: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(FREE);
/// The rights that are to be taken, from `Asked` to the end of `Taking`.
static WANTED: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];

/// Moves the state, and wakes whoever waits for that.
fn turn(from: u32, to: u32) -> Result<(), u32> {
    let moved = STATE.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    if moved.is_ok() {
        sys::futex_wake(&STATE);
    }
    moved.map(drop)
}

/// Has the writer take on this thread's rights, which are these, and waits for that.
fn ask(session: &Session, mine: Rights) {
    let patience = match thread::current().inside.get() {
        Inside::No => PATIENCE_NS,
        _ => PATIENCE_INSIDE_NS,
    };
    let deadline = clock::now_ns() + patience;
    let wait = |state| {
        let now = clock::now_ns();
        let ended = session.finish.load(Ordering::SeqCst) | session.finished.load(Ordering::SeqCst);
        let over = now >= deadline || ended != 0;
        if !over {
            sys::futex_wait(&STATE, state, Some((deadline - now).min(LOOK_NS)));
        }
        !over
    };
    while let Err(now) = turn(FREE, CLAIMED) {
        if !wait(now) {
            return;
        }
    }
    for (place, word) in WANTED.iter().zip(mine.to_words()) {
        place.store(word, Ordering::Relaxed);
    }
    STATE.store(ASKED, Ordering::SeqCst);
    session.wake();
    loop {
        let now = STATE.load(Ordering::SeqCst);
        // Free; or claimed by another thread since.
        if now < ASKED {
            return;
        }
        if !wait(now) {
            let _ = turn(ASKED, FREE);
            return;
        }
    }
}

/// For the writer: whether a thread waits for it.
pub(crate) fn is_asked() -> bool {
    STATE.load(Ordering::SeqCst) == ASKED
}

/// For the writer: takes on what is wanted.
pub(crate) fn serve() {
    if turn(ASKED, TAKING).is_err() {
        return; // withdrawn
    }
    let words = std::array::from_fn(|n| WANTED[n].load(Ordering::Relaxed));
    // If the kernel refuses, the program's call goes on as without us.
    let _ = Rights::from_words(words).take();
    remember();
    let _ = turn(TAKING, FREE);
}

/// In a forked child.
pub(crate) fn after_fork() {
    STATE.store(FREE, Ordering::SeqCst);
}
