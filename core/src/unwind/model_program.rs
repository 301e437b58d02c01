//! For tests: a program that has called some functions, with its stack in memory, and a walker for
//! it.
//!
//! The address of a function alone determines its frame, as in an unwind table.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::unwind::frame::Frame;
use crate::unwind::kinds::{Cursor, Words};
use crate::unwind::memo::{Memo, MemoHit};
use crate::unwind::rules::{Rule, Rules};
use crate::unwind::stack_hash::StackHasher;

/// Return address of signal handlers in the programs of these tests.
pub(crate) const NEVER: u64 = 0x666;
/// Return address of the outermost function.
pub(crate) const ROOT: u64 = 0;
pub(crate) const TOP: u64 = 0x7000_0000;
/// Distances from a function's first call to its second, and to its third.
pub(crate) const KNOWN: u64 = 8;
pub(crate) const UNKNOWN: u64 = 16;

/// Returns the module of an address.
fn module(address: u64) -> u32 {
    1 + (address >> 8) as u32 % 4
}

pub(crate) fn frame(at: Cursor) -> Frame {
    Frame::new(at.address, at.returns, at.sp, at.bp, module(at.address))
}

/// Returns the [`rule`]s of two calls in each function. The third call ([`UNKNOWN`]) has none.
pub(crate) fn rules() -> Rules {
    let mut rules = Rules::with_room_for(1024);
    let places = (0..32u64).flat_map(|function| [0, 1, 8, 9].map(|place| function << 8 | place));
    for address in places {
        let (size, saves, by_register) = rule(address);
        let rule = Rule::ask(module(address), |sp, bp, word| {
            let cfa = if by_register {
                bp + 16
            } else {
                sp + 8 * (size + 2)
            };
            let bp = if saves || by_register {
                word(cfa - 16)
            } else {
                bp
            };
            Some(Cursor {
                address: word(cfa - 8),
                returns: true,
                sp: cfa,
                bp,
            })
        });
        rules.insert(address, rule);
    }
    rules
}

/// A stack in memory, and the registers of its innermost function.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) words: BTreeMap<u64, u64>,
    pub(crate) at: Cursor,
}

/// Returns the frame of the function at an address: its size in words, whether the frame pointer is
/// saved in it, and whether it is found by that register.
pub(crate) fn rule(address: u64) -> (u64, bool, bool) {
    let function = address >> 8;
    (
        1 + function % 5,
        function.is_multiple_of(3),
        function.is_multiple_of(7),
    )
}

impl Program {
    /// Builds a program in which each function calls the next; the outermost is first. A call is an
    /// address, and the value that the function sets in the frame pointer's register, if any.
    pub(crate) fn new(calls: &[(u64, Option<u64>)]) -> Program {
        let (mut words, mut sp, mut bp) = (BTreeMap::new(), TOP, 0);
        let mut caller = ROOT;
        for &(address, sets) in calls {
            let (size, saves, by_register) = rule(address);
            sp -= 8;
            words.insert(sp, caller);
            let cfa = sp + 8;
            if saves || by_register {
                words.insert(sp - 8, bp);
            }
            sp -= 8 * (size + 1);
            for place in (sp..cfa - 16).step_by(8) {
                words.insert(place, 0x1234); // the function's own word
            }
            if by_register {
                bp = cfa - 16;
            } else if saves {
                bp = sets.unwrap_or(bp);
            }
            caller = address;
        }
        let at = Cursor {
            address: caller,
            returns: true,
            sp,
            bp,
        };
        Program { words, at }
    }

    /// Returns the caller of `at`, and notes every word that tells it.
    fn caller(&self, at: Cursor, frame: &mut Frame) -> Option<Cursor> {
        let mut word = |place: u64| {
            let value = self.words.get(&place).copied();
            frame.note(place, value.unwrap_or_default());
            value
        };
        let (size, saves, by_register) = rule(at.address);
        let cfa = match by_register {
            true => at.bp + 16,
            false => at.sp + 8 * (size + 2),
        };
        let bp = match saves || by_register {
            true => word(cfa - 16)?,
            false => at.bp,
        };
        let address = word(cfa - 8)?;
        let caller = Cursor {
            address,
            returns: true,
            sp: cfa,
            bp,
        };
        (address != ROOT).then_some(caller)
    }

    pub(crate) fn hold(&self, words: Words<'_>) -> bool {
        words.words.iter().all(|word| {
            assert!(words.start <= word.at && word.at + 8 <= words.end);
            self.words.get(&word.at) == Some(&word.value)
        })
    }

    pub(crate) fn is_repeated(
        &self,
        memo: &mut Memo<&'static str>,
        era: u32,
        limit: usize,
    ) -> bool {
        memo.is_repeated(era, &frame(self.at), limit, &rules(), |place| {
            self.words.get(&place).copied()
        })
    }

    /// Walks as the preloaded library does. Returns the number of frames that were unwound.
    pub(crate) fn walk(&self, memo: &mut Memo<&'static str>, limit: usize) -> usize {
        let (mut fresh, mut at, mut unwound) = (Vec::new(), self.at, 0);
        if self.is_repeated(memo, 1, limit) {
            return 0;
        }
        memo.begin(1);
        let rules = rules();
        loop {
            let mut frame = frame(at);
            if memo.depth(&fresh) + 1 >= limit {
                memo.end(&mut fresh, "too deep", false);
                return unwound;
            }
            let read = |place: u64| self.words.get(&place).copied();
            match memo.look_up(&frame, &mut fresh, limit, NEVER, &rules, read) {
                MemoHit::Full => return unwound,
                MemoHit::Partial(next) => {
                    at = next;
                    continue;
                }
                MemoHit::None => {}
            }
            unwound += 1;
            let by_rule = rules
                .get(at.address)
                .and_then(|rule| frame.unwind(rule, read));
            let caller = by_rule.or_else(|| self.caller(at, &mut frame));
            fresh.push(frame);
            match caller {
                Some(caller) => at = caller,
                None => {
                    memo.end(&mut fresh, "root", true);
                    return unwound;
                }
            }
        }
    }
}

pub(crate) fn memo() -> Memo<&'static str> {
    Memo::with_room_for(40, "none")
}

/// The register is included where it matters.
pub(crate) type Found = (u64, u64, Option<u64>);

pub(crate) fn found(memo: &Memo<&'static str>) -> (Vec<Found>, StackHasher, &'static str) {
    let frames = memo.innermost_first();
    let frames = frames.map(|frame| {
        let (_, saves, by_register) = rule(frame.address);
        let matters = by_register || !saves;
        (frame.address, frame.sp, matters.then_some(frame.bp))
    });
    (frames.collect(), memo.hash(), memo.why_ended())
}

/// Addresses of few functions, each with three calls.
pub(crate) fn call() -> impl Strategy<Value = (u64, Option<u64>)> {
    let address = (1..9u64, 0..3u64).prop_map(|(function, place)| function << 8 | place << 3 | 1);
    (address, prop::option::of(0x9000..0x9003u64))
}

/// Functions without a frame pointer. The fifth of ten calls at `place`, the others at their first
/// call.
pub(crate) fn ten(place: u64) -> Program {
    let call = |i: u64| (0x100 + (i == 4) as u64 * place, None);
    Program::new(&(0..10).map(call).collect::<Vec<_>>())
}

/// Functions that find their frame by the register, save it, or ignore it; the last is innermost.
pub(crate) fn functions(functions: &[u64]) -> Program {
    let calls = functions.iter().map(|function| (function << 8, None));
    Program::new(&calls.collect::<Vec<_>>())
}
