//! A stack of our own, for work that takes more of one than a thread of the program's may have left: to begin a session, to learn a
//! module.
//!
//! Danger: the stack pointer is moved to other memory, and back. So nothing may leave the work but by its return: a panic is caught on
//! that stack and goes on from this one, and signals are blocked. A handler of the program's may run on an alternate stack, and what runs on one
//! comes here too: with the stack pointer elsewhere the kernel would take that stack for free, and begin the next handler over frames in
//! use.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::arch::stack_switch::call_on;
use crate::os::sys;

/// Bytes of it, above a page that faults. To begin a session in a forked child takes some ten thousand.
const BYTES: usize = 64 << 10;

struct Job<W, R> {
    work: Option<W>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

/// Does the work on a stack of our own, with signals blocked; where there is no memory for one, on this one.
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    run_as(Job {
        work: Some(work),
        result: None,
    })
}

fn run_as<R, W: FnOnce() -> R>(mut job: Job<W, R>) -> R {
    let mask = sys::block_signals();
    let data = (&raw mut job).cast();
    if let Some(stack) = sys::map_stack(BYTES) {
        // SAFETY: `stack.top` is the end of memory that nobody else uses, aligned to pages. The job outlives the call and is not touched
        // meanwhile; its types are those that this `start` is for, which returns, and does not unwind.
        unsafe { call_on(stack.top, start::<R, W>, data) };
    } else {
        // SAFETY: as above.
        unsafe { start::<R, W>(data) };
    }
    sys::restore_signals(mask);
    match job.result {
        Some(Ok(result)) => result,
        Some(Err(panic)) => resume_unwind(panic),
        None => resume_unwind(Box::new("the work was not done")), // cannot be: `start` returned
    }
}

/// # Safety
/// `job` points to a `Job<W, R>` that nobody else uses.
unsafe extern "C" fn start<R, W: FnOnce() -> R>(job: *mut c_void) {
    // SAFETY: the caller's promise.
    let job = unsafe { &mut *job.cast::<Job<W, R>>() };
    if let Some(work) = job.work.take() {
        job.result = Some(catch_unwind(AssertUnwindSafe(work)));
    }
}
