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

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

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
    /// The new one while the state is `MADE`, the old one while it is `OUTGROWN`; else null. The one of the thread that has the seat in the state `MADE`, and of the
    /// writer in `ASKED` and `OUTGROWN`, the latter of which it leaves first. Each leaves a state by a Release, and comes upon the other's by an Acquire.
    table: AtomicPtr<Rules>,
}

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
            table: AtomicPtr::new(ptr::null_mut()),
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
                // SAFETY: this thread has the seat, and in this state the table is its own, and whole.
                if let Some(larger) = unsafe { self.table.load(Ordering::Relaxed).as_mut() } {
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
                let wanted = self.wanted.load(Ordering::Relaxed);
                self.put(Box::into_raw(Box::new(Rules::with_room_for(wanted))));
                self.state.store(MADE, Ordering::Release);
            }
            OUTGROWN => {
                self.put(ptr::null_mut());
                let (now, then) = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = self.state.compare_exchange(OUTGROWN, NONE, now, then); // if it has asked, the next look is for that
            }
            _ => {}
        }
    }

    /// In the writer, whose the table is: puts another in its place, and drops it.
    fn put(&self, table: *mut Rules) {
        let old = self.table.swap(table, Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: made by `Box::into_raw` in `serve`, and by now nobody else's: the swap took it away.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// In a forked child, in its one thread: what there is may be from the middle of anything that the parent's writer did, and is left alone (Law 7). Whose seat
    /// it is may be this very thread, in a signal handler that interrupted it: it goes on with the table that it has, or finds none.
    pub(super) fn after_fork(&self) {
        self.table.store(ptr::null_mut(), Ordering::Relaxed);
        self.state.store(NONE, Ordering::Relaxed);
    }
}
