//! The set*id functions: the program changes its ids, and our thread with it.
//!
//! To the kernel ids are a thread's own. libc has every thread of the process change them, ours as well, and ends the
//! process if one is refused what another is granted. So where the calling thread's rights are no longer what ours are, as
//! it kept capabilities (`PR_SET_KEEPCAPS`, `capset`: each for one thread) or changed its ids past libc, the writer first
//! takes on the same (`writer/adopt_credentials.rs`).
//!
//! Then both are refused or granted the same. Our thread is not ended instead: POSIX allows these functions in signal
//! handlers, where no thread can be started again. Nothing here takes a lock or memory. libc's functions do not call
//! each other through the names that a library can replace, so each is exported.

use crate::host::privilege_drop;
use crate::os::cancellation::Deferred;
use crate::os::credentials::{Capabilities, Rights};
use crate::os::next_symbol::Next;
use crate::os::{errno, seccomp, sys};
use crate::recording::session;
use crate::state::process;
use crate::writer::{self, adopt_credentials};
use std::ffi::{c_char, c_int};

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
    if !process::is_own() {
        return Before::Unknown; // a child of vfork: libc finds no thread there but itself
    }
    if seccomp::has_filtered_itself() {
        return Before::Unknown;
    }
    let Ok(mine) = Rights::mine() else {
        return Before::Unknown;
    };
    let are_same =
        || adopt_credentials::is_known(mine) && Capabilities::of(tid) == Ok(mine.capabilities);
    if !are_same() {
        let _deferred = Deferred::begin();
        adopt_credentials::ask(session, mine);
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
        adopt_credentials::know(mine);
    }
}
