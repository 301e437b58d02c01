//! A larger table of rules for a walker.
//!
//! Danger: a table that goes from one thread to another and back.
//!
//! Model: the thread that has the seat asks for it, and the writer makes it, who may allocate. The thread moves its rules there, 16,384 at the
//! most, which takes a seventh of a millisecond (`cargo bench --package heapprof-core --bench walks`), and happens thrice in the life of a
//! walker at the most. It leaves the table that it has outgrown, which the writer drops. So neither waits for the other, and the
//! writer need not have the seat for that: in a program that does little but walk it is hardly ever free.
//!
//! ```text
//!  NONE ──thread──> ASKED ──writer──> MADE ──thread──> OUTGROWN ──writer──> NONE
//!                     ↑                                   │
//!                     └──────────────thread───────────────┘
//! ```

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use heapprof_core::Rules;

const NONE: u8 = 0;
const ASKED: u8 = 1;
const MADE: u8 = 2;
const OUTGROWN: u8 = 3;

/// That of a seat.
pub(super) struct Larger {
    state: AtomicU8,
    /// For how many rules.
    wanted: AtomicUsize,
    /// The new one while the state is `MADE`, the old one while it is `OUTGROWN`.
    table: UnsafeCell<Option<Rules>>,
}

// SAFETY: `table` is reached by the thread that has the seat in the state `MADE`, and by the writer in `ASKED` and `OUTGROWN`, the latter of which it leaves
// first. Each leaves a state by a Release, and comes upon the other's by an Acquire.
unsafe impl Sync for Larger {}

/// What became of a wish for more room.
pub(super) enum Outcome {
    /// The writer is to be told of it.
    IsAsked,
    /// The rules have moved.
    HasMoved,
    /// The writer knows.
    Waits,
}

impl Larger {
    pub(super) const fn new() -> Larger {
        Larger {
            state: AtomicU8::new(NONE),
            wanted: AtomicUsize::new(0),
            table: UnsafeCell::new(None),
        }
    }

    /// In the thread that has the seat, whose walker wants room for so many `rules`.
    pub(super) fn ask(&self, wanted: usize, rules: &mut Rules) -> Outcome {
        match self.state.load(Ordering::Acquire) {
            NONE | OUTGROWN => {
                self.wanted.store(wanted, Ordering::Relaxed);
                self.state.store(ASKED, Ordering::Release);
                Outcome::IsAsked
            }
            MADE => {
                // SAFETY: this thread has the seat, and in this state the table is its own.
                if let Some(larger) = unsafe { &mut *self.table.get() } {
                    rules.move_to(larger);
                }
                self.state.store(OUTGROWN, Ordering::Release);
                Outcome::HasMoved
            }
            _ => Outcome::Waits,
        }
    }

    /// In the writer.
    pub(super) fn serve(&self) {
        match self.state.load(Ordering::Acquire) {
            ASKED => {
                let table = Rules::with_room_for(self.wanted.load(Ordering::Relaxed));
                // SAFETY: in this state the table is the writer's, if there still is one.
                unsafe { *self.table.get() = Some(table) };
                self.state.store(MADE, Ordering::Release);
            }
            OUTGROWN => {
                // SAFETY: as above, also when the thread asks meanwhile.
                unsafe { *self.table.get() = None };
                let (now, then) = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = self.state.compare_exchange(OUTGROWN, NONE, now, then); // if it has asked, the next look is for that
            }
            _ => {}
        }
    }
}
