//! The verification of each walk, only in builds for the script `verify-walks`: a second walk by
//! framehop alone, frame by frame, without memos and rules.
//!
//! A walk that differs ends the process, with a line that names the place. A hash that does not
//! match its frames ends it, too.

use std::process::abort;
use std::sync::atomic::{AtomicU64, Ordering};

use framehop::{UnwindRegsNative, Unwinder};
use heapprof_core::{Cursor, Frame, Kind, StackHasher};
use heapprof_format::WalkEnd;

use super::{WalkStart, place_of_code};
use crate::os::diagnostics::say;
use crate::state::thread::Entered;
use crate::unwind::known_code;
use crate::unwind::modules::Hazard;
use crate::unwind::stack_bounds::ReadableStack;
use crate::unwind::walker::Walker;

static VERIFIED: AtomicU64 = AtomicU64::new(0);

/// Compares the result of the last walk, which began at `start`, with framehop's.
pub(crate) fn verify(
    entered: &Entered,
    walker: &mut Walker,
    hazard: &Hazard,
    WalkStart(mut place): WalkStart,
) {
    let memo = walker.memos.chosen();
    let found: Vec<Frame> = memo.innermost_first().copied().collect();
    let mut hash = StackHasher::new();
    for (place, frame) in found.iter().rev().enumerate() {
        hash.add(frame.summand_at(place));
    }
    if hash != memo.hash() {
        report_difference(&found, "its hash is another", None);
    }
    // A truncated or failed walk is not compared further.
    if memo.why_ended() != WalkEnd::Root {
        return;
    }
    let own = known_code::own();
    let mut stack = ReadableStack::around(entered.thread, place.sp);
    let Some(snapshot) = hazard.protect() else {
        return;
    };
    let mut left = found.iter();
    loop {
        if place.returns && place.address == known_code::context_root() {
            break;
        }
        let lookup = place.address.wrapping_sub(u64::from(place.returns));
        let module = snapshot.find(lookup);
        if !own.contains(&lookup) {
            let frame = left.next();
            let callers = left.len();
            let is_it = |frame: &&Frame| {
                // A frame pointer that no caller depends on need not be taken over. The callers'
                // frames show whether one depends on it.
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
                report_difference(&found, "framehop has another frame", Some(place));
            }
        }
        if module.is_none() {
            // The walk itself has decided whether to trust this caller.
            let (bp, address) = (stack.word(place.bp), stack.word(place.bp.wrapping_add(8)));
            let (Ok(bp), Ok(address)) = (bp, address) else {
                report_difference(&found, "the frame pointer leads nowhere", Some(place));
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
            Ok(Some(address)) if address == known_code::signal_return() => return,
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
        report_difference(&found, "framehop's is shorter", None);
    }
    let verified = VERIFIED.fetch_add(1, Ordering::Relaxed) + 1;
    if verified.is_power_of_two() {
        say!("{verified} walks verified");
    }
}

fn report_difference(found: &[Frame], how: &str, place: Option<Cursor>) -> ! {
    say!("a walk differs, {how}: {place:x?}, found {found:x?}");
    abort();
}
