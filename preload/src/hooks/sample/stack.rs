//! Stack of a sample: it is walked, and its frames are sent once.

mod python_stack;

use super::CallSite;
use crate::recording::events::NewStack;
use crate::recording::labels::{self, Labels};
use crate::recording::seat_lanes::SeatLanes;
use crate::recording::seats::{self, Seat};
use crate::recording::session::Session;
use crate::state::thread::Entered;
use crate::unwind::python;
use crate::unwind::walk::{self, WalkStart};
use crate::unwind::walker::{Walked, Walker};

/// Returns the hash of this thread's stack, from a call of the exported function around `entry`.
/// The writer gets the frames. `None`: there was no seat, or no room.
#[cold]
#[inline(never)]
pub(crate) fn stack_of(
    entered: &Entered,
    session: &Session,
    entry: u64,
    here: WalkStart,
) -> Option<u64> {
    let mut seat = seats::take(entered.thread)?;
    let lanes = session.lanes_of(&seat)?;
    let site = CallSite { entry, here };
    walk_stack(entered, session, lanes, &mut seat, site)
}

/// Walks the stack and returns its hash. The writer gets the frames before the caller's record.
/// `None`: there was no room for the frames.
#[inline(always)]
pub(super) fn walk_stack(
    entered: &Entered,
    session: &Session,
    lanes: &SeatLanes,
    seat: &mut Seat,
    CallSite { entry, here }: CallSite,
) -> Option<u64> {
    let (walker, hazard) = seat.parts();
    let walked = walk::walk(entered, walker, hazard, entry, here);
    #[cfg(feature = "verify")]
    walk::verify(entered, walker, hazard, here);
    if python::is_loaded() {
        return python_stack::send(entered, session, lanes, seat, entry, &walked);
    }
    if labels::are_used() {
        return send_labelled_stack(entered, session, lanes, seat, entry, &walked);
    }
    let known = (session.number, walked.hash);
    if walker.known_stack != known {
        if !send_stack_if_new(session, lanes, walker, entry, &walked, &Labels::NONE) {
            return None;
        }
        walker.known_stack = known;
        // A stack unlike the last one mostly has other frames, and only other frames need rules.
        seat.request_rule_growth_if_crowded();
    }
    Some(walked.hash)
}

/// Ends [`walk_stack`] if threads have labels: the hash includes those of this thread.
#[cold]
#[inline(never)]
fn send_labelled_stack(
    entered: &Entered,
    session: &Session,
    lanes: &SeatLanes,
    seat: &mut Seat,
    entry: u64,
    walked: &Walked,
) -> Option<u64> {
    let is_sent = |hash| session.stacks.contains(hash);
    let labels = Labels::of(entered.thread, walked.hash, is_sent);
    let hash = labels.hash_with(walked.hash);
    let (walker, _) = seat.parts();
    let known = (session.number, hash);
    if walker.known_stack != known {
        if !send_stack_if_new(session, lanes, walker, entry, walked, &labels) {
            return None;
        }
        walker.known_stack = known;
        seat.request_rule_growth_if_crowded();
    }
    Some(hash)
}

/// Sends the frames of a stack if the writer does not have them. False: there was no room for them.
#[inline(never)]
fn send_stack_if_new(
    session: &Session,
    lanes: &SeatLanes,
    walker: &mut Walker,
    entry: u64,
    walked: &Walked,
    labels: &Labels,
) -> bool {
    let hash = labels.hash_with(walked.hash);
    if session.stacks.contains(hash) {
        return true;
    }
    let stack = NewStack {
        hash,
        end: walked.end,
        entry,
        labels: labels.words(),
    };
    let is_sent = session.send_stack(&lanes.stacks, &stack, walker.memos.chosen());
    if is_sent {
        session.stacks.insert(hash);
    }
    is_sent
}
