//! Memo: the frames of a recent walk, which the next walk from the same place mostly has in common
//! with it.
//!
//! Glossary: memo.
//!
//! Model: unwinding from a frame outwards is a function of the frame's registers and of the stack
//! words that it reads. The memo keeps both for each frame. Suppose that a later walk arrives at
//! the same address, stack pointer and frame pointer. If every word that was read from there on
//! still has its value, the rest of the walk is the same, and is not repeated. This is exact: the
//! result is that of a whole walk.
//!
//! ```text
//!  this walk   leaf2 ── mid2 ──┐
//!  memo        leaf1 ── mid1 ──┴─ handler ── loop ── main ── _start
//!                                 ^ same registers, same words from here on
//! ```
//!
//! If the words of one frame changed, the walk goes on there, and may reach the memo again behind
//! that frame. But most changes need no unwinding at all:
//!
//! - The word just below the caller's stack pointer is the return address. It tells where the
//!   caller is and nothing else, so the caller's other registers stay. Mostly the new address is
//!   another call in the same function, and its rule ([`Rules`]) is the same. Then the caller leads
//!   to its own caller as before, and only its address is new.
//! - Most functions use the frame pointer's register for other values, so it and the word where it
//!   is saved change all the time. A change makes no difference if each caller passes the register
//!   on, up to one that restores its own caller's value and finds that by the stack pointer.
//!
//! Frames are kept root first. New frames of a walk replace the last walk's frames at the same
//! places. Common frames stay where they are, and nothing is copied.
//!
//! Not here: reading memory, rules, modules. The caller reads the words and gives the era of loaded
//! code.

use crate::unwind::frame::{ChangedWords, Frame};
use crate::unwind::kinds::{Cursor, Kind};
use crate::unwind::rules::Rules;
use crate::unwind::stack_hash::StackHasher;

/// The part of a walk, from a frame outwards, that the memo knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoHit {
    /// No frame.
    None,
    /// All frames: the walk is over.
    Full,
    /// Some frames, which are now part of this walk. It goes on at this place.
    Partial(Cursor),
}

/// See the module's text. `E` is the reason of a walk's end.
#[derive(Debug)]
pub struct Memo<E> {
    /// Frames, root first: up to `open` those of the last walk, then those of the current walk.
    frames: Vec<Frame>,
    /// Most frames without an allocation.
    room: usize,
    open: usize,
    /// Frames, from the root, that the current walk may still reuse.
    reusable: usize,
    hash: StackHasher,
    end: E,
    era: u32,
    /// True if the last walk can be reused: it came to its end. A walk that is cut for its length
    /// is cut elsewhere the next time.
    is_whole: bool,
    /// True if a frame was updated in the last [`is_repeated`](Self::is_repeated).
    is_updated: bool,
}

impl<E: Copy> Memo<E> {
    /// Returns an empty memo. It never allocates for walks of up to `room` frames.
    #[must_use]
    pub fn with_room_for(room: usize, end: E) -> Memo<E> {
        Memo {
            frames: Vec::with_capacity(room),
            room,
            open: 0,
            reusable: 0,
            hash: StackHasher::new(),
            end,
            era: 0,
            is_whole: false,
            is_updated: false,
        }
    }

    /// Copies the walk of `other`, which has the same room.
    pub(crate) fn copy_from(&mut self, other: &Memo<E>) {
        self.frames.clear();
        self.frames.extend_from_slice(&other.frames);
        (self.hash, self.end) = (other.hash, other.end);
        (self.era, self.is_whole) = (other.era, other.is_whole);
    }

    /// Returns the last walk's frames, root first, if it was repeated without a change.
    pub(crate) fn unchanged(&self) -> Option<&[Frame]> {
        (!self.is_updated).then_some(&self.frames)
    }

    /// Returns the number of frames of the last walk.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Begins a walk. The last walk is forgotten if it was in another era (code may have changed)
    /// or was broken off.
    pub fn begin(&mut self, era: u32) {
        let is_whole = std::mem::replace(&mut self.is_whole, false);
        if self.era != era || !is_whole {
            self.frames.clear();
            self.hash = StackHasher::new();
            self.era = era;
        }
        self.open = self.frames.len();
        self.reusable = self.open;
    }

    /// Returns true if a walk that begins at the frame `at` would find all frames of the last walk
    /// again. This check is then all that the walk costs.
    ///
    /// Two kinds of difference are ignored, and stored in the memo: a return address at another
    /// call in the same function, and a frame pointer on which no frame depends. A walk of `limit`
    /// frames is cut off, elsewhere each time, and is never repeated.
    ///
    /// `word` reads the stack.
    #[inline]
    #[must_use]
    pub fn is_repeated(
        &mut self,
        era: u32,
        at: &Frame,
        limit: usize,
        rules: &Rules,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        if !self.is_whole || self.era != era || self.frames.len() >= limit {
            return false;
        }
        self.is_updated = false;
        let count = self.frames.len();
        self.continues_at(count, at) && self.follow(count, rules, &mut word) == 0
    }

    /// Follows the outermost `count` frames outwards from the innermost of these, while each leads
    /// to its caller as before. Returns the number of frames that remain. Harmless changes are
    /// stored in the memo.
    ///
    /// At every moment each frame leads to the next by its words, even if memory has other values
    /// now. So a memo stays valid if the walk breaks off.
    #[inline(always)]
    fn follow(
        &mut self,
        count: usize,
        rules: &Rules,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> usize {
        let mut left = count;
        loop {
            for frame in self.frames[..left].iter().rev() {
                if !frame.still_holds(word) {
                    break;
                }
                left -= 1;
            }
            if left == 0 || !self.update_frame(left - 1, rules, word) {
                return left;
            }
            left -= 1;
        }
    }

    /// Returns true if a walk at the frame `at` goes on as from the innermost of the outermost
    /// `count` frames, without a look at memory. The register's value is stored.
    #[inline(always)]
    fn continues_at(&mut self, count: usize, at: &Frame) -> bool {
        let Some(frame) = self.frames[..count].last() else {
            return false;
        };
        frame.is_at(at) && (frame.bp == at.bp || self.accepts_register(count, at.bp))
    }

    /// Returns true if another register value makes no difference in the innermost of the outermost
    /// `count` frames, and stores it. The register must reach, if any, a frame that does not depend
    /// on it.
    #[inline(never)]
    fn accepts_register(&mut self, count: usize, bp: u64) -> bool {
        let mut last = count;
        loop {
            let (frame, callers) = match self.frames[..last].split_last() {
                Some((frame, callers)) => (frame, callers),
                None => return false,
            };
            last -= 1;
            match (frame.kind, callers.last()) {
                (Kind::Restores, _) => break,
                (Kind::PassesOn, Some(caller)) if frame.returns_to(caller).is_some() => {}
                _ => return false,
            }
        }
        for frame in &mut self.frames[last..count] {
            frame.bp = bp;
        }
        true
    }

    /// Updates the frame `changed` and its caller, if the change only moves the caller to an
    /// address from which it leads on as before. Returns true if it does.
    #[inline(never)]
    fn update_frame(
        &mut self,
        changed: usize,
        rules: &Rules,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        let Some(changed_words) = self.read_changed(changed, word) else {
            return false;
        };
        let caller = &self.frames[changed - 1];
        let rule = match changed_words.address == caller.address {
            true => None,
            false => match rules.get(changed_words.address) {
                Some(rule) if caller.leads_on_by(rule) => Some(rule),
                _ => return false,
            },
        };
        if let Some(saved) = changed_words.saved
            && !self.accepts_register(changed, saved)
        {
            return false;
        }
        if let Some(rule) = rule {
            let caller = &mut self.frames[changed - 1];
            caller.move_to(changed_words.address, rule);
            let summand = caller.summand_at(changed - 1);
            self.hash.take(caller.summand);
            self.hash.add(summand);
            caller.summand = summand;
        }
        self.frames[changed].put(changed_words);
        self.is_updated = true;
        true
    }

    /// Returns the words of a frame that tell the caller's address and register, if no other word
    /// changed.
    #[inline(always)]
    fn read_changed(
        &self,
        changed: usize,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<ChangedWords> {
        match self.frames.get(changed.checked_sub(1)?..=changed)? {
            [caller, frame] => frame.read_changed(caller, word),
            _ => None,
        }
    }

    /// Stops the reuse of frames in the current walk: its stack pointers are no longer in order.
    pub fn stop_reuse(&mut self) {
        self.reusable = 0;
    }

    /// Returns the number of frames of the current walk, with the `fresh` ones.
    #[inline]
    #[must_use]
    pub fn depth(&self, fresh: &[Frame]) -> usize {
        self.frames.len() - self.open + fresh.len()
    }

    /// Looks for the part of the memo that a walk at the frame `at` has in common with it.
    ///
    /// If there is one, the `fresh` frames (innermost first) and the common ones become part of the
    /// memo, and the walk goes on as the result says. The walk's frames have to stay below `limit`.
    ///
    /// `word` reads the stack. `never` is the return address of signal handlers: the caller of this
    /// function finds the frames behind it.
    #[inline]
    pub fn look_up(
        &mut self,
        at: &Frame,
        fresh: &mut Vec<Frame>,
        limit: usize,
        never: u64,
        rules: &Rules,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> MemoHit {
        while self.reusable > 0 && self.frames[self.reusable - 1].sp < at.sp {
            self.reusable -= 1;
        }
        let count = self.reusable;
        if !self.continues_at(count, at) {
            return MemoHit::None;
        }
        // The place of a cut depends on each frame, and the rest of the last walk would count too.
        if self.depth(fresh) + count >= limit.min(self.room + 1) {
            return MemoHit::None;
        }
        let left = self.follow(count, rules, &mut word);
        let Some(changed) = left.checked_sub(1) else {
            self.settle(count, fresh);
            self.open = 0;
            self.is_whole = true;
            return MemoHit::Full;
        };
        if let Some(changed_words) = self.read_changed(changed, &mut word)
            && changed_words.address != never
        {
            self.frames[changed].put(changed_words);
            self.settle(count, fresh);
            self.open = changed;
            self.reusable = changed;
            let caller = &self.frames[changed - 1];
            return MemoHit::Partial(Cursor {
                address: changed_words.address,
                returns: true,
                sp: caller.sp,
                bp: changed_words.saved.unwrap_or(caller.bp),
            });
        }
        if left == count {
            return MemoHit::None;
        }
        self.settle(count, fresh);
        self.open = left;
        self.reusable = left;
        let next = &self.frames[changed];
        MemoHit::Partial(Cursor {
            address: next.address,
            returns: next.returns,
            sp: next.sp,
            bp: next.bp,
        })
    }

    /// Puts the `fresh` frames (innermost first) in place of the last walk's frames from `keep` on.
    #[inline]
    fn settle(&mut self, keep: usize, fresh: &mut Vec<Frame>) {
        if keep == self.open && fresh.is_empty() {
            return; // all frames are in place
        }
        self.replace(keep, fresh);
    }

    fn replace(&mut self, keep: usize, fresh: &mut Vec<Frame>) {
        let old = keep..self.open;
        if old.len() == fresh.len() {
            let places = old.clone().zip(&mut self.frames[old]);
            for ((place, frame), new) in places.zip(fresh.iter().rev()) {
                self.hash.take(frame.summand);
                *frame = *new;
                frame.summand = frame.summand_at(place);
                self.hash.add(frame.summand);
            }
        } else {
            // Frames above it move, and their contributions to the hash change.
            for frame in &self.frames[keep..] {
                self.hash.take(frame.summand);
            }
            self.frames.splice(old, fresh.iter().rev().copied());
            for (place, frame) in self.frames.iter_mut().enumerate().skip(keep) {
                frame.summand = frame.summand_at(place);
                self.hash.add(frame.summand);
            }
        }
        debug_assert!(self.frames.len() <= self.room);
        fresh.clear();
        self.open = keep;
    }

    /// Ends a walk that reached its own end: the `fresh` frames (innermost first) are its
    /// outermost. `is_whole` is false if it was cut for its length.
    pub fn end(&mut self, fresh: &mut Vec<Frame>, end: E, is_whole: bool) {
        self.settle(0, fresh);
        self.end = end;
        self.is_whole = is_whole;
    }

    /// Returns the reason of the walk's end.
    pub fn why_ended(&self) -> E {
        self.end
    }

    /// Returns the sum over all frames.
    pub fn hash(&self) -> StackHasher {
        self.hash
    }

    /// Returns the frames, innermost first.
    pub fn innermost_first(&self) -> impl ExactSizeIterator<Item = &Frame> + Clone {
        self.frames.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::unwind::model_program::{
        KNOWN, NEVER, Program, ROOT, TOP, UNKNOWN, call, found, frame, functions, memo, rule,
        rules, ten,
    };
    use crate::unwind::rules::Rule;

    proptest! {
        // Many cases: an error may need three walks of a kind.
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 4000 }))]

        /// Stacks that differ by some calls: each walk finds the frames of a walk without a memo.
        #[test]
        fn a_walk_with_a_memo_is_the_walk(
            first in prop::collection::vec(call(), 1..30),
            changes in prop::collection::vec(
                prop::collection::vec((any::<prop::sample::Index>(), call(), 0..7u8), 0..4), 1..12),
            limit in 3..40usize,
        ) {
            let mut calls = first;
            let mut memo = memo();
            for changes in changes {
                for (place, call, what) in changes {
                    let place = place.index(calls.len());
                    match what {
                        0 => calls.insert(place, call),
                        1 if calls.len() > 1 => { calls.remove(place); }
                        // Another call in the same function, which changes only the return address.
                        2 => calls[place].0 ^= 8,
                        // Another value of the register.
                        3 | 4 => calls[place].1 = call.1,
                        // Another function with a frame as large, or the old one again.
                        5 => {
                            let (function, rest) = (calls[place].0 >> 8, calls[place].0 & 0xff);
                            calls[place].0 = (function + 5 - function / 6 * 10) << 8 | rest;
                        }
                        _ => calls[place] = call,
                    }
                }
                let program = Program::new(&calls);
                program.walk(&mut memo, limit);
                let mut without = crate::unwind::model_program::memo();
                program.walk(&mut without, limit);
                prop_assert_eq!(found(&memo), found(&without));
                let depth = calls.len().min(limit - 1);
                prop_assert_eq!(found(&memo).0.len(), depth);
            }
        }
    }

    #[test]
    fn only_what_changed_is_unwound() {
        let mut memo = memo();
        assert!(!ten(0).is_repeated(&mut memo, 1, 100));
        assert_eq!(ten(0).walk(&mut memo, 100), 10);
        assert!(ten(0).is_repeated(&mut memo, 1, 100));
        assert!(!ten(0).is_repeated(&mut memo, 1, 10), "it would be cut");
        assert_eq!(ten(0).walk(&mut memo, 100), 0);
        // The frame that is called from elsewhere is not unwound; its caller at the new address is.
        assert!(!ten(UNKNOWN).is_repeated(&mut memo, 1, 100));
        assert_eq!(ten(UNKNOWN).walk(&mut memo, 100), 1);
        assert_eq!(ten(0).walk(&mut memo, 100), 1);
        // Neither frame is unwound if the caller's rule is known.
        for place in [KNOWN, 0] {
            assert!(ten(place).is_repeated(&mut memo, 1, 100));
            assert_is_the_walk(&mut memo, &ten(place));
        }
    }

    #[test]
    fn a_caller_whose_rule_is_another_is_unwound() {
        // A frame as large that saves the register, and a larger frame.
        for other in [6, 2] {
            let (mut memo, program) = (memo(), functions(&[1, 1, 11, 1, 1]));
            program.walk(&mut memo, 100);
            let mut program = functions(&[1, 1, other, 1, 1]);
            assert!(!program.is_repeated(&mut memo, 1, 100));
            assert_is_the_walk(&mut memo, &program);
            program.at.bp += 8;
            assert_is_the_walk(&mut memo, &program);
        }
    }

    /// Compares the memo with a walk without one.
    #[track_caller]
    fn assert_is_the_walk(memo: &mut Memo<&'static str>, program: &Program) {
        program.walk(memo, 100);
        let mut without = crate::unwind::model_program::memo();
        program.walk(&mut without, 100);
        assert_eq!(found(memo), found(&without));
    }

    #[test]
    fn a_register_that_does_not_matter_may_be_any() {
        let (mut memo, mut program) = (memo(), functions(&[1, 1, 1, 3]));
        program.walk(&mut memo, 100);
        program.at.bp = 0x9001;
        assert!(program.is_repeated(&mut memo, 1, 100));
        // Also if the saved value differs, which the caller does not need either.
        let saved = program.at.sp + 8 * rule(3 << 8).0;
        *program.words.get_mut(&saved).unwrap() += 1;
        assert_is_the_walk(&mut memo, &program);
        program.at.bp = 0x9002;
        assert!(program.is_repeated(&mut memo, 1, 100));
        // At a place without a known rule it may matter.
        program.at.address += UNKNOWN;
        program.walk(&mut memo, 100);
        program.at.bp = 0x9003;
        assert!(!program.is_repeated(&mut memo, 1, 100));
    }

    #[test]
    fn a_register_that_is_passed_on_matters() {
        let (mut memo, mut program) = (memo(), functions(&[1, 7, 1, 4]));
        for bp in 0x9001..0x9005 {
            program.at.bp = bp;
            assert!(!program.is_repeated(&mut memo, 1, 100));
            program.walk(&mut memo, 100);
        }
    }

    #[test]
    fn a_register_that_is_passed_on_to_one_that_restores_it_may_be_any() {
        let (mut memo, mut program) = (memo(), functions(&[1, 7, 3, 1, 4]));
        program.walk(&mut memo, 100);
        for bp in 0x9001..0x9005 {
            program.at.bp = bp;
            assert!(program.is_repeated(&mut memo, 1, 100));
            assert_is_the_walk(&mut memo, &program);
        }
    }

    #[test]
    fn a_register_is_not_passed_on_over_frames_that_are_not_there() {
        // The outer frame restores the register. Frames in between, which are not recorded, may
        // have had another value in it.
        for between in [0, 16] {
            let (passes, restores) = (0x400, 0x300);
            let words = [
                (TOP, restores + between),
                (TOP + 8, 0x9000),
                (TOP + 16, ROOT),
            ];
            let words: BTreeMap<u64, u64> = words.into();
            let read = |place: u64| words.get(&place).copied();
            let mut at = Frame::new(passes, true, TOP - 8, 0x9001, 1);
            let mut outer = Frame::new(restores, true, TOP + 8, 0x9001, 1);
            let mut fresh = Vec::new();
            let asked = |up: u64, saved: Option<u64>| {
                Rule::ask(1, |sp, bp, word| {
                    Some(Cursor {
                        address: word(sp + up - 8),
                        returns: true,
                        sp: sp + up,
                        bp: saved.map_or(bp, |saved| word(sp + saved)),
                    })
                })
            };
            assert!(at.unwind(asked(16, None), read).is_some());
            let whole = BTreeMap::from([(TOP + 8, 0x9000), (TOP + 16, 1)]);
            assert!(
                outer
                    .unwind(asked(16, Some(0)), |place| whole.get(&place).copied())
                    .is_some()
            );
            fresh.extend([at, outer]);
            let mut memo = memo();
            memo.begin(1);
            memo.end(&mut fresh, "root", true);
            at.bp = 0x9002;
            let read =
                |place: u64| read(place).map(|word| if place == TOP + 16 { 1 } else { word });
            assert_eq!(memo.is_repeated(1, &at, 100, &rules(), read), between == 0);
        }
    }

    #[test]
    fn a_register_that_was_saved_may_be_any_for_one_that_does_not_need_it() {
        // The innermost function saves it for its caller.
        for (caller, is_known) in [(3, true), (7, false), (2, false)] {
            let (mut memo, program) = (memo(), functions(&[1, 7, caller, 3]));
            program.walk(&mut memo, 100);
            let mut other = functions(&[1, 7, caller, 3]);
            let saved = other.at.sp + 8 * rule(3 << 8).0;
            *other.words.get_mut(&saved).unwrap() += 16;
            assert_eq!(other.is_repeated(&mut memo, 1, 100), is_known, "{caller}");
            if is_known {
                assert_is_the_walk(&mut memo, &other);
                assert_is_the_walk(&mut memo, &program);
            }
        }
    }

    #[test]
    fn a_register_that_leads_to_the_caller_matters() {
        let (mut memo, mut program) = (memo(), functions(&[1, 7, 1, 7]));
        program.walk(&mut memo, 100);
        // A frame that is two words larger, with the same values in them.
        let saved = [0, 8].map(|above| program.words[&(program.at.bp + above)]);
        program.at.bp += 16;
        program.words.insert(program.at.bp, saved[0]);
        program.words.insert(program.at.bp + 8, saved[1]);
        program.walk(&mut memo, 100);
        program.at.bp -= 16;
        assert_is_the_walk(&mut memo, &program);
    }

    #[test]
    fn what_a_register_was_when_it_did_not_matter_is_not_passed_on() {
        let (mut memo, mut inner) = (memo(), functions(&[1, 7, 1, 3]));
        for bp in 0x9001..0x9004 {
            inner.at.bp = bp;
            inner.walk(&mut memo, 100); // now the third is known
        }
        // A function that passes the register on is called by this one, then by another one at the
        // same place, to whose caller the register belongs.
        for caller in [3, 8] {
            let mut program = functions(&[1, 7, 1, caller, 4]);
            program.at.bp = 0x9009;
            assert_is_the_walk(&mut memo, &program);
        }
    }

    #[test]
    fn another_era_reuses_nothing() {
        let mut memo = memo();
        ten(0).walk(&mut memo, 100);
        assert!(!ten(0).is_repeated(&mut memo, 2, 100));
        memo.begin(2);
        assert_eq!(memo.depth(&[]), 0);
        assert_eq!(memo.innermost_first().count(), 0);
    }

    #[test]
    fn a_walk_that_was_broken_off_is_not_reused() {
        let mut memo = memo();
        ten(0).walk(&mut memo, 100);
        let other = ten(UNKNOWN);
        assert!(matches!(memo_meets(&mut memo, &other), MemoHit::Partial(_)));
        assert!(!ten(0).is_repeated(&mut memo, 1, 100) && !other.is_repeated(&mut memo, 1, 100));
        assert_eq!(memo_meets(&mut memo, &other), MemoHit::None);
        assert_eq!(other.walk(&mut memo, 100), 10);
    }

    #[test]
    fn a_return_to_the_address_that_is_none_is_left_to_the_caller() {
        let mut memo = memo();
        ten(0).walk(&mut memo, 100);
        let mut program = ten(0);
        let frames: Vec<Frame> = memo.innermost_first().copied().collect();
        program.words.insert(frames[4].sp - 8, NEVER);
        let met = memo_meets(&mut memo, &program);
        assert_eq!(
            met,
            MemoHit::Partial(Cursor {
                address: frames[3].address,
                returns: true,
                sp: frames[3].sp,
                bp: frames[3].bp
            })
        );
    }

    fn memo_meets(memo: &mut Memo<&'static str>, program: &Program) -> MemoHit {
        memo.begin(1);
        let read = |place: u64| program.words.get(&place).copied();
        memo.look_up(
            &frame(program.at),
            &mut Vec::new(),
            100,
            NEVER,
            &rules(),
            read,
        )
    }
}
