//! musl's own code: where a frame's caller is, by what the code does from there on.
//!
//! Danger: code read as data. musl is built without unwind tables and without frame pointers, so a walk would end at `strdup` or `getline`, and
//! nowhere would it be seen that it has come to the root. What a function does to the stack until it returns says where its caller is
//! (`heapprof_core::find_epilogue`). It is asked once for each return address, and takes some memory of our arena then, as learning a module does; the rule is
//! kept as those are that come from tables.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use heapprof_core::Epilogue;

use crate::os::{libc_trampolines, private_stack};
use crate::unwind::modules;

/// Its first address, and the one behind its last; 0: not known.
static CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Those of its functions that never return. What is called behind them is another function's. The two that call them are the first of a
/// process's stack and of a thread's.
const NEVER_RETURN: [&std::ffi::CStr; 11] = [
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
/// Their addresses; 0: it has none of that name.
static NEVER: [AtomicUsize; NEVER_RETURN.len()] =
    [const { AtomicUsize::new(0) }; NEVER_RETURN.len()];

/// At boot: finds it.
pub(crate) fn prepare() {
    for (place, name) in NEVER.iter().zip(NEVER_RETURN) {
        place.store(
            libc_trampolines::in_libc(name).unwrap_or(0),
            Ordering::Relaxed,
        );
    }
    // SAFETY: a snapshot in force at boot is replaced by nobody yet.
    let snapshot = unsafe { modules::current().as_ref() };
    let exit = NEVER[0].load(Ordering::Relaxed) as u64;
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

/// Whether that is an address in it.
#[inline]
pub(crate) fn holds(address: u64) -> bool {
    range().contains(&(address as usize))
}

/// Where its code leads from that address on, which it [`holds`] and which lies behind a call if `returns`. `module`: the number plus one of what it
/// lies in.
#[cold]
#[inline(never)]
pub(crate) fn way_out(address: u64, returns: bool, module: u32) -> Epilogue {
    let Range { start, end } = range();
    // SAFETY: libc's code, one segment, which is mapped for as long as the process lives, and which nobody writes to.
    let code = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
    let never_returns = |called: usize| {
        NEVER
            .iter()
            .any(|it| it.load(Ordering::Relaxed) == start + called)
    };
    // It takes more of a stack than a thread may have left.
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
