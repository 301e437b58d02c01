//! The desk: how the writer is asked for something, from outside (`heapprof ctl`) and by the program itself.
//!
//! ```text
//!  heapprof ctl ── control page (shared memory) ──┐
//!                                                 ├─> writer: drains, does it, answers
//!  the C API ───── requests (a queue) ────────────┘
//! ```
//!
//! The page is a segment of System V shared memory: no descriptor, no file that could be cut short under us, no
//! signal, nothing to clean up (Law 9). Whoever may attach it, by its mode the same user or root, finds its id in
//! `/proc/PID/maps`. The word that the writer sleeps on lies there, so that one wake reaches it from
//! either side, and a process that nobody asks is never woken.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use heapprof_format::{CONTROL_PAGE_LEN, ControlPage};

use crate::os::{clock, sys};

/// The page of this process, when it is shared.
static SHARED: AtomicPtr<ControlPage> = AtomicPtr::new(std::ptr::null_mut());

/// How long the program waits for what it asked: a dump of millions of lines takes about a second.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Between two looks whether the answer is still to be awaited.
const LOOK_NS: u64 = 100_000_000;

/// The page of a session that begins: one that can be reached from outside if that is wanted and to be had.
pub(crate) fn make_page(reachable: bool) -> &'static ControlPage {
    if reachable && let Ok(memory) = sys::map_attachable(CONTROL_PAGE_LEN) {
        let page = memory.cast::<ControlPage>();
        SHARED.store(page, Ordering::Release);
        // SAFETY: zeroed, page-aligned, of the page's size, atomics only, so that another process may write there
        // at any time; never unmapped (`after_fork` puts other memory in its place).
        let page = unsafe { &*page };
        page.open(sys::getpid());
        return page;
    }
    Box::leak(Box::default())
}

/// In a forked child: the page is the parent's. A hook that was interrupted by the fork may still look at
/// it, so there is something there.
pub(crate) fn after_fork() {
    let page = SHARED.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !page.is_null() {
        // SAFETY: made by `make_page`, of that length; all zero is a page that is not open.
        unsafe { sys::unshare(page.cast(), CONTROL_PAGE_LEN) };
    }
}

/// What the program asks for.
pub(crate) enum Ask {
    /// A dump with that reason.
    Dump(String),
    /// The text of a dump.
    Profile,
    /// Dumps go to that prefix from now on, on all occasions, unless `HEAPPROFILE` says where.
    DumpsTo(Vec<u8>),
}

/// Something asked for, and where the answer goes. Shared, as whoever asks may have lost patience.
pub(crate) struct Request {
    pub(crate) ask: Ask,
    reply: Arc<Reply>,
}

#[derive(Default)]
struct Reply {
    /// 1 when it is there.
    done: AtomicU32,
    text: OnceLock<Result<String, String>>,
}

impl Request {
    /// A request, and where its answer will be.
    pub(crate) fn new(ask: Ask) -> (Request, Answer) {
        let reply = Arc::<Reply>::default();
        let answer = Answer(Arc::clone(&reply));
        (Request { ask, reply }, answer)
    }

    /// For the writer.
    pub(crate) fn answer(self, answer: Result<String, String>) {
        let _ = self.reply.text.set(answer);
        self.reply.done.store(1, Ordering::Release);
        sys::futex_wake(&self.reply.done);
    }
}

/// Where the answer to a request will be.
pub(crate) struct Answer(Arc<Reply>);

impl Answer {
    /// Waits for it, as long as `is_awaited`, which is asked from time to time.
    ///
    /// # Errors
    /// With the words of the refusal, also when it does not come.
    pub(crate) fn wait(&self, is_awaited: impl Fn() -> bool) -> Result<String, String> {
        let deadline = clock::now_ns() + PATIENCE_NS;
        while self.0.done.load(Ordering::Acquire) == 0 {
            let now = clock::now_ns();
            if now >= deadline || !is_awaited() {
                return Err("no answer".into());
            }
            sys::futex_wait(&self.0.done, 0, Some((deadline - now).min(LOOK_NS)));
        }
        match self.0.text.get() {
            Some(answer) => answer.clone(),
            None => Err("no answer".into()),
        }
    }
}
