//! Stack of a sample in a process with Python: the frames of Python functions stand among the
//! native ones, behind the C frames that run them.
//!
//! They are part of the hash of the stack: the same native frames under other functions or lines
//! are another stack. A frame names its code object by a hash. The writer gets what the code object
//! says of itself once through each lane, before the first stack of the lane that names it. A set
//! for all lanes would not do: the writer may take the stack from one lane before the code object
//! comes out of the other.

use heapprof_core::{Merged, NativeFrame, hash_of_python};

use crate::recording::events::NewStack;
use crate::recording::labels::{self, Labels};
use crate::recording::seat_lanes::SeatLanes;
use crate::recording::seats::Seat;
use crate::recording::session::Session;
use crate::state::thread::Entered;
use crate::unwind::python::ThreadFrames;
use crate::unwind::walker::{self, Walked, Walker};

/// Returns the hash of this thread's stack, whose native frames are walked. The writer gets the
/// frames before the caller's record. `None`: there was no room for the frames.
#[cold]
#[inline(never)]
pub(super) fn send(
    entered: &Entered,
    session: &Session,
    lanes: &SeatLanes,
    seat: &mut Seat,
    entry: u64,
    walked: &Walked,
) -> Option<u64> {
    let number = seat.number() as u64;
    let walker = seat.walker();
    let Walker {
        python,
        memos,
        known_stack,
        ..
    } = walker;
    let mut found = python.read(walker::depth() - 1); // without the allocation function
    let mut frames_hash = walked.hash ^ found.as_ref().map_or(0, |it| hash_of_python(it.frames));
    let labels = |frames| match labels::are_used() {
        true => Labels::of(entered.thread, frames, |hash| session.stacks.contains(hash)),
        false => Labels::NONE,
    };
    let mut of_thread = labels(frames_hash);
    if *known_stack == (session.number, of_thread.hash_with(frames_hash)) {
        return Some(known_stack.1);
    }
    let mut is_known = session.stacks.contains(of_thread.hash_with(frames_hash));
    if !is_known
        && let Some(it) = &mut found
        && !send_codes(session, lanes, number, it)?
    {
        // Without the Python frames, it is the stack of the native ones.
        found = None;
        frames_hash = walked.hash;
        of_thread = labels(frames_hash);
        is_known = session.stacks.contains(of_thread.hash_with(frames_hash));
    }
    let hash = of_thread.hash_with(frames_hash);
    if !is_known {
        let stack = NewStack {
            hash,
            end: walked.end,
            entry,
            labels: of_thread.words(),
        };
        let native = memos.chosen().innermost_first().map(|frame| NativeFrame {
            address: frame.address,
            is_exact: !frame.returns,
            sp: frame.sp,
        });
        let (python, eval) = match &found {
            Some(found) => (found.frames, found.eval()),
            None => (&[][..], 0..0),
        };
        let merged = Merged::new(native, python, eval);
        if !session.send_frames(&lanes.stacks, &stack, merged) {
            return None;
        }
        session.stacks.insert(hash);
    }
    *known_stack = (session.number, hash);
    seat.request_rule_growth_if_crowded();
    Some(hash)
}

/// Sends what the code objects of the frames say of themselves, if the lane has not had it.
/// Returns false if one of them cannot be read. `None`: there was no room.
fn send_codes(
    session: &Session,
    lanes: &SeatLanes,
    number: u64,
    found: &mut ThreadFrames<'_>,
) -> Option<bool> {
    for frame in found.frames {
        let in_lane = frame.identity ^ (number + 1).wrapping_mul(LANE_FACTOR);
        if session.stacks.contains(in_lane) {
            continue;
        }
        let Some(words) = found.code_words(frame) else {
            return Some(false);
        };
        if !session.send_code(&lanes.stacks, frame.identity, words) {
            return None;
        }
        session.stacks.insert(in_lane);
    }
    Some(true)
}

/// Spreads the numbers of lanes over all bits of a hash (2^64 divided by the golden ratio).
const LANE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
