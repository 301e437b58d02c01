//! Requests: what the writer is asked to do, by `heapprof ctl` and by the program.
//!
//! ```text
//!  heapprof ctl ── control page (shared memory) ──┐
//!                                                 ├─> writer: drains, executes, answers
//!  the C API ───── requests (a queue) ────────────┘
//! ```
//!
//! The page is a segment of System V shared memory. It needs no descriptor, no signal and no
//! clean-up, and it has no file that could be truncated under us (Law 9). Its mode lets the same
//! user and root attach it; they find its id in `/proc/PID/maps`. The word that the writer sleeps
//! on lies in the page, so one wake reaches the writer from both sides. A process without requests
//! is never woken.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use heapprof_format::{CONTROL_PAGE_LEN, ControlPage};

use crate::os::{clock, sys};

/// The page of this process, if it is shared.
static SHARED: AtomicPtr<ControlPage> = AtomicPtr::new(std::ptr::null_mut());

/// How long the program waits for an answer. A dump of millions of lines takes a large part of it.
const ANSWER_TIMEOUT_NS: u64 = 10_000_000_000;
/// The time between two checks that the writer still runs.
const POLL_NS: u64 = 100_000_000;

/// Makes the page of a new session. If `reachable`, other processes can attach it, unless the
/// kernel refuses the segment.
pub(crate) fn make_page(reachable: bool) -> &'static ControlPage {
    if reachable && let Ok(memory) = sys::map_attachable(CONTROL_PAGE_LEN) {
        let page = memory.cast::<ControlPage>();
        SHARED.store(page, Ordering::Release);
        // SAFETY: zeroed, page-aligned, of the page's size, and of atomics only, so that another
        // process may write there at any time; never unmapped (`after_fork` puts other memory in
        // its place).
        let page = unsafe { &*page };
        page.open(sys::getpid());
        return page;
    }
    Box::leak(Box::default())
}

/// Replaces the parent's page in a forked child. A hook that the fork interrupted may still read
/// the address, so the new memory takes the same place.
pub(crate) fn after_fork() {
    let page = SHARED.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !page.is_null() {
        // SAFETY: made by `make_page`, of that length; all zero is a page that is not open.
        unsafe { sys::unshare(page.cast(), CONTROL_PAGE_LEN) };
    }
}

/// Before another recording in this process: gives back the page of the last one. The writer has
/// ended, and no hook runs.
#[cfg(feature = "attach")]
pub(crate) fn renew() {
    let page = SHARED.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !page.is_null() {
        // SAFETY: made by `make_page`; the caller's promise.
        unsafe { sys::unmap_attachable(page.cast()) };
    }
}

/// Like [`renew`], if a hook may still have the page: other processes do not find it any more.
#[cfg(feature = "attach")]
pub(crate) fn leave() {
    after_fork();
}

/// The kinds of request that the program makes.
pub(crate) enum RequestKind {
    /// A dump, with its reason.
    Dump(String),
    /// The text of a dump.
    Profile,
    /// Writes dumps to that prefix from now on, on all occasions, unless `HEAPPROFILE` names a
    /// prefix.
    SetDumpPrefix(Vec<u8>),
}

/// A request, and the place of its answer. They are shared, because the asking thread may time out.
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    reply: Arc<Reply>,
}

#[derive(Default)]
struct Reply {
    /// 1 when the answer is there.
    done: AtomicU32,
    text: OnceLock<Result<String, String>>,
}

impl Request {
    /// Makes a request, and the handle that waits for its answer.
    pub(crate) fn new(kind: RequestKind) -> (Request, Answer) {
        let reply = Arc::<Reply>::default();
        let answer = Answer(Arc::clone(&reply));
        (Request { kind, reply }, answer)
    }

    /// Answers the request. Called by the writer.
    pub(crate) fn answer(self, answer: Result<String, String>) {
        let _ = self.reply.text.set(answer);
        self.reply.done.store(1, Ordering::Release);
        sys::futex_wake(&self.reply.done);
    }
}

/// The handle that waits for the answer to a request.
pub(crate) struct Answer(Arc<Reply>);

impl Answer {
    /// Waits for the answer, until the timeout or until `is_awaited`, called periodically, returns
    /// false.
    ///
    /// # Errors
    /// The text of the refusal, or that there was no answer.
    pub(crate) fn wait(&self, is_awaited: impl Fn() -> bool) -> Result<String, String> {
        let deadline = clock::now_ns() + ANSWER_TIMEOUT_NS;
        let is_over = || !is_awaited();
        let is_done = sys::wait_for_change_or(&self.0.done, 0, deadline, POLL_NS, is_over);
        match self.0.text.get().filter(|_| is_done) {
            Some(answer) => answer.clone(),
            None => Err("no answer".into()),
        }
    }
}
