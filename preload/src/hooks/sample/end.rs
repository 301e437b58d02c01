//! End of a sample: its block is freed or resized.
//!
//! The sample is taken out of the table. Its id goes to the writer through the lane of any seat, or
//! through the overflow queue. Then the block is freed (Laws 2 and 4).

use std::ffi::c_void;

use heapprof_core::{Lane, Vacant};

use super::unless_it_panics;
use crate::arch::registers::stack_pointer;
use crate::hooks::probes;
use crate::os::cancellation::DeferredCancellation;
use crate::os::clock::{self, Ticks};
use crate::recording::events::FreeEvent;
use crate::recording::pending_frees;
use crate::recording::sampled_blocks::{self, Spot, TakenSample};
use crate::recording::seats::{self, Seat};
use crate::recording::session::{self, Session};
use crate::state::thread::{self, RunningCode, Thread};
use crate::state::{interval, phase, process};

/// The sample that a block was before it was resized.
pub(crate) enum OldSample {
    /// There is none, or it is back in its place.
    None,
    /// It was taken out of the table.
    Taken(TakenSample),
    /// If there is one, it is still in the table, because the block did not move.
    InTable,
}

impl OldSample {
    /// Records the end of the sample, if there is one. `ptr` is where the block is now.
    #[inline(always)]
    pub(crate) fn end(self, ptr: *mut c_void) {
        if !matches!(self, OldSample::None) {
            self.end_slowly(ptr);
        }
    }

    /// The rest of [`end`](Self::end), out of line: a recorded realloc mostly leaves nothing to
    /// end.
    #[inline(never)]
    fn end_slowly(self, ptr: *mut c_void) {
        match self {
            OldSample::None => {}
            OldSample::Taken(taken) => end_sample(taken),
            OldSample::InTable if sampled_blocks::may_be_sampled(ptr) => on_free(ptr),
            OldSample::InTable => {}
        }
    }
}

/// Records the end of the sample at `ptr`, if there is one. The block is about to be freed, and
/// [`sampled_blocks::may_be_sampled`] has returned true for it.
#[inline(always)]
pub(crate) fn on_free(ptr: *mut c_void) {
    if let Some(taken) = sampled_blocks::take(ptr) {
        end_sample(taken);
    }
}

/// Records the end of a sample.
#[inline(always)]
fn end_sample(taken: TakenSample) {
    if !phase::is_recording() {
        return release_spot(taken.id, taken.vacant);
    }
    let _deferred = DeferredCancellation::begin();
    let thread = thread::current();
    // A free is recorded even inside our own code (in a signal handler that interrupted it):
    // nothing here allocates or locks. Only the flag must be restored. A handler that interrupts
    // this hook finds where it was entered.
    let was_at = thread.entered_at.replace(stack_pointer());
    let outer_code = thread.running_code.replace(RunningCode::Hook);
    end_sample_deferred(thread, taken.id, taken.vacant);
    thread.running_code.set(outer_code);
    thread.entered_at.set(was_at);
}

/// Records the end of sample `id`. Out of line, as [`unless_it_panics`] requires.
#[inline(never)]
extern "C" fn end_sample_deferred(thread: &'static Thread, id: u64, vacant: Vacant) {
    unless_it_panics(|| {
        probes::ended(vacant.address());
        let spot = Spot::of(vacant);
        let at = clock::ticks();
        let session = session::current().filter(|_| !process::is_unprepared_child(thread));
        let Some(session) = session else {
            return pending_frees::push(at, id);
        };
        if thread.session.get() != session.number {
            session.register_thread(thread);
        }
        let free = FreeEvent {
            at,
            id,
            thread: thread.number.get(),
        };
        if let Some(mut seat) = seats::take(thread)
            && let Some(lanes) = session.lanes_of(&seat)
        {
            // The lane last, as in `record`.
            keep_spot(&mut seat, spot);
            session.send_free_in(&lanes.events, free);
        } else {
            session.send_through_overflow(free);
        }
    });
}

/// Gives back the spot of a sample whose end is not recorded.
#[cold]
#[inline(never)]
extern "C" fn release_spot(_id: u64, vacant: Vacant) {
    probes::ended(vacant.address());
    drop(Spot::of(vacant));
}

/// Keeps the spot for the next sample at the same address if everything is recorded. If samples are
/// rare, the kept count would send frees of nearby addresses to the slow path.
#[inline(always)]
pub(super) fn keep_spot(seat: &mut Seat, spot: Spot) {
    if interval::is_exact() {
        seat.keep_spot(spot);
    }
}

/// Sends the end of a sample as a free.
#[inline(never)]
pub(super) fn send_end(session: &Session, lane: &Lane, at: Ticks, thread: &Thread, id: u64) {
    let thread = thread.number.get();
    session.send_free_in(lane, FreeEvent { at, id, thread });
}
