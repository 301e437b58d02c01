//! Seat lanes: the lanes through which the thread that has a seat sends samples, frees and stacks.
//!
//! Danger: the lanes lie in memory from a system call, which the first thread with the seat makes.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use heapprof_core::{LANES, Lane, MOST_CODE_WORDS, MOST_PYTHON_FRAMES, StackLane};

use crate::os::sys;
use crate::recording::seats::{self, Seat};
use crate::unwind::walker::MAX_FRAMES;

const _: () = assert!(seats::MOST <= LANES);

/// Words of a lane if few blocks are sampled. They hold all samples of one thread between two
/// rounds of the writer, even if the thread allocates fast. At half of that a hook wakes the
/// writer, which takes long where processors are virtual.
const SPARSE: usize = 8192;
/// Words of a lane if many or all blocks are sampled. A longer lane would leave more work for the
/// end of the program, and take more memory for each seat.
const DENSE: usize = 32_768;
/// Words of a lane for stacks: enough for many stacks of the usual depth, and for some of the
/// largest.
const STACKS: usize = 8192;
const _: () = assert!(STACKS > 2 * StackLane::words_of(MAX_FRAMES + 1 + MOST_PYTHON_FRAMES));
const _: () = assert!(STACKS > 2 * StackLane::words_of(MOST_CODE_WORDS));
/// Bytes in front of the words of the lanes, for the lanes' own fields: a page.
const HEADER: usize = 4096;
const _: () = assert!(size_of::<SeatLanes>() <= HEADER);
/// The interval from which on few blocks are sampled.
const SPARSE_INTERVAL: u64 = 256 << 10;

/// The lanes of one seat.
pub(crate) struct SeatLanes {
    /// Samples and frees.
    pub(crate) events: Lane,
    /// Stacks that are new.
    pub(crate) stacks: StackLane,
}

/// The lanes of all seats of a session.
pub(crate) struct LanesBySeat {
    /// By number of the seat, made by the first thread that has the seat and an event.
    places: [AtomicPtr<SeatLanes>; seats::MOST],
    /// Words of each lane for samples and frees.
    words: usize,
    /// Ids up to this one are never given.
    above: u64,
}

impl LanesBySeat {
    /// Returns no lanes yet, of a length for that interval. They give ids above `above`.
    pub(crate) fn new(interval: u64, above: u64) -> Self {
        LanesBySeat {
            places: [const { AtomicPtr::new(std::ptr::null_mut()) }; seats::MOST],
            words: if interval >= SPARSE_INTERVAL {
                SPARSE
            } else {
                DENSE
            },
            above,
        }
    }

    /// Makes the first lanes, before another thread knows the session. Returns false if there is no
    /// memory.
    pub(crate) fn make_first(&self) -> bool {
        self.make(0, &self.places[0]).is_some()
    }

    /// Returns the lanes of a seat, and makes them if need be, by a system call, because the thread
    /// may have been interrupted anywhere. `None`: there is no memory for them.
    #[inline]
    pub(crate) fn of(&self, seat: &Seat) -> Option<&'static SeatLanes> {
        let place = self.places.get(seat.number())?;
        // SAFETY: null or made by `make`.
        let lanes = unsafe { place.load(Ordering::Acquire).as_ref() };
        lanes.or_else(|| self.make(seat.number(), place))
    }

    #[cold]
    fn make(&self, number: usize, place: &AtomicPtr<SeatLanes>) -> Option<&'static SeatLanes> {
        let words = self.words + STACKS;
        let memory = sys::map_zeroed(HEADER + words * size_of::<AtomicU64>())?;
        // SAFETY: a zeroed mapping of a page and that many words, page-aligned, unmapped by
        // `release` at the earliest. The words are reached through atomics only, and the page
        // before them has room for what is written there (asserted above). This thread has the
        // seat, so no other thread is here with the same place.
        unsafe {
            let words = std::slice::from_raw_parts(memory.byte_add(HEADER).cast(), words);
            let (of_events, of_stacks) = words.split_at(self.words);
            let lanes = memory.cast::<SeatLanes>();
            lanes.write(SeatLanes {
                events: Lane::new(of_events, number, self.above),
                stacks: StackLane::new(of_stacks),
            });
            place.store(lanes, Ordering::Release);
            lanes.as_ref()
        }
    }

    /// Returns the lanes that exist, with their numbers.
    pub(crate) fn existing(&self) -> impl Iterator<Item = (usize, &'static SeatLanes)> {
        let places = self.places.iter().enumerate();
        // SAFETY: as in `of`.
        places
            .filter_map(|(n, place)| Some((n, unsafe { place.load(Ordering::Acquire).as_ref()? })))
    }

    /// After a recording: unmaps the lanes. No hook runs, and the writer has taken all events.
    #[cfg(feature = "attach")]
    pub(crate) fn release(&self) {
        for place in &self.places {
            let lanes = place.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !lanes.is_null() {
                let bytes = HEADER + (self.words + STACKS) * size_of::<AtomicU64>();
                sys::unmap(lanes as u64, bytes);
            }
        }
    }
}
