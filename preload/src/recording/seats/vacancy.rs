//! Vacancy: seats without walkers, between two recordings of one process.
//!
//! Danger: a walker is dropped in its place, and made there again.
//!
//! Model: a walker is most of a seat's memory, and the number of seats is that of the busiest
//! recording so far. So the end of a recording drops all walkers. The slot stays, because a thread
//! may have its lease. A vacant seat stays `busy`, so no hook takes it. The next recording makes
//! walkers for the first seats and for leased ones, and for others when a thread has to wait.

use std::sync::atomic::Ordering;

use super::{INITIAL, RETIRED, SeatSlot, lease, slots};
use crate::state::thread::Thread;
use crate::unwind::walker::Walker;

/// After a recording, in the writer, or before another one: drops the walkers, and gives back all
/// kept spots. No hook runs.
pub(crate) fn release() {
    for slot in slots().filter(|slot| slot.has_walker()) {
        slot.busy.store(true, Ordering::Relaxed);
        slot.is_vacant.store(true, Ordering::Release);
        slot.growth.release();
        slot.hazard.clear();
        // SAFETY: by the caller's promise no thread has a seat. The walker is not read before
        // `equip` has written another one.
        unsafe {
            *slot.kept_spot.get() = None;
            std::ptr::drop_in_place(slot.walker.get());
        }
    }
    // No hook is at work, so none is abandoned.
    RETIRED.store(0, Ordering::SeqCst);
}

/// In a forked child: makes all seats vacant. Threads of the parent may have left walkers and spots
/// half changed (Law 7), so none is dropped.
pub(crate) fn leave_to_parent(thread: &Thread) {
    lease::after_fork(thread, slots());
    for slot in slots() {
        slot.busy.store(true, Ordering::Relaxed);
        slot.is_vacant.store(true, Ordering::Release);
        slot.growth.after_fork();
        slot.hazard.clear();
        // SAFETY: this process has one thread, and the spot is overwritten unseen.
        unsafe { slot.kept_spot.get().write(None) };
    }
    RETIRED.store(0, Ordering::SeqCst);
}

/// Before another recording: makes the walkers of the first seats, and of those that threads lease.
pub(crate) fn equip_vacant() {
    slots()
        .filter(|slot| slot.number < INITIAL || slot.lease.is_held())
        .for_each(equip);
}

/// Makes the walker of one seat that has none. Returns false if there is no such seat.
pub(super) fn equip_one() -> bool {
    let vacant = slots().find(|slot| !slot.has_walker());
    vacant.is_some_and(|slot| {
        equip(slot);
        true
    })
}

/// Makes the walker of a seat, if it has none.
fn equip(slot: &SeatSlot) {
    if slot.has_walker() {
        return;
    }
    // SAFETY: the seat is vacant: no other thread reaches the walker, and there is none to drop.
    unsafe { slot.walker.get().write(Walker::new()) };
    slot.is_vacant.store(false, Ordering::Release);
    // A seat that a thread leases stays taken.
    slot.busy.store(slot.lease.is_held(), Ordering::Release);
}
