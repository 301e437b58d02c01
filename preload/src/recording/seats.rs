//! Seats: pooled work contexts of hooks, shared by all threads.
//!
//! Glossary: seat.
//!
//! Model: a fixed maximum of seats, each with a walker, two lanes of the session, and a hazard
//! pointer for the module snapshot of its walk. A sampling thread takes a free seat and leaves it
//! when its event is sent. It tries its last seat first, because that seat's rule cache is warm. So
//! memory does not grow with threads, and the end of a thread needs no work. A thread that always
//! takes the same seat may lease it (`lease`).
//!
//! If no seat is free, the thread looks at all seats again for a bounded time. Without a seat, its
//! sample is dropped and counted, and its free takes the overflow queue of the session.
//!
//! The writer makes another seat when a thread had to wait for one, up to the maximum. It grows a
//! walker's rule table when the rules displace each other (`rule_table_growth`).
//!
//! A seat also keeps the spot of the sample that was freed last.

mod lease;
mod rule_table_growth;
#[cfg(feature = "attach")]
mod vacancy;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::allocator;
use crate::os::backoff::{self, Backoff};
use crate::recording::request_word::{self, SEATS};
use crate::recording::sampled_blocks::Spot;
use crate::state::thread::Thread;
use crate::unwind::modules::{Hazard, ModuleSnapshot};
use crate::unwind::walker::Walker;
use lease::Lease;
use rule_table_growth::{GrowthOutcome, TableGrowth};
#[cfg(feature = "attach")]
pub(crate) use vacancy::{equip_vacant, leave_to_parent, release};

/// The maximum number of seats. Threads that are inside a hook at once are about as many as
/// processors, plus those that were preempted in a hook.
pub(crate) const MOST: usize = 64;

/// Seats made at boot: one for the first sample, which begins the session and may wait for other
/// threads meanwhile, and one for these threads.
const INITIAL: usize = 2;

/// Seats made by the time when a session begins. A program that ends before that does not pay for
/// them: making a seat writes to several pages.
const IN_SESSION: usize = 4;

/// The most seats that abandoned hooks may take for ever. As many remain for other threads.
const MOST_RETIRED: usize = MOST / 2;
const _: () = assert!(IN_SESSION + MOST_RETIRED <= MOST);

/// How often the writer tries to take a busy seat: as long as a few walks.
const MAINTENANCE_TRIES: u32 = 2_000;

/// Rounds over all seats before a thread yields.
const ROUNDS_AT_ONCE: u32 = 10;

/// Rounds of the writer between two checks that the thread of a lease still lives.
const ROUNDS_PER_LIVENESS_CHECK: u32 = 10;

/// The memory of one seat.
pub(crate) struct SeatSlot {
    walker: UnsafeCell<Walker>,
    /// The spot of the sample that was freed last, if it is kept.
    kept_spot: UnsafeCell<Option<Spot>>,
    /// Set by the thread that has the seat, or that leases it.
    busy: AtomicBool,
    lease: Lease,
    /// The growth of the walker's rule table.
    growth: TableGrowth,
    /// The seat's index.
    number: usize,
    /// The snapshot that the seat's walk may be reading.
    hazard: Hazard,
    /// True between two recordings: there is no walker, and no hook gets the seat.
    #[cfg(feature = "attach")]
    is_vacant: AtomicBool,
}

impl SeatSlot {
    fn has_walker(&self) -> bool {
        #[cfg(feature = "attach")]
        return !self.is_vacant.load(Ordering::Acquire);
        #[cfg(not(feature = "attach"))]
        return true;
    }
}

// SAFETY: `walker` and `kept_spot` are reached only by the thread that changed `busy` from false to
// true, or, while `busy` stays true, by the one thread that has the lease, and in that thread only
// by the frame that set `lease.inside`.
unsafe impl Sync for SeatSlot {}

static SLOTS: [AtomicPtr<SeatSlot>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
/// How many seats exist. They are made in order and never freed.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// A thread found no free seat.
static SEAT_WANTED: AtomicBool = AtomicBool::new(false);

/// How often the writer has maintained the seats.
static MAINTENANCE_ROUNDS: AtomicU32 = AtomicU32::new(0);

/// How many seats abandoned hooks have taken for ever, [`MOST_RETIRED`] at most.
static RETIRED: AtomicUsize = AtomicUsize::new(0);

/// A seat that this thread has taken.
pub(crate) struct Seat {
    slot: &'static SeatSlot,
}

impl Seat {
    /// Returns the seat's number, below [`MOST`]. No other thread has a seat of this number now.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.slot.number
    }

    /// Returns the walker, and the hazard pointer of its walks.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut Walker, &Hazard) {
        // SAFETY: this thread has the seat (see `SeatSlot`), and `self` is borrowed.
        (unsafe { &mut *self.slot.walker.get() }, &self.slot.hazard)
    }

    /// Returns the walker.
    pub(crate) fn walker(&mut self) -> &mut Walker {
        self.parts().0
    }

    /// Requests a larger rule table from the writer, if the walker's rules displace each other.
    /// Called after a walk. The request wakes the writer: until its next round of maintenance,
    /// every walk could have to derive all its rules anew.
    #[inline]
    pub(crate) fn request_rule_growth_if_crowded(&mut self) {
        let round = MAINTENANCE_ROUNDS.load(Ordering::Relaxed);
        if let Some(wanted) = self.walker().wanted_capacity(round) {
            self.request_rule_growth(wanted);
        }
    }

    #[cold]
    #[inline(never)]
    fn request_rule_growth(&mut self, wanted: usize) {
        let growth = &self.slot.growth;
        let walker = self.walker();
        match growth.request(wanted, &mut walker.rules) {
            GrowthOutcome::Pending => {}
            GrowthOutcome::Moved => walker.note_move(),
            GrowthOutcome::Requested => request_word::post(SEATS),
        }
    }

    /// Keeps the spot of a freed sample, and gives back the spot before it.
    #[inline(always)]
    pub(crate) fn keep_spot(&mut self, spot: Spot) {
        // SAFETY: as in `parts`.
        *unsafe { &mut *self.slot.kept_spot.get() } = Some(spot);
    }

    /// Takes the kept spot, if it belongs to `ptr`.
    #[inline(always)]
    pub(crate) fn take_spot_at(&mut self, ptr: *mut c_void) -> Option<Spot> {
        // SAFETY: as in `parts`.
        let kept = unsafe { &mut *self.slot.kept_spot.get() };
        kept.take_if(|spot| spot.is_at(ptr))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.slot.hazard.clear();
        if self.slot.lease.is_held() {
            self.slot.lease.leave_seat();
        } else {
            self.slot.busy.store(false, Ordering::Release);
        }
    }
}

/// Takes a free seat. `None`: all seats are taken, and stay taken for the whole wait.
#[inline]
pub(crate) fn take(thread: &Thread) -> Option<Seat> {
    if let Some(slot) = lease::enter(thread) {
        return Some(Seat { slot });
    }
    let number = usize::from(thread.seat_hint.get());
    // SAFETY: null, or a slot, which is never freed.
    if let Some(slot) = unsafe { SLOTS[number % MOST].load(Ordering::Acquire).as_ref() }
        && !slot.busy.swap(true, Ordering::Acquire)
    {
        lease::count_take(thread, slot);
        return Some(Seat { slot });
    }
    take_another(thread)
}

#[cold]
fn take_another(thread: &Thread) -> Option<Seat> {
    let first = usize::from(thread.seat_hint.get());
    let mut patience = Backoff::with_limit(backoff::SHORT_NS);
    for round in 0u32.. {
        let count = COUNT.load(Ordering::Acquire);
        for i in 0..count {
            let number = (first + i) % count;
            // SAFETY: as in `take`.
            let slot = unsafe { SLOTS[number].load(Ordering::Acquire).as_ref() }?;
            if !slot.busy.load(Ordering::Relaxed) && !slot.busy.swap(true, Ordering::Acquire) {
                thread.seat_hint.set(number as u8);
                thread.seat_streak.set(0);
                return Some(Seat { slot });
            }
        }
        SEAT_WANTED.store(true, Ordering::Relaxed);
        if round >= ROUNDS_AT_ONCE && !patience.pause() {
            break;
        }
    }
    None
}

/// Returns true while fewer than [`MOST_RETIRED`] seats have been retired for abandoned hooks.
pub(crate) fn may_retire_one() -> bool {
    RETIRED.load(Ordering::Relaxed) < MOST_RETIRED
}

/// Counts one more seat as retired, if enough seats remain. Returns false if not. The caller
/// must wake the writer, which makes another seat.
pub(crate) fn retire_one() -> bool {
    let most = usable_count().saturating_sub(1).min(MOST_RETIRED); // at least one remains
    let one_more = |retired| (retired < most).then_some(retired + 1);
    RETIRED
        .fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_more)
        .is_ok()
}

/// Returns how many seats there must be if no thread waits.
fn target_count() -> usize {
    IN_SESSION + RETIRED.load(Ordering::SeqCst)
}

/// Returns how many seats there are.
fn count() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// Returns how many seats hooks can take.
fn usable_count() -> usize {
    slots().filter(|slot| slot.has_walker()).count()
}

/// Returns the bytes that the seats made at boot take.
pub(crate) fn initial_bytes() -> usize {
    INITIAL * Walker::bytes()
}

/// Makes the seats of a session that begins, before it has a writer. False: there is no memory.
pub(crate) fn make_session_seats() -> bool {
    let missing = IN_SESSION.saturating_sub(usable_count());
    let has_room = missing == 0 || allocator::can_allocate(missing * Walker::bytes());
    if has_room {
        (0..missing).for_each(|_| add());
    }
    has_room
}

/// Makes the first seats, at boot.
pub(crate) fn prepare() {
    for _ in 0..INITIAL {
        add();
    }
}

/// Makes missing seats, and grows the rule tables that hooks requested. Called by the writer only.
pub(crate) fn handle_requests() {
    while usable_count() < target_count() {
        add();
    }
    slots().for_each(|slot| slot.growth.advance_in_writer());
}

/// Maintains the seats: makes another one if a thread had to wait, and drops spots that are kept.
/// Called by the writer only, periodically.
pub(crate) fn maintain() {
    if SEAT_WANTED.swap(false, Ordering::Relaxed) {
        add();
    }
    handle_requests();
    let round = MAINTENANCE_ROUNDS.fetch_add(1, Ordering::Relaxed);
    for slot in slots() {
        if slot.lease.is_held() {
            slot.lease.ask_for_maintenance();
            if !round.is_multiple_of(ROUNDS_PER_LIVENESS_CHECK) || !lease::revoke_if_orphaned(slot)
            {
                continue;
            }
        }
        // In a program that does little but walk, a seat is free only for a moment between two
        // walks.
        let free = (0..MAINTENANCE_TRIES).any(|_| {
            std::hint::spin_loop();
            !slot.busy.load(Ordering::Relaxed) && !slot.busy.swap(true, Ordering::Acquire)
        });
        if free {
            // SAFETY: this thread changed `busy`, so the spot is its own until it changes `busy`
            // back.
            unsafe {
                *slot.kept_spot.get() = None; // perhaps it is not needed any more
            }
            slot.busy.store(false, Ordering::Release);
        }
    }
}

/// Adds a seat. Only one thread adds: the constructor's, then the one that begins the session, then
/// the writer, and in a forked child its only thread.
fn add() {
    #[cfg(feature = "attach")]
    if vacancy::equip_one() {
        return;
    }
    let count = COUNT.load(Ordering::Relaxed);
    if count == MOST {
        return;
    }
    make(count);
    COUNT.store(count + 1, Ordering::Release);
}

/// Makes a new seat in that slot.
fn make(number: usize) {
    let slot = Box::new(SeatSlot {
        walker: UnsafeCell::new(Walker::new()),
        kept_spot: UnsafeCell::new(None),
        busy: AtomicBool::new(false),
        lease: Lease::new(),
        growth: TableGrowth::new(),
        number,
        hazard: Hazard::new(),
        #[cfg(feature = "attach")]
        is_vacant: AtomicBool::new(false),
    });
    SLOTS[number].store(Box::into_raw(slot), Ordering::Release);
}

/// Returns the slots of all seats.
fn slots() -> impl Iterator<Item = &'static SeatSlot> {
    let slots = SLOTS[..count()].iter();
    // SAFETY: null, or a slot, which is never freed.
    slots.filter_map(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() })
}

/// Returns true if no thread is at work with any seat.
pub(crate) fn are_idle() -> bool {
    slots().all(|slot| match slot.lease.is_held() {
        true => !slot.lease.is_at_work(),
        false => !slot.busy.load(Ordering::Acquire),
    })
}

/// Returns true if a walk may be reading that snapshot.
pub(crate) fn may_be_reading(snapshot: *mut ModuleSnapshot) -> bool {
    slots().any(|slot| slot.hazard.names(snapshot))
}

/// Repairs the seats in a forked child, which has one thread. Threads that had seats do not exist
/// here and may have left them half changed (Law 7), so those seats stay taken for ever. If none is
/// free, a new seat replaces the first one, as there may be no room for more.
pub(crate) fn after_fork(thread: &Thread) {
    slots().for_each(|slot| slot.growth.after_fork());
    lease::after_fork(thread, slots());
    let any_free = slots().any(|slot| !slot.busy.load(Ordering::Acquire));
    if !any_free && count() > 0 {
        make(0);
    }
}
