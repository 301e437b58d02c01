//! A lease: a seat that one thread keeps, so that it need not be taken.
//!
//! Danger: exclusion without a locked instruction. One, in each hook, is a tenth of what a recorded pair costs (docs/lab-notes/seats.md); it is for other threads,
//! and mostly no other thread wants that seat.
//!
//! Model: a thread that took the same seat [`ALONE`] times in a row and met nobody leaves it `busy` when it goes. From then on nobody takes
//! the seat, and only that thread asks whether somebody is `inside`: itself, interrupted by a signal whose handler allocates or frees, which then takes
//! another seat. That is a question between a thread and itself, which plain loads and stores answer.
//!
//! Who wants the seat cannot have it, and takes another; so few are leased ([`MOST`]), and there are others beside. What the writer would do there now and
//! then, the thread does: the writer calls, and the thread sees that when it comes next. When the thread has ended, the writer gives the lease up.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use super::{Place, WANTED, count};
use crate::os::seccomp::Spared;
use crate::os::{credentials, sys};
use crate::state::process;
use crate::state::thread::Thread;

/// So often a thread takes a seat in a row before it keeps it. Threads that sample less than that in their life leave no lease behind.
const ALONE: u8 = 200;

/// Most leases at a time.
const MOST: usize = 8;

/// So many seats are there beside the leased ones.
const BESIDE: usize = 2;

/// How many there are.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// That of a seat.
pub(super) struct Lease {
    /// Whether a thread has it. Moved by that thread, which has the seat then; by the writer when the thread is gone; and in a forked child.
    is_given: AtomicBool,
    /// Whether that thread is at work with the seat. Moved by that thread only.
    inside: AtomicBool,
    /// Whether the writer was here since that thread last looked.
    is_called: AtomicBool,
    /// The thread's number, the kernel's.
    tid: AtomicU32,
}

impl Lease {
    pub(super) const fn new() -> Lease {
        Lease {
            is_given: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            tid: AtomicU32::new(0),
        }
    }

    /// Whether a thread has it.
    #[inline(always)]
    pub(super) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Acquire)
    }

    /// Whether a thread has it, and is at work with the seat.
    pub(super) fn is_at_work(&self) -> bool {
        self.inside.load(Ordering::Acquire)
    }

    /// The thread that has it leaves the seat.
    #[inline(always)]
    pub(super) fn leave(&self) {
        self.inside.store(false, Ordering::Release);
    }

    /// In the writer: asks the thread to look after the seat.
    pub(super) fn call(&self) {
        self.is_called.store(true, Ordering::Relaxed);
    }
}

/// Returns the seat that this thread keeps.
#[inline(always)]
fn of(thread: &Thread) -> Option<&'static Place> {
    // SAFETY: null, or a place, which is never freed (`give` sets it, and nobody else).
    unsafe { thread.lease.get().cast::<Place>().as_ref() }
}

/// The seat that this thread keeps, taken. `None`: it keeps none, or is in the middle of something there.
#[inline(always)]
pub(super) fn enter(thread: &Thread) -> Option<&'static Place> {
    let place = of(thread)?;
    // Only this thread, and its signal handlers, each of which ends before what it interrupted goes on. (One that jumps out of a hook leaves it
    // so for ever: `recording/abandoned_hook.rs`.)
    if place.lease.inside.load(Ordering::Relaxed) {
        return None;
    }
    place.lease.inside.store(true, Ordering::Relaxed);
    // What follows is not before that for a signal handler either.
    compiler_fence(Ordering::SeqCst);
    if place.lease.is_called.load(Ordering::Relaxed) {
        attend(place);
    }
    Some(place)
}

/// The writer was here while this thread, which has the seat, was not.
#[cold]
#[inline(never)]
fn attend(place: &Place) {
    place.lease.is_called.store(false, Ordering::Relaxed);
    // SAFETY: this thread has the seat, and nothing of it is borrowed yet.
    unsafe { *place.kept.get() = None }; // perhaps nobody wants it any more
}

/// This thread has taken the seat, which it had the last time, too, in the usual way.
#[inline(always)]
pub(super) fn taken_again(thread: &Thread, place: &'static Place) {
    let alone = thread.alone.get();
    if alone < ALONE {
        thread.alone.set(alone + 1);
    } else {
        give(thread, place);
    }
}

/// Gives this thread, which has the seat and is outside of any other, the lease of it, if there is one to be had.
#[cold]
#[inline(never)]
fn give(thread: &Thread, place: &'static Place) {
    thread.alone.set(0);
    let relaxed = Ordering::Relaxed;
    let has_one = of(thread).is_some();
    if has_one || GIVEN.load(relaxed) >= MOST {
        return;
    }
    // Not in a child that shares our memory (`vfork`): the thread goes on by another number.
    if !process::is_own() {
        return;
    }
    // Others must find a seat now, and not only when the writer has made one.
    let most = MOST.min(count().saturating_sub(BESIDE));
    let one_more = |given| (given < most).then_some(given + 1);
    if GIVEN.fetch_update(relaxed, relaxed, one_more).is_err() {
        return WANTED.store(true, relaxed);
    }
    place.lease.tid.store(sys::gettid(), relaxed);
    place.lease.inside.store(true, relaxed);
    place.lease.is_given.store(true, Ordering::Release);
    thread.lease.set(std::ptr::from_ref(place).cast());
}

/// In the writer: gives up the lease of a thread that is no more, and leaves the seat for anybody. False: it lives, or nobody can tell.
pub(super) fn end_if_orphaned(place: &Place) -> bool {
    let lease = &place.lease;
    // Not by `/proc`, which may be another's: one that lives must not be taken for gone. Nor under a filter, which may say that nobody is there, or end
    // the process for the question.
    if lease.is_at_work()
        || !Spared::ThreadAsked.is_allowed()
        || credentials::is_filtered()
        || sys::has_thread(lease.tid.load(Ordering::Relaxed))
    {
        return false;
    }
    lease.is_given.store(false, Ordering::Release);
    GIVEN.fetch_sub(1, Ordering::Relaxed);
    place.busy.store(false, Ordering::Release);
    true
}

/// In a forked child: other threads' leases are nobody's, and this thread gives up its own. Whether it has the seat then.
pub(super) fn after_fork(thread: &Thread, places: impl Iterator<Item = &'static Place>) {
    for place in places {
        place.lease.is_given.store(false, Ordering::Relaxed);
    }
    GIVEN.store(0, Ordering::Relaxed);
    thread.alone.set(0);
    // A fork in a signal handler that interrupted a hook: the hook goes on, and leaves the seat as any other.
    let place = of(thread);
    thread.lease.set(std::ptr::null());
    if let Some(place) = place
        && !place.lease.is_at_work()
    {
        place.busy.store(false, Ordering::Release);
    }
}
