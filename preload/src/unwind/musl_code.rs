//! musl's own code: a frame's caller, derived from the instructions after the frame's address.
//!
//! Danger: code read as data. musl is built without unwind tables and frame pointers. So a walk
//! would end at `strdup` or `getline`, and could not recognize the root. A function's effect on the
//! stack up to its return tells the place of its caller (core's `find_epilogue`). This is computed
//! once for each return address, and then allocates from our arena, like learning a module. The
//! rule is cached like the rules from tables.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use heapprof_core::Epilogue;

use crate::os::{libc_trampolines, private_stack};
use crate::unwind::modules;

/// The first address of the code, and its end; 0: unknown.
static CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// musl's functions that never return. The code behind a call of such a function belongs to another
/// function. The two functions of musl that call one of these are the roots of a process's stack
/// and of a thread's.
const NON_RETURNING_NAMES: [&std::ffi::CStr; 11] = [
    c"exit",
    c"pthread_exit",
    c"abort",
    c"_Exit",
    c"quick_exit",
    c"thrd_exit",
    c"longjmp",
    c"siglongjmp",
    c"__stack_chk_fail",
    c"__assert_fail",
    c"__libc_start_main",
];
/// The addresses of these functions; 0: musl has none of that name.
static NON_RETURNING: [AtomicUsize; NON_RETURNING_NAMES.len()] =
    [const { AtomicUsize::new(0) }; NON_RETURNING_NAMES.len()];

/// At boot: finds the code and the functions.
pub(crate) fn prepare() {
    for (place, name) in NON_RETURNING.iter().zip(NON_RETURNING_NAMES) {
        place.store(
            libc_trampolines::in_libc(name).unwrap_or(0),
            Ordering::Relaxed,
        );
    }
    // SAFETY: no thread replaces a snapshot at boot.
    let snapshot = unsafe { modules::current().as_ref() };
    let exit = NON_RETURNING[0].load(Ordering::Relaxed) as u64;
    if let Some(libc) = snapshot
        .and_then(|snapshot| snapshot.find(exit))
        .filter(|libc| libc.code.contains(&exit))
    {
        CODE[0].store(libc.code.start as usize, Ordering::Relaxed);
        CODE[1].store(libc.code.end as usize, Ordering::Relaxed);
    }
}

fn range() -> Range<usize> {
    let [start, end] = CODE.each_ref().map(|it| it.load(Ordering::Relaxed));
    start..end
}

/// Returns true if the address is in musl's code.
#[inline]
pub(crate) fn contains(address: u64) -> bool {
    range().contains(&(address as usize))
}

/// Returns the way from an address in musl's code to its caller. The address lies behind a call if
/// `returns` is set. `module` is the number of its module plus one.
#[cold]
#[inline(never)]
pub(crate) fn find_epilogue(address: u64, returns: bool, module: u32) -> Epilogue {
    let Range { start, end } = range();
    // SAFETY: libc's code, one segment, which is mapped for the life of the process and never
    // written.
    let code = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
    let never_returns = |called: usize| {
        NON_RETURNING
            .iter()
            .any(|it| it.load(Ordering::Relaxed) == start + called)
    };
    // The search needs more stack than a thread may have left.
    private_stack::run(|| {
        heapprof_core::find_epilogue(
            code,
            address as usize - start,
            returns,
            module,
            never_returns,
        )
    })
}
