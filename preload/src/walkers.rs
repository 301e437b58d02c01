//! The walkers: what a walk needs that is too large for a stack, shared by all threads.
//!
//! Model: a fixed number of walkers, each with its unwind-rule cache and the memo of its last walk. A thread
//! that samples takes a free one, first the one it had last, whose cache is warm, and gives it
//! back after the walk. So memory does not grow with threads, and nothing need happen when one ends.
//! More are made by the writer when somebody had to wait.
//!
//! A walker also holds the module snapshot of its walk in use (a hazard pointer).

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use framehop::x86_64::CacheX86_64;
use heapprof_core::{Frame, Memo};
use heapprof_format::WalkEnd;

use crate::modules::{self, Snapshot};
use crate::room::Room;
use crate::sys;
use crate::tls::Entered;

/// Most frames a walk can have. The setting can only lower it.
pub(crate) const MAX_FRAMES: usize = 2048;

/// Most walkers there can be: threads that are inside a walk at once, which on a busy machine are
/// about as many as processors, plus those preempted in one.
const MOST: usize = 64;

/// Made at boot.
const AT_FIRST: usize = 4;

/// Caches of one walker: rules for 32,000 addresses in all.
const MOST_CACHES: usize = 64;

/// Rules displaced between two looks that call for more caches: each costs a third of a microsecond.
const MANY_DISPLACED: u64 = 2_000;

/// Looks of the writer at a walker in use: some tens of microseconds, a few walks.
const TRIES: u32 = 2_000;

/// Rounds over all walkers before a sample goes without a stack: with the sleeps between them, a tenth of a second.
const ROUNDS: u32 = 1_000;
/// The first of them without a pause, and with a short one.
const ROUNDS_AT_ONCE: u32 = 10;
/// See [`ROUNDS_AT_ONCE`].
const ROUNDS_YIELDING: u32 = 30;
/// How long a thread sleeps between the others.
const SLEEP_NS: u64 = 50_000;

/// What a walk works with.
pub(crate) struct Walker {
    /// Unwind rules by address. framehop's cache has room for 509; a program with more call sites on its
    /// stacks than that gets several, by `tend`. Their number is a power of two.
    caches: Vec<CacheX86_64<Room>>,
    /// The last walk, which the next one may have much in common with.
    pub(crate) memo: Memo<WalkEnd>,
    /// The frames of this walk that are not the memo's, innermost first.
    pub(crate) fresh: Vec<Frame>,
}

impl Walker {
    /// The cache for the rule of an address, and what else a walk needs at the same time.
    #[inline(always)]
    pub(crate) fn parts(&mut self, address: u64) -> (&mut CacheX86_64<Room>, &mut Vec<Frame>) {
        // The cache takes the address modulo 509: choose by other bits.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let index = hash as usize & (self.caches.len() - 1);
        (&mut self.caches[index], &mut self.fresh)
    }

    /// Rules that had to make room for another address's, so far.
    fn displaced(&self) -> u64 {
        let stats = self.caches.iter().map(|cache| cache.stats());
        stats.map(|stats| stats.miss_wrong_address_count).sum()
    }
}

struct Place {
    walker: UnsafeCell<Walker>,
    /// Set by the thread that holds the walker.
    busy: AtomicBool,
    /// The snapshot that the holder may be reading.
    hazard: AtomicPtr<Snapshot>,
    /// Rules that were displaced when `tend` last looked. The writer's alone.
    displaced: AtomicU64,
}

// SAFETY: `walker` is reached only by the thread that changed `busy` from false to true.
unsafe impl Sync for Place {}

static PLACES: [AtomicPtr<Place>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
/// How many of them exist; they are made in order and never freed.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Somebody found none free.
static WANTED: AtomicBool = AtomicBool::new(false);

/// A walker in use.
pub(crate) struct Taken {
    place: &'static Place,
}

impl Taken {
    /// The walker, and the snapshot in force, which stays valid until the next call.
    pub(crate) fn begin(&mut self) -> Option<(&mut Walker, &Snapshot)> {
        let snapshot = self.protect()?;
        // SAFETY: this thread holds the place (it alone changed `busy`), and `self` is borrowed.
        Some((unsafe { &mut *self.place.walker.get() }, snapshot))
    }

    /// Publishes the snapshot in force as in use, and returns it.
    fn protect(&self) -> Option<&'static Snapshot> {
        loop {
            let snapshot = modules::current();
            // Sequentially consistent, as are the replacement and the writer's look at the hazards:
            // either the writer sees this, or we see below that the snapshot was replaced.
            self.place.hazard.store(snapshot, Ordering::SeqCst);
            if modules::current() == snapshot {
                // SAFETY: not freed while our hazard names it.
                return unsafe { snapshot.as_ref() };
            }
        }
    }

    /// The walker.
    pub(crate) fn walker(&self) -> &Walker {
        // SAFETY: as in `begin`.
        unsafe { &*self.place.walker.get() }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.place
            .hazard
            .store(std::ptr::null_mut(), Ordering::Release);
        self.place.busy.store(false, Ordering::Release);
    }
}

/// Takes a free walker; `None` when all are in use and stay so.
pub(crate) fn take(entered: &Entered) -> Option<Taken> {
    let first = usize::from(entered.thread.walker_hint.get());
    for round in 0..ROUNDS {
        let count = COUNT.load(Ordering::Acquire);
        for i in 0..count {
            let index = (first + i) % count;
            // SAFETY: set before COUNT reached beyond it, never freed.
            let place = unsafe { PLACES[index].load(Ordering::Acquire).as_ref() }?;
            if !place.busy.swap(true, Ordering::Acquire) {
                entered.thread.walker_hint.set(index as u8);
                return Some(Taken { place });
            }
        }
        WANTED.store(true, Ordering::Relaxed);
        match round {
            0..ROUNDS_AT_ONCE => {}
            ROUNDS_AT_ONCE..ROUNDS_YIELDING => sys::yield_now(),
            _ => sys::sleep_ns(SLEEP_NS),
        }
    }
    None
}

/// At boot: makes the first ones.
pub(crate) fn prepare() {
    for _ in 0..AT_FIRST {
        add();
    }
}

/// In the writer, now and then: makes another if somebody had to wait for one, and gives more caches to those
/// whose rules keep displacing each other.
pub(crate) fn tend() {
    if WANTED.swap(false, Ordering::Relaxed) {
        add();
    }
    for place in &PLACES[..COUNT.load(Ordering::Acquire)] {
        // SAFETY: as in `take`.
        let Some(place) = (unsafe { place.load(Ordering::Acquire).as_ref() }) else {
            continue;
        };
        // In a program that does little but walk, a walker is free for a moment between two walks only.
        let free = (0..TRIES).any(|_| {
            std::hint::spin_loop();
            !place.busy.load(Ordering::Relaxed) && !place.busy.swap(true, Ordering::Acquire)
        });
        if !free {
            continue; // another time
        }
        // SAFETY: this thread changed `busy`, so the walker is its own until it changes it back.
        let walker = unsafe { &mut *place.walker.get() };
        let displaced = walker.displaced();
        let since = displaced
            - place
                .displaced
                .swap(displaced, Ordering::Relaxed)
                .min(displaced);
        if since > MANY_DISPLACED && walker.caches.len() < MOST_CACHES {
            let more = walker.caches.len();
            walker
                .caches
                .extend((0..more).map(|_| CacheX86_64::new_in()));
        }
        place.busy.store(false, Ordering::Release);
    }
}

/// Only one thread adds: the constructor's, then the writer, and in a forked child the one there is.
fn add() {
    let count = COUNT.load(Ordering::Relaxed);
    if count == MOST {
        return;
    }
    let place = Box::new(Place {
        walker: UnsafeCell::new(Walker {
            caches: vec![CacheX86_64::new_in()],
            memo: Memo::with_room_for(MAX_FRAMES, WalkEnd::Busy),
            fresh: Vec::with_capacity(MAX_FRAMES),
        }),
        busy: AtomicBool::new(false),
        hazard: AtomicPtr::new(std::ptr::null_mut()),
        displaced: AtomicU64::new(0),
    });
    PLACES[count].store(Box::into_raw(place), Ordering::Release);
    COUNT.store(count + 1, Ordering::Release);
}

/// Whether a walk may be reading that snapshot.
pub(crate) fn holds(snapshot: *mut Snapshot) -> bool {
    PLACES[..COUNT.load(Ordering::Acquire)].iter().any(|place| {
        // SAFETY: as in `take`.
        unsafe { place.load(Ordering::Acquire).as_ref() }
            .is_some_and(|place| place.hazard.load(Ordering::SeqCst) == snapshot)
    })
}

/// In a forked child: the threads that held walkers are not here, and may have left them half changed (Law 7).
/// Those walkers stay in use for ever; if none is left, there is a new one.
pub(crate) fn after_fork() {
    let any_free = PLACES[..COUNT.load(Ordering::Acquire)].iter().any(|place| {
        // SAFETY: as in `take`.
        unsafe { place.load(Ordering::Acquire).as_ref() }
            .is_some_and(|place| !place.busy.load(Ordering::Acquire))
    });
    if !any_free {
        add();
    }
}
