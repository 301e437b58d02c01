//! Lease: a seat that one thread keeps between its hooks, so it need not take the seat each time.
//!
//! Danger: mutual exclusion without a locked instruction. One such instruction in each hook is a
//! noticeable part of the cost of recording everything (docs/lab-notes/seats.md). It excludes other
//! threads, and mostly no other thread wants that seat.
//!
//! Model: a thread that took the same seat [`TAKES_BEFORE_LEASE`] times in a row leaves it `busy`
//! for good. From then on no other thread takes the seat. Only signal handlers of the same thread
//! can compete for it. A handler that frees a sampled block finds `inside` set and takes another
//! seat. (A handler's allocation in a hook is not recorded.) Plain loads and stores are enough
//! between a thread and its own handlers.
//!
//! Other threads take other seats. Few seats are leased ([`MOST`]), and [`UNLEASED`] seats always
//! remain. The thread does the writer's maintenance of the seat: the writer sets a flag, and the
//! thread sees it in its next hook. When the thread has ended, the writer revokes the lease.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use super::{SEAT_WANTED, SeatSlot, usable_count};
use crate::os::seccomp::AvoidableCall;
use crate::os::{credentials, sys};
use crate::state::process;
use crate::state::thread::Thread;

/// How often in a row a thread takes a seat before it leases it. A thread with fewer samples leaves
/// no lease behind.
const TAKES_BEFORE_LEASE: u8 = 200;

/// The most leases at a time.
const MOST: usize = 8;

/// How many seats stay without a lease.
const UNLEASED: usize = 2;

/// How many leases there are.
static GRANTED: AtomicUsize = AtomicUsize::new(0);

/// The lease of one seat.
pub(super) struct Lease {
    /// True if a thread has the lease. Changed by that thread while it has the seat, by the writer
    /// when the thread has ended, and in a forked child.
    is_held: AtomicBool,
    /// True while that thread is at work with the seat. Changed by that thread only.
    inside: AtomicBool,
    /// True if the writer has asked for maintenance.
    is_maintenance_asked: AtomicBool,
    /// The kernel's id of the thread.
    tid: AtomicU32,
}

impl Lease {
    pub(super) const fn new() -> Lease {
        Lease {
            is_held: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            is_maintenance_asked: AtomicBool::new(false),
            tid: AtomicU32::new(0),
        }
    }

    /// Returns true if a thread has the lease.
    #[inline(always)]
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Returns true if the thread of the lease is at work with the seat.
    pub(super) fn is_at_work(&self) -> bool {
        self.inside.load(Ordering::Acquire)
    }

    /// Leaves the seat, in the thread of the lease.
    #[inline(always)]
    pub(super) fn leave_seat(&self) {
        self.inside.store(false, Ordering::Release);
    }

    /// Asks the thread of the lease to maintain the seat. Called by the writer.
    pub(super) fn ask_for_maintenance(&self) {
        self.is_maintenance_asked.store(true, Ordering::Relaxed);
    }
}

/// Returns the slot of the seat that this thread leases.
#[inline(always)]
fn of(thread: &Thread) -> Option<&'static SeatSlot> {
    // SAFETY: null, or a slot, which is never freed (only `grant` and `after_fork` set the field).
    unsafe { thread.lease.get().cast::<SeatSlot>().as_ref() }
}

/// Takes the seat that this thread leases. `None`: it leases none, or a hook of this thread is at
/// work with the seat.
#[inline(always)]
pub(super) fn enter(thread: &Thread) -> Option<&'static SeatSlot> {
    let slot = of(thread)?;
    // Only this thread and its signal handlers come here. A handler ends before the interrupted
    // code continues. (A handler that jumps out of a hook leaves the flag set for ever; see the
    // abandoned hook.)
    if slot.lease.inside.load(Ordering::Relaxed) {
        return None;
    }
    slot.lease.inside.store(true, Ordering::Relaxed);
    // A signal handler must see the flag before any later effect.
    compiler_fence(Ordering::SeqCst);
    if slot.lease.is_maintenance_asked.load(Ordering::Relaxed) {
        maintain(slot);
    }
    Some(slot)
}

/// Maintains the seat, which this thread has, as the writer asked.
#[cold]
#[inline(never)]
fn maintain(slot: &SeatSlot) {
    slot.lease
        .is_maintenance_asked
        .store(false, Ordering::Relaxed);
    // SAFETY: this thread has the seat, and nothing of it is borrowed yet.
    unsafe { *slot.kept_spot.get() = None }; // perhaps it is not needed any more
}

/// Counts that this thread took, in the usual way, the seat that it had the last time, too.
#[inline(always)]
pub(super) fn count_take(thread: &Thread, slot: &'static SeatSlot) {
    let alone = thread.seat_streak.get();
    if alone < TAKES_BEFORE_LEASE {
        thread.seat_streak.set(alone + 1);
    } else {
        grant(thread, slot);
    }
}

/// Grants this thread the lease of the seat that it has, if a lease is available. The thread has no
/// other seat.
#[cold]
#[inline(never)]
fn grant(thread: &Thread, slot: &'static SeatSlot) {
    thread.seat_streak.set(0);
    let relaxed = Ordering::Relaxed;
    let has_one = of(thread).is_some();
    if has_one || GRANTED.load(relaxed) >= MOST {
        return;
    }
    // Not in a child that shares our memory (`vfork`): the thread id that it would note is the
    // child's.
    if !process::is_own() {
        return;
    }
    // Other threads must find a free seat now, before the writer makes another one.
    let most = MOST.min(usable_count().saturating_sub(UNLEASED));
    let one_more = |granted| (granted < most).then_some(granted + 1);
    if GRANTED.fetch_update(relaxed, relaxed, one_more).is_err() {
        return SEAT_WANTED.store(true, relaxed);
    }
    slot.lease.tid.store(sys::gettid(), relaxed);
    slot.lease.inside.store(true, relaxed);
    slot.lease.is_held.store(true, Ordering::Release);
    thread.lease.set(std::ptr::from_ref(slot).cast());
}

/// Revokes the lease of a thread that has ended, and frees the seat. Returns false if the thread
/// lives, or if that cannot be determined. Called by the writer.
pub(super) fn revoke_if_orphaned(slot: &SeatSlot) -> bool {
    let lease = &slot.lease;
    // `/proc` is no source for this: it may belong to another PID namespace, and a live thread must
    // not be taken for an ended one. A seccomp filter may answer wrongly, or end the
    // process for the call.
    if lease.is_at_work()
        || !AvoidableCall::ThreadCheck.is_allowed()
        || credentials::has_seccomp_filter()
        || sys::has_thread(lease.tid.load(Ordering::Relaxed))
    {
        return false;
    }
    lease.is_held.store(false, Ordering::Release);
    GRANTED.fetch_sub(1, Ordering::Relaxed);
    slot.busy.store(false, Ordering::Release);
    true
}

/// Ends all leases in a forked child. A seat that this thread leased becomes free, unless the
/// thread is at work with it.
pub(super) fn after_fork(thread: &Thread, slots: impl Iterator<Item = &'static SeatSlot>) {
    for slot in slots {
        slot.lease.is_held.store(false, Ordering::Relaxed);
    }
    GRANTED.store(0, Ordering::Relaxed);
    thread.seat_streak.set(0);
    // If a signal handler forked while it interrupted a hook, the hook continues and leaves the
    // seat as usual.
    let slot = of(thread);
    thread.lease.set(std::ptr::null());
    if let Some(slot) = slot
        && !slot.lease.is_at_work()
    {
        slot.busy.store(false, Ordering::Release);
    }
}
