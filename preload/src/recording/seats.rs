//! The seats: what a hook works with and cannot have for itself, shared by all threads.
//!
//! Model: a fixed number of seats, each with a walker (`unwind/walker.rs`) and a lane of the session (`recording/session.rs`). A thread that
//! samples takes a free one, first the one it had last, whose rule cache is warm, and leaves it when its event is
//! on its way. So memory does not grow with threads, and nothing need happen when one ends. A thread that always has the same one may keep it
//! (`lease.rs`).
//! More are made by the writer when somebody had to wait, and more room in a walker when its rules displace each other (`larger.rs`).
//!
//! A seat also holds the module snapshot of its walk in use (a hazard pointer), and the spot of the sample that was freed last
//! (`recording/sampled_blocks.rs`).

mod lease;
mod rule_table_growth;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::allocator;
use crate::os::backoff::{self, Patience};
use crate::recording::request_word::{self, SEATS};
use crate::recording::sampled_blocks::Spot;
use crate::state::thread::Thread;
use crate::unwind::modules::{Hazard, Snapshot};
use crate::unwind::walker::Walker;
use lease::Lease;
use rule_table_growth::{Larger, Outcome};

/// Most seats there can be: threads that are inside a hook at once, which on a busy machine are
/// about as many as processors, plus those preempted in one.
pub(crate) const MOST: usize = 64;

/// Made at boot: one for the first sample, which begins the session and may wait for others in that (`writer/session_start.rs`), and one for them.
const AT_FIRST: usize = 2;

/// Made by then when a session begins. A program that is over sooner never has them: each is some eight pages that are written to.
const IN_SESSION: usize = 4;

/// As many remain for the others.
const MOST_LOST: usize = MOST / 2;
const _: () = assert!(IN_SESSION + MOST_LOST <= MOST);

/// Looks of the writer at a seat in use: some tens of microseconds, a few walks.
const TRIES: u32 = 2_000;

/// Rounds over all seats before a thread lets others run.
const ROUNDS_AT_ONCE: u32 = 10;

/// Looks of the writer at a leased seat from one question to the next whether its thread still lives: half a second or more.
const LOOKS_A_QUESTION: u32 = 10;

/// Where a seat is.
pub(crate) struct Place {
    walker: UnsafeCell<Walker>,
    /// Where the sample was that was freed last, if somebody wants it.
    kept: UnsafeCell<Option<Spot>>,
    /// Set by the thread that has the seat, and by one that keeps it.
    busy: AtomicBool,
    lease: Lease,
    /// Where the walker's rules will have more room.
    larger: Larger,
    /// Its index.
    number: usize,
    /// The snapshot that it may be reading.
    hazard: Hazard,
}

// SAFETY: `walker` and `kept` are reached only by the thread that changed `busy` from false to true, or, while `busy` stays true, by the
// one thread that has the lease, and there by what came from outside (`lease.rs`).
unsafe impl Sync for Place {}

static PLACES: [AtomicPtr<Place>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
/// How many of them exist; they are made in order and never freed.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Somebody found none free.
static WANTED: AtomicBool = AtomicBool::new(false);

/// How often the writer has looked at the seats.
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// How many nobody will ever leave, [`MOST_LOST`] at the most.
static LOST: AtomicUsize = AtomicUsize::new(0);

/// A seat, taken.
pub(crate) struct Seat {
    place: &'static Place,
}

impl Seat {
    /// Its number, below [`MOST`]: nobody else has a seat of that number now.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.place.number
    }

    /// The walker, and the hazard of its walks.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut Walker, &Hazard) {
        // SAFETY: this thread has the seat (see `Place`), and `self` is borrowed.
        (unsafe { &mut *self.place.walker.get() }, &self.place.hazard)
    }

    /// The walker.
    pub(crate) fn walker(&mut self) -> &mut Walker {
        self.parts().0
    }

    /// After a walk: asks the writer for room for more rules, if the walker's rules displace each other. By
    /// the writer's usual look, each of some thousand walks would have learnt all its rules anew.
    #[inline]
    pub(crate) fn request_rule_growth_if_crowded(&mut self) {
        let looks = LOOKS.load(Ordering::Relaxed);
        if let Some(wanted) = self.walker().room_wanted(looks) {
            self.request_rule_growth(wanted);
        }
    }

    #[cold]
    #[inline(never)]
    fn request_rule_growth(&mut self, wanted: usize) {
        let larger = &self.place.larger;
        let walker = self.walker();
        match larger.ask(wanted, &mut walker.rules) {
            Outcome::Waits => {}
            Outcome::HasMoved => walker.has_moved(),
            Outcome::IsAsked => request_word::post(SEATS),
        }
    }

    /// Keeps the spot of a sample that was freed, and gives back the one before.
    #[inline(always)]
    pub(crate) fn keep(&mut self, spot: Spot) {
        // SAFETY: as in `begin`.
        *unsafe { &mut *self.place.kept.get() } = Some(spot);
    }

    /// The spot that was kept, if it is that of `ptr`.
    #[inline(always)]
    pub(crate) fn kept_at(&mut self, ptr: *mut c_void) -> Option<Spot> {
        // SAFETY: as in `begin`.
        let kept = unsafe { &mut *self.place.kept.get() };
        kept.take_if(|spot| spot.is_at(ptr))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.place.hazard.clear();
        if self.place.lease.is_given() {
            self.place.lease.leave();
        } else {
            self.place.busy.store(false, Ordering::Release);
        }
    }
}

/// Takes a free seat; `None` when all are taken and stay so.
#[inline]
pub(crate) fn take(thread: &Thread) -> Option<Seat> {
    if let Some(place) = lease::enter(thread) {
        return Some(Seat { place });
    }
    let number = usize::from(thread.seat_hint.get());
    // SAFETY: null or a place, which is never freed.
    if let Some(place) = unsafe { PLACES[number % MOST].load(Ordering::Acquire).as_ref() }
        && !place.busy.swap(true, Ordering::Acquire)
    {
        lease::taken_again(thread, place);
        return Some(Seat { place });
    }
    take_another(thread)
}

#[cold]
fn take_another(thread: &Thread) -> Option<Seat> {
    let first = usize::from(thread.seat_hint.get());
    let mut patience = Patience::of(backoff::SHORT_NS);
    for round in 0u32.. {
        let count = COUNT.load(Ordering::Acquire);
        for i in 0..count {
            let number = (first + i) % count;
            // SAFETY: as in `take`.
            let place = unsafe { PLACES[number].load(Ordering::Acquire).as_ref() }?;
            if !place.busy.load(Ordering::Relaxed) && !place.busy.swap(true, Ordering::Acquire) {
                thread.seat_hint.set(number as u8);
                thread.alone.set(0);
                return Some(Seat { place });
            }
        }
        WANTED.store(true, Ordering::Relaxed);
        if round >= ROUNDS_AT_ONCE && !patience.pause() {
            break;
        }
    }
    None
}

/// Whether one more may ever be held for good by a hook that was left (`recording/abandoned_hook.rs`).
pub(crate) fn may_ever_lose_one() -> bool {
    LOST.load(Ordering::Relaxed) < MOST_LOST
}

/// Whether there will be enough without one that is held for good from now on. Then the writer, who is to be woken, makes another.
pub(crate) fn may_lose_one() -> bool {
    let most = count().saturating_sub(1).min(MOST_LOST); // one at least remains
    let one_more = |lost| (lost < most).then_some(lost + 1);
    LOST.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_more)
        .is_ok()
}

/// How many there are to be, if nobody has to wait.
fn usual_count() -> usize {
    IN_SESSION + LOST.load(Ordering::SeqCst)
}

/// How many there are.
fn count() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// Bytes that the first ones take.
pub(crate) fn bytes_at_first() -> usize {
    AT_FIRST * Walker::bytes()
}

/// As a session begins, before it has a writer: makes the others that it has. False: there is no memory for them.
pub(crate) fn complete() -> bool {
    let missing = IN_SESSION.saturating_sub(count());
    let has_room = missing == 0 || allocator::can_have(missing * Walker::bytes());
    if has_room {
        (0..missing).for_each(|_| add());
    }
    has_room
}

/// At boot: makes the first ones.
pub(crate) fn prepare() {
    for _ in 0..AT_FIRST {
        add();
    }
}

/// In the writer: does that.
pub(crate) fn serve() {
    while count() < usual_count() {
        add();
    }
    places().for_each(|place| place.larger.serve());
}

/// In the writer, now and then: makes another if somebody had to wait for one, and looks after the others.
pub(crate) fn tend() {
    if WANTED.swap(false, Ordering::Relaxed) {
        add();
    }
    serve();
    let looks = LOOKS.fetch_add(1, Ordering::Relaxed);
    for place in places() {
        if place.lease.is_given() {
            place.lease.call();
            if !looks.is_multiple_of(LOOKS_A_QUESTION) || !lease::end_if_orphaned(place) {
                continue;
            }
        }
        // In a program that does little but walk, a seat is free for a moment between two walks only.
        let free = (0..TRIES).any(|_| {
            std::hint::spin_loop();
            !place.busy.load(Ordering::Relaxed) && !place.busy.swap(true, Ordering::Acquire)
        });
        if free {
            // SAFETY: this thread changed `busy`, so both are its own until it changes it back.
            unsafe {
                *place.kept.get() = None; // perhaps nobody wants it any more
            }
            place.busy.store(false, Ordering::Release);
        }
    }
}

/// Only one thread adds: the constructor's, the one that begins the session, then the writer, and in a forked child the one there is.
fn add() {
    let count = COUNT.load(Ordering::Relaxed);
    if count == MOST {
        return;
    }
    make(count);
    COUNT.store(count + 1, Ordering::Release);
}

/// Puts a new seat in that place.
fn make(number: usize) {
    let place = Box::new(Place {
        walker: UnsafeCell::new(Walker::new()),
        kept: UnsafeCell::new(None),
        busy: AtomicBool::new(false),
        lease: Lease::new(),
        larger: Larger::new(),
        number,
        hazard: Hazard::new(),
    });
    PLACES[number].store(Box::into_raw(place), Ordering::Release);
}

/// Those that there are.
fn places() -> impl Iterator<Item = &'static Place> {
    let places = PLACES[..count()].iter();
    // SAFETY: null or a place, which is never freed.
    places.filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Whether nobody is at work with any.
pub(crate) fn are_free() -> bool {
    places().all(|place| match place.lease.is_given() {
        true => !place.lease.is_at_work(),
        false => !place.busy.load(Ordering::Acquire),
    })
}

/// Whether a walk may be reading that snapshot.
pub(crate) fn holds(snapshot: *mut Snapshot) -> bool {
    places().any(|place| place.hazard.names(snapshot))
}

/// In a forked child, in its one thread: the threads that had seats are not here, and may have left them half changed (Law 7).
/// Those seats stay taken for ever; if none is left, a new one takes the first's place, as there may be no room for more.
pub(crate) fn after_fork(thread: &Thread) {
    places().for_each(|place| place.larger.after_fork());
    lease::after_fork(thread, places());
    let any_free = places().any(|place| !place.busy.load(Ordering::Acquire));
    if !any_free && count() > 0 {
        make(0);
    }
}
