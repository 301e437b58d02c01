//! A second opinion of every walk, in builds for `scripts/verify-walks` alone: framehop, frame by frame, without memos and rules.
//!
//! A walk that differs ends the process, with a line that says where. So does a hash that is not that of the frames.

use std::process::abort;
use std::sync::atomic::{AtomicU64, Ordering};

use framehop::{UnwindRegsNative, Unwinder};
use heapprof_core::{Cursor, Frame, Kind, StackHasher};
use heapprof_format::WalkEnd;

use super::{CONTEXT_ROOT, Here, OWN, SIGNAL_RETURN, place_of_code};
use crate::os::diagnostics::say;
use crate::state::thread::Entered;
use crate::unwind::modules::Hazard;
use crate::unwind::stack_bounds::Readable;
use crate::unwind::walker::Walker;

static VERIFIED: AtomicU64 = AtomicU64::new(0);

/// Compares what the walk from `here` has just found.
pub(crate) fn verify(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    Here(mut place): Here,
) {
    let memo = walker.memos.chosen();
    let found: Vec<Frame> = memo.innermost_first().copied().collect();
    let mut hash = StackHasher::new();
    for (place, frame) in found.iter().rev().enumerate() {
        hash.add(frame.summand_at(place));
    }
    if hash != memo.hash() {
        differs(&found, "its hash is another", None);
    }
    // Of one that was cut or lost its way there is less to say.
    if memo.why_ended() != WalkEnd::Root {
        return;
    }
    let own = OWN[0].load(Ordering::Relaxed)..OWN[1].load(Ordering::Relaxed);
    let mut stack = Readable::around(entered.thread, place.sp);
    let Some(snapshot) = hazard.protect() else {
        return;
    };
    let mut left = found.iter();
    loop {
        if place.returns && place.address == CONTEXT_ROOT.load(Ordering::Relaxed) {
            break;
        }
        let lookup = place.address.wrapping_sub(u64::from(place.returns));
        let module = snapshot.find(lookup);
        if !own.contains(&lookup) {
            let frame = left.next();
            let callers = left.len();
            let is_it = |frame: &&Frame| {
                // A value that makes no difference need not be taken over: whether it does, is seen from the callers.
                let bp = match frame.kind() {
                    Kind::Restores => place.bp,
                    Kind::PassesOn if callers > 0 => place.bp,
                    _ => frame.bp,
                };
                let (address, returns, sp) = (frame.address, frame.returns, frame.sp);
                let found = Cursor {
                    address,
                    returns,
                    sp,
                    bp,
                };
                found == place && frame.module() == module.map_or(0, |it| it.number + 1)
            };
            if frame.filter(is_it).is_none() {
                differs(&found, "framehop has another frame", Some(place));
            }
        }
        if module.is_none() {
            // Whether its caller is to be believed is for the walk to say, and it did.
            let (bp, address) = (stack.word(place.bp), stack.word(place.bp.wrapping_add(8)));
            let (Ok(bp), Ok(address)) = (bp, address) else {
                differs(&found, "the frame pointer leads nowhere", Some(place));
            };
            place = Cursor {
                address,
                returns: true,
                sp: place.bp + 16,
                bp,
            };
            continue;
        }
        let Some(at) = place_of_code(place) else {
            return;
        };
        let mut regs = UnwindRegsNative::new(place.address, place.sp, place.bp);
        entered.thread.rule_wanted_for.set(lookup as u32);
        let read = &mut |address| stack.word(address);
        let caller = snapshot
            .unwinder
            .unwind_frame(at, &mut regs, &mut walker.cache, read);
        match caller {
            Ok(Some(address)) if address == SIGNAL_RETURN.load(Ordering::Relaxed) => return,
            Ok(Some(address)) if address != 0 => {
                place = Cursor {
                    address,
                    returns: true,
                    sp: regs.sp(),
                    bp: regs.bp(),
                };
            }
            _ => break,
        }
    }
    if left.next().is_some() {
        differs(&found, "framehop's is shorter", None);
    }
    let verified = VERIFIED.fetch_add(1, Ordering::Relaxed) + 1;
    if verified.is_power_of_two() {
        say!("{verified} walks verified");
    }
}

fn differs(found: &[Frame], how: &str, place: Option<Cursor>) -> ! {
    say!("a walk differs, {how}: {place:x?}, found {found:x?}");
    abort();
}
