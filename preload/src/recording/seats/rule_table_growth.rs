//! Rule table growth: a larger table of unwind rules for a walker, made by the writer.
//!
//! Danger: ownership of a table goes from one thread to another and back.
//!
//! Model: the thread that has the seat requests a table, and the writer makes it, because a hook
//! must not allocate that much: it may run on a small stack. The thread moves its rules there,
//! which happens a few times in the life of a walker. It leaves the outgrown table for the writer
//! to drop. So neither thread waits for the other, and the writer does not need the seat: in a
//! program that does little but walk, it is rarely free.
//!
//! ```text
//!  NONE ──thread──> REQUESTED ──writer──> MADE ──thread──> OUTGROWN ──writer──> NONE
//!                     ↑                                   │
//!                     └──────────────thread───────────────┘
//! ```

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use heapprof_core::Rules;

const NONE: u8 = 0;
const REQUESTED: u8 = 1;
const MADE: u8 = 2;
const OUTGROWN: u8 = 3;

/// The growth of one seat's rule table.
pub(super) struct TableGrowth {
    state: AtomicU8,
    /// How many rules the new table must have room for.
    wanted: AtomicUsize,
    /// The new table in the state `MADE`, the outgrown one in `OUTGROWN`, else null. It belongs to
    /// the thread that has the seat in the state `MADE`, and to the writer in `REQUESTED` and
    /// `OUTGROWN`. In `OUTGROWN`, the writer takes the table before it leaves the state. Each side
    /// leaves a state by a Release, and observes the other's by an Acquire.
    table: AtomicPtr<Rules>,
}

/// The result of a request.
pub(super) enum GrowthOutcome {
    /// The request is new: the writer must be woken.
    Requested,
    /// The rules have moved to the larger table.
    Moved,
    /// The writer has not made the table yet.
    Pending,
}

impl TableGrowth {
    pub(super) const fn new() -> TableGrowth {
        TableGrowth {
            state: AtomicU8::new(NONE),
            wanted: AtomicUsize::new(0),
            table: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Requests room for so many rules, or moves `rules` if the table is there. Called by the
    /// thread that has the seat.
    pub(super) fn request(&self, wanted: usize, rules: &mut Rules) -> GrowthOutcome {
        match self.state.load(Ordering::Acquire) {
            NONE | OUTGROWN => {
                self.wanted.store(wanted, Ordering::Relaxed);
                self.state.store(REQUESTED, Ordering::Release);
                GrowthOutcome::Requested
            }
            MADE => {
                // SAFETY: this thread has the seat, and in this state the table is its own, and
                // complete.
                if let Some(larger) = unsafe { self.table.load(Ordering::Relaxed).as_mut() } {
                    rules.move_to(larger);
                }
                self.state.store(OUTGROWN, Ordering::Release);
                GrowthOutcome::Moved
            }
            _ => GrowthOutcome::Pending,
        }
    }

    /// Makes the requested table, or drops the outgrown one. Called by the writer.
    pub(super) fn advance_in_writer(&self) {
        match self.state.load(Ordering::Acquire) {
            REQUESTED => {
                let wanted = self.wanted.load(Ordering::Relaxed);
                self.replace_table(Box::into_raw(Box::new(Rules::with_room_for(wanted))));
                self.state.store(MADE, Ordering::Release);
            }
            OUTGROWN => {
                self.replace_table(ptr::null_mut());
                let (now, then) = (Ordering::AcqRel, Ordering::Relaxed);
                // If this fails, the thread has requested another table, which the next round
                // makes.
                let _ = self.state.compare_exchange(OUTGROWN, NONE, now, then);
            }
            _ => {}
        }
    }

    /// Replaces the table and drops the old one. Called by the writer, in a state in which it owns
    /// the table.
    fn replace_table(&self, table: *mut Rules) {
        let old = self.table.swap(table, Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: made by `Box::into_raw` in `advance_in_writer`. No other thread has it any
            // more: the swap took it away.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// After a recording: drops the table. No hook runs. Called by the writer.
    #[cfg(feature = "attach")]
    pub(super) fn release(&self) {
        self.replace_table(ptr::null_mut());
        self.state.store(NONE, Ordering::Relaxed);
    }

    /// Forgets the table in a forked child. The parent's writer may have been building it at the
    /// moment of the fork, so the child drops the pointer and leaks the table (Law 7). If a signal
    /// handler forked while this thread was using the table, the thread keeps its own pointer or
    /// finds none.
    pub(super) fn after_fork(&self) {
        self.table.store(ptr::null_mut(), Ordering::Relaxed);
        self.state.store(NONE, Ordering::Relaxed);
    }
}
