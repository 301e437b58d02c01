//! Pending mappings: changes of the program's mappings before there is a session.
//!
//! A mapping does not begin the session, which needs a thread, and with it libc's allocations: the
//! caller may be an allocator that holds its lock, or a signal handler. So the first ones wait in a
//! static array, with their stacks. If it is full, a change is lost and counted.
//!
//! A forked child keeps those of its parent, which are its own mappings, too.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapprof_core::{Memo, StackHasher};
use heapprof_format::WalkEnd;

use crate::os::clock::Ticks;

/// Most changes that wait.
const MOST: usize = 64;
/// Bytes of mappings that wait from which on they are many.
const MANY_BYTES: u64 = 16 << 20;
/// Most frames of a stack that waits. The pages of the array are touched as they are used.
const MOST_FRAMES: usize = 126;
/// Bit of an address at which a signal interrupted the program: no return address.
const INTERRUPTED: u64 = 1 << 63;

/// States of a place.
const EMPTY: u32 = 0;
const FULL: u32 = 2;

/// The place of one change. Its taker stores the state last, and the reader loads it first.
struct ChangeSlot {
    state: AtomicU32,
    /// Number of frames, with that of the exported function.
    frames: AtomicU32,
    /// Ticks, start, length, hash and end of the stack.
    words: [AtomicU64; 5],
    addresses: [AtomicU64; MOST_FRAMES],
}

static PLACES: [ChangeSlot; MOST] = [const {
    ChangeSlot {
        state: AtomicU32::new(EMPTY),
        frames: AtomicU32::new(0),
        words: [const { AtomicU64::new(0) }; 5],
        addresses: [const { AtomicU64::new(0) }; MOST_FRAMES],
    }
}; MOST];
/// The number of places that were given out.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The bytes of all mappings that were added.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// A stack that waits, innermost frame first.
pub(crate) struct PendingStack<'a> {
    pub(crate) hash: u64,
    pub(crate) end: WalkEnd,
    /// A PC inside the exported function.
    pub(crate) entry: u64,
    pub(crate) memo: &'a Memo<WalkEnd>,
}

/// A change that waited. A mapping has frames, the first of which is in the exported function.
pub(crate) struct PendingMapping {
    pub(crate) at: Ticks,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) hash: u64,
    pub(crate) end: u8,
    /// Addresses, each with true if a signal interrupted the program there.
    pub(crate) frames: Vec<(u64, bool)>,
}

/// Adds a change. Returns false if there is no room.
#[cold]
pub(crate) fn push(at: Ticks, start: u64, len: u64, stack: Option<&PendingStack<'_>>) -> bool {
    let Some(place) = PLACES.get(NEXT.fetch_add(1, Ordering::Relaxed)) else {
        NEXT.store(MOST, Ordering::Relaxed);
        return false;
    };
    let (mut hash, mut end, mut count) = (0, 0, 0);
    if let Some(stack) = stack {
        (hash, end) = (stack.hash, stack.end as u64);
        let callers = stack.memo.innermost_first();
        if callers.len() >= MOST_FRAMES {
            // Another stack than the whole one, which a sample may have.
            hash = StackHasher::new().finish(hash, MOST_FRAMES as u64);
            end = WalkEnd::TooDeep as u64;
        }
        let callers = callers.map(|frame| match frame.returns {
            true => frame.address,
            false => frame.address | INTERRUPTED,
        });
        for (word, address) in place
            .addresses
            .iter()
            .zip(std::iter::once(stack.entry).chain(callers))
        {
            word.store(address, Ordering::Relaxed);
            count += 1;
        }
    }
    for (word, value) in place.words.iter().zip([at.raw(), start, len, hash, end]) {
        word.store(value, Ordering::Relaxed);
    }
    place.frames.store(count, Ordering::Relaxed);
    place.state.store(FULL, Ordering::Release);
    if count > 0 {
        BYTES.fetch_add(len, Ordering::Relaxed);
    }
    true
}

/// Returns true if changes may wait.
pub(crate) fn exist() -> bool {
    NEXT.load(Ordering::Acquire) != 0
}

/// Returns true if there may soon be no room, or if they are of much memory.
pub(crate) fn are_many() -> bool {
    NEXT.load(Ordering::Relaxed) > MOST / 2 || BYTES.load(Ordering::Relaxed) >= MANY_BYTES
}

/// Takes all changes that wait. The array is not used again: from here on there is a session.
pub(crate) fn take_all() -> impl Iterator<Item = PendingMapping> {
    let full = PLACES
        .iter()
        .filter(|place| place.state.swap(EMPTY, Ordering::AcqRel) == FULL);
    full.map(|place| {
        let [at, start, len, hash, end] = place.words.each_ref().map(load);
        let count = place.frames.load(Ordering::Relaxed) as usize;
        let addresses = place.addresses.iter().take(count).map(load);
        PendingMapping {
            at: Ticks::from_raw(at),
            start,
            len,
            hash,
            end: end as u8,
            frames: addresses
                .map(|address| (address & !INTERRUPTED, address & INTERRUPTED != 0))
                .collect(),
        }
    })
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
