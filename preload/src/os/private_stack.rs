//! The private stack: memory for work that needs more stack than a thread of the program may have
//! left. Such work is the start of a session, or learning a module.
//!
//! Danger: the stack pointer moves to other memory and back. So the work may leave only by its
//! return. A panic is caught on the private stack and resumed from the thread's stack.
//!
//! Signals are blocked. A handler of the program may run on an alternate stack, and hooks called
//! from there come here, too. While the stack pointer is elsewhere, the kernel would take the
//! alternate stack for free, and start the next handler over frames in use.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::arch::stack_switch::call_on;
use crate::os::sys;

/// Size in bytes, above a guard page. The start of a session in a forked child needs a sixth of it.
const BYTES: usize = 64 << 10;
/// Size in bytes for work that decodes functions, which has tables of kilobytes on the stack.
#[cfg(feature = "attach")]
const DEEP_BYTES: usize = 512 << 10;

struct Job<W, R> {
    work: Option<W>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

/// Runs `work` on a private stack, with signals blocked. If there is no memory for one, runs it on
/// the thread's stack.
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    let job = Job {
        work: Some(work),
        result: None,
    };
    run_as(BYTES, job)
}

/// As [`run`], with room for work that decodes functions.
#[cfg(feature = "attach")]
pub(crate) fn run_deep<R>(work: impl FnOnce() -> R) -> R {
    let job = Job {
        work: Some(work),
        result: None,
    };
    run_as(DEEP_BYTES, job)
}

fn run_as<R, W: FnOnce() -> R>(bytes: usize, mut job: Job<W, R>) -> R {
    let mask = sys::block_signals();
    let data = (&raw mut job).cast();
    if let Some(stack) = sys::map_stack(bytes) {
        // SAFETY: `stack.top` is the end of memory that no other code uses, aligned to pages. The
        // job outlives the call and is not accessed meanwhile. Its types are those of this `start`,
        // which returns and does not unwind.
        unsafe { call_on(stack.top, start::<R, W>, data) };
    } else {
        // SAFETY: the same argument for the job and `start`.
        unsafe { start::<R, W>(data) };
    }
    sys::restore_signals(mask);
    match job.result {
        Some(Ok(result)) => result,
        Some(Err(panic)) => resume_unwind(panic),
        None => resume_unwind(Box::new("the work was not done")), // unreachable: `start` returned
    }
}

/// # Safety
/// `job` points to a `Job<W, R>` that no other code uses.
unsafe extern "C" fn start<R, W: FnOnce() -> R>(job: *mut c_void) {
    // SAFETY: the caller's promise.
    let job = unsafe { &mut *job.cast::<Job<W, R>>() };
    if let Some(work) = job.work.take() {
        job.result = Some(catch_unwind(AssertUnwindSafe(work)));
    }
}
