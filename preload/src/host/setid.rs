//! set*id: the functions by which a program changes its ids, and our thread's ids with them.
//!
//! For the kernel, ids belong to a thread. libc makes every thread of the process change them, ours
//! included. It ends the process if one thread is refused what another is granted. The calling
//! thread's rights may differ from ours: it kept capabilities (`PR_SET_KEEPCAPS`, `capset`; each
//! for one thread), or it changed its ids past libc. Then the writer first takes on the same
//! rights.
//!
//! So both threads are granted or refused the same change. Ending our thread instead is no
//! solution: POSIX allows these functions in signal handlers, where no thread can be started again.
//! Nothing here takes a lock or memory. libc's functions do not call each other through names that
//! a library can replace, so each is exported.

use crate::host::privilege_drop;
use crate::os::cancellation::DeferredCancellation;
use crate::os::credentials::{Capabilities, Rights};
use crate::os::next_symbol::NextSymbol;
use crate::os::{errno, seccomp, sys};
use crate::recording::session;
use crate::state::process;
use crate::writer::{self, adopt_credentials};
use std::ffi::{c_char, c_int};

macro_rules! export {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) = $next:ident, $c_name:literal;)*) => {
        $(
            /// The next definition.
            static $next: NextSymbol = NextSymbol::new($c_name);

            $(#[$doc])*
            ///
            /// # Safety
            /// As in the manual.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
                let Some(real) = $next.address() else {
                    return errno::no_function();
                };
                // SAFETY: libc's function of that name, which has this type.
                let real: unsafe extern "C-unwind" fn($($kind),*) -> c_int = unsafe { std::mem::transmute(real) };
                privilege_drop::begin_session();
                let before = align_writer_rights();
                // SAFETY: the caller's promise.
                let answer = unsafe { real($($argument),*) };
                if answer == 0 {
                    note_new_rights(before);
                }
                answer
            }
        )*

        /// Finds the next definitions, at boot.
        pub(crate) fn prepare() {
            for next in [$(&$next),*] {
                let _ = next.address();
            }
        }
    };
}

export! {
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

/// The writer's rights before a call, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterRights {
    /// There is no writer, or its rights cannot be determined.
    Unknown,
    /// They are the same as this thread's.
    Same,
}

/// Makes the writer's rights the same as this thread's. errno is preserved.
fn align_writer_rights() -> WriterRights {
    let tid = writer::tid();
    let Some(session) = session::current().filter(|_| tid != 0 && tid != sys::gettid()) else {
        return WriterRights::Unknown;
    };
    if !process::is_own() {
        return WriterRights::Unknown; // a child of vfork: libc finds no other thread there
    }
    if seccomp::has_installed_filter() {
        return WriterRights::Unknown;
    }
    let Ok(mine) = Rights::of_this_thread() else {
        return WriterRights::Unknown;
    };
    let are_same =
        || adopt_credentials::is_known(mine) && Capabilities::of(tid) == Ok(mine.capabilities);
    if !are_same() {
        let _deferred = DeferredCancellation::begin();
        adopt_credentials::request(session, mine);
    }
    if are_same() {
        WriterRights::Same
    } else {
        WriterRights::Unknown
    }
}

/// Notes the writer's rights after a call that succeeded. If they were the same before, they are
/// the same now, or libc would have ended the process.
fn note_new_rights(before: WriterRights) {
    if before == WriterRights::Same
        && let Ok(mine) = Rights::of_this_thread()
    {
        adopt_credentials::set_known(mine);
    }
}
