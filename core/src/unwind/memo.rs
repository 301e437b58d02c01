//! Memo: the frames of the last walk, which the next walk mostly has in common with it.
//!
//! Model: unwinding from a frame outwards is a function of the frame's registers and of the stack
//! words that it reads. The memo keeps both for each frame. A later walk may arrive at the same
//! address, stack pointer and frame pointer. If every word that was read from there on still has
//! its value, the rest of the walk is the same and need not be done again. This is exact, not a
//! guess. Comparing two words for each frame is much cheaper than unwinding it.
//!
//! ```text
//!  this walk   leaf2 ── mid2 ──┐
//!  memo        leaf1 ── mid1 ──┴─ handler ── loop ── main ── _start
//!                                 ^ same registers, same words from here on
//! ```
//!
//! Where the words of one frame have changed, the walk resumes there, and may reach the memo again
//! behind it. But most changes need no unwinding at all:
//!
//! - The word just below the caller's stack pointer is the return address. It decides where the
//!   caller is and nothing else, so the caller has the registers of the last caller. If the rule by
//!   which the caller is unwound ([`Rules`]) is the same, the caller leads to its own caller as
//!   before: only its address is new. That is usual for another call in the same function.
//! - The frame pointer's register, or the word where it was saved: most functions use it for
//!   something else, so its value changes all the time. The change makes no difference if each
//!   caller passes the value on, up to a caller that restores its own caller's value and finds that
//!   by the stack pointer.
//!
//! Frames are kept root first. A walk's new frames replace the old ones in place. Frames that both
//! walks have stay where they are, and nothing is copied.
//!
//! Not here: reading memory, rules, modules. The caller reads the words and says in which era of
//! loaded code it walks.

use crate::unwind::frame::{ChangedWords, Frame};
use crate::unwind::kinds::{Cursor, Kind};
use crate::unwind::rules::Rules;
use crate::unwind::stack_hash::StackHasher;

/// The frames that a walk has in common with the memo, from a frame outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoHit {
    /// Nothing that is known.
    None,
    /// All: the walk is over.
    Full,
    /// Some frames, which are taken over. The walk goes on here.
    Partial(Cursor),
}

/// See the module's text. `E` says why a walk ended.
#[derive(Debug)]
pub struct Memo<E> {
    /// Root first: those of the last walk up to `open`, from there on those of the walk under way.
    frames: Vec<Frame>,
    /// So many there may be: more would allocate.
    room: usize,
    open: usize,
    /// Frames that the walk under way may still meet, from the root.
    ahead: usize,
    hash: StackHasher,
    end: E,
    era: u32,
    /// The last walk can be met: it came to its end, and was not cut for its length, which would be
    /// elsewhere next time.
    is_whole: bool,
    /// Whether something was taken over since [`is_again`](Self::is_again) was last asked.
    has_taken_over: bool,
}

impl<E: Copy> Memo<E> {
    /// Empty. It never allocates for walks of up to `room` frames.
    #[must_use]
    pub fn with_room_for(room: usize, end: E) -> Memo<E> {
        Memo {
            frames: Vec::with_capacity(room),
            room,
            open: 0,
            ahead: 0,
            hash: StackHasher::new(),
            end,
            era: 0,
            is_whole: false,
            has_taken_over: false,
        }
    }

    /// Takes over what `other` knows, which was made with the same room.
    pub(crate) fn copy_from(&mut self, other: &Memo<E>) {
        self.frames.clear();
        self.frames.extend_from_slice(&other.frames);
        (self.hash, self.end) = (other.hash, other.end);
        (self.era, self.is_whole) = (other.era, other.is_whole);
    }

    /// The last walk's frames, root first, if it was found again without a change.
    pub(crate) fn unchanged(&self) -> Option<&[Frame]> {
        (!self.has_taken_over).then_some(&self.frames)
    }

    /// Frames of the last walk.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Begins a walk. The last one is forgotten if it was in another era (code may have changed
    /// since) or was broken off.
    pub fn begin(&mut self, era: u32) {
        let is_whole = std::mem::replace(&mut self.is_whole, false);
        if self.era != era || !is_whole {
            self.frames.clear();
            self.hash = StackHasher::new();
            self.era = era;
        }
        self.open = self.frames.len();
        self.ahead = self.open;
    }

    /// Whether a walk that begins at the frame `at` would find the last walk's frames again, all of
    /// them. Then this question is all that the walk costs. Two kinds of difference do not count,
    /// and are taken over: a return address at another call in the same function, and a value of
    /// the frame pointer's register that no frame depends on. A walk of `limit` frames is cut off,
    /// elsewhere each time, so none finds such a one again.
    ///
    /// `word` reads the stack.
    #[inline]
    #[must_use]
    pub fn is_again(
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
        self.has_taken_over = false;
        let count = self.frames.len();
        self.is_met_at(count, at) && self.follow(count, rules, &mut word) == 0
    }

    /// From the outermost `count` frames on, of which the innermost is where the walk is: how many
    /// of them are left when those are taken away that lead to their callers as before. Changes
    /// that make no other difference are taken over.
    ///
    /// At every moment each frame leads to the next by its words, whether these still hold in
    /// memory or not: breaking off leaves a memo that is as good as before.
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
            if left == 0 || !self.take_over(left - 1, rules, word) {
                return left;
            }
            left -= 1;
        }
    }

    /// Whether the walk that is at the frame `at` would go on as from the innermost of the
    /// outermost `count` frames, for all that is known without reading. The register's value is
    /// taken over.
    #[inline(always)]
    fn is_met_at(&mut self, count: usize, at: &Frame) -> bool {
        let Some(frame) = self.frames[..count].last() else {
            return false;
        };
        frame.is_at(at) && (frame.bp == at.bp || self.takes(count, at.bp))
    }

    /// Whether another value of the register in the innermost of the outermost `count` frames makes
    /// no difference: it is passed on, if at all, to a frame that does not depend on it. Then it is
    /// taken over.
    #[inline(never)]
    fn takes(&mut self, count: usize, bp: u64) -> bool {
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

    /// If what changed of a frame's words makes no difference but for where its caller is, and the
    /// caller leads on from there as from where it was, takes the words over and puts the caller
    /// there.
    #[inline(never)]
    fn take_over(
        &mut self,
        changed: usize,
        rules: &Rules,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        let Some(anew) = self.read_changed(changed, word) else {
            return false;
        };
        let caller = &self.frames[changed - 1];
        let rule = match anew.address == caller.address {
            true => None,
            false => match rules.get(anew.address) {
                Some(rule) if caller.leads_on_by(rule) => Some(rule),
                _ => return false,
            },
        };
        if let Some(saved) = anew.saved
            && !self.takes(changed, saved)
        {
            return false;
        }
        if let Some(rule) = rule {
            let caller = &mut self.frames[changed - 1];
            caller.move_to(anew.address, rule);
            let summand = caller.summand_at(changed - 1);
            self.hash.take(caller.summand);
            self.hash.add(summand);
            caller.summand = summand;
        }
        self.frames[changed].put(anew);
        self.has_taken_over = true;
        true
    }

    /// Returns the new values of the words of a frame that give its caller's place and the
    /// register's value there.
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

    /// From here on the walk under way meets nothing: its stack pointers are no longer in order.
    pub fn look_up_no_more(&mut self) {
        self.ahead = 0;
    }

    /// How many frames the walk has so far, with the `fresh` ones.
    #[inline]
    #[must_use]
    pub fn depth(&self, fresh: &[Frame]) -> usize {
        self.frames.len() - self.open + fresh.len()
    }

    /// Returns the frames that the walk at the frame `at` has in common with the memo from there
    /// on. If there are some, the memo takes over the `fresh` frames (innermost first) and the
    /// common frames. The walk, whose frames have to stay below `limit`, goes on as the answer
    /// says.
    ///
    /// `word` reads the stack. `never` is the return address of signal handlers: the caller finds
    /// the frames behind it.
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
        while self.ahead > 0 && self.frames[self.ahead - 1].sp < at.sp {
            self.ahead -= 1;
        }
        let count = self.ahead;
        if !self.is_met_at(count, at) {
            return MemoHit::None;
        }
        // Where it would be cut depends on each frame; and what is left of the last walk would be
        // there too.
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
        if let Some(anew) = self.read_changed(changed, &mut word)
            && anew.address != never
        {
            self.frames[changed].put(anew);
            self.settle(count, fresh);
            self.open = changed;
            self.ahead = changed;
            let caller = &self.frames[changed - 1];
            return MemoHit::Partial(Cursor {
                address: anew.address,
                returns: true,
                sp: caller.sp,
                bp: anew.saved.unwrap_or(caller.bp),
            });
        }
        if left == count {
            return MemoHit::None;
        }
        self.settle(count, fresh);
        self.open = left;
        self.ahead = left;
        let next = &self.frames[changed];
        MemoHit::Partial(Cursor {
            address: next.address,
            returns: next.returns,
            sp: next.sp,
            bp: next.bp,
        })
    }

    /// Puts the `fresh` frames (innermost first) in place of those from `keep` on that are still
    /// the last walk's.
    #[inline]
    fn settle(&mut self, keep: usize, fresh: &mut Vec<Frame>) {
        if keep == self.open && fresh.is_empty() {
            return; // all is where it was
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
            // Whatever stands above moves, and adds something else to the hash.
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

    /// Ends a walk that met no rest: the `fresh` frames (innermost first) are its outermost.
    /// `is_whole`: it was not cut for its length.
    pub fn end(&mut self, fresh: &mut Vec<Frame>, end: E, is_whole: bool) {
        self.settle(0, fresh);
        self.end = end;
        self.is_whole = is_whole;
    }

    /// Why the walk ended.
    pub fn why_ended(&self) -> E {
        self.end
    }

    /// The sum over all frames.
    pub fn hash(&self) -> StackHasher {
        self.hash
    }

    /// Its frames, innermost first.
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
        // Many: what goes wrong may need three walks of a kind.
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 4000 }))]

        /// Stacks that differ by some calls here and there: each walk finds what a walk without a
        /// memo finds.
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
                        // The other place of the same function: it alone returns elsewhere.
                        2 => calls[place].0 ^= 8,
                        // Another value in the register.
                        3 | 4 => calls[place].1 = call.1,
                        // Another function whose frame is as large, or the one before again.
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
        assert!(!ten(0).is_again(&mut memo, 1, 100));
        assert_eq!(ten(0).walk(&mut memo, 100), 10);
        assert!(ten(0).is_again(&mut memo, 1, 100));
        assert!(!ten(0).is_again(&mut memo, 1, 10), "it would be cut");
        assert_eq!(ten(0).walk(&mut memo, 100), 0);
        // The frame that is called from elsewhere is not unwound; its caller, which is elsewhere,
        // is.
        assert!(!ten(UNKNOWN).is_again(&mut memo, 1, 100));
        assert_eq!(ten(UNKNOWN).walk(&mut memo, 100), 1);
        assert_eq!(ten(0).walk(&mut memo, 100), 1);
        // Neither is, where the caller's rule is known.
        for place in [KNOWN, 0] {
            assert!(ten(place).is_again(&mut memo, 1, 100));
            assert_is_the_walk(&mut memo, &ten(place));
        }
    }

    #[test]
    fn a_caller_whose_rule_is_another_is_unwound() {
        // As large a frame, but the register is saved in it; and a larger one.
        for other in [6, 2] {
            let (mut memo, program) = (memo(), functions(&[1, 1, 11, 1, 1]));
            program.walk(&mut memo, 100);
            let mut program = functions(&[1, 1, other, 1, 1]);
            assert!(!program.is_again(&mut memo, 1, 100));
            assert_is_the_walk(&mut memo, &program);
            program.at.bp += 8;
            assert_is_the_walk(&mut memo, &program);
        }
    }

    /// With the memo as without one.
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
        assert!(program.is_again(&mut memo, 1, 100));
        // Also when what was saved of it is another, which the caller does not need either.
        let saved = program.at.sp + 8 * rule(3 << 8).0;
        *program.words.get_mut(&saved).unwrap() += 1;
        assert_is_the_walk(&mut memo, &program);
        program.at.bp = 0x9002;
        assert!(program.is_again(&mut memo, 1, 100));
        // At a place whose rule is unknown, it may matter.
        program.at.address += UNKNOWN;
        program.walk(&mut memo, 100);
        program.at.bp = 0x9003;
        assert!(!program.is_again(&mut memo, 1, 100));
    }

    #[test]
    fn a_register_that_is_passed_on_matters() {
        let (mut memo, mut program) = (memo(), functions(&[1, 7, 1, 4]));
        for bp in 0x9001..0x9005 {
            program.at.bp = bp;
            assert!(!program.is_again(&mut memo, 1, 100));
            program.walk(&mut memo, 100);
        }
    }

    #[test]
    fn a_register_that_is_passed_on_to_one_that_restores_it_may_be_any() {
        let (mut memo, mut program) = (memo(), functions(&[1, 7, 3, 1, 4]));
        program.walk(&mut memo, 100);
        for bp in 0x9001..0x9005 {
            program.at.bp = bp;
            assert!(program.is_again(&mut memo, 1, 100));
            assert_is_the_walk(&mut memo, &program);
        }
    }

    #[test]
    fn a_register_is_not_passed_on_over_frames_that_are_not_there() {
        // The outer frame restores the register; frames in between, which are not recorded, may
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
            assert_eq!(memo.is_again(1, &at, 100, &rules(), read), between == 0);
        }
    }

    #[test]
    fn a_register_that_was_saved_may_be_any_for_one_that_does_not_need_it() {
        // Saved by the innermost, for its caller.
        for (caller, is_known) in [(3, true), (7, false), (2, false)] {
            let (mut memo, program) = (memo(), functions(&[1, 7, caller, 3]));
            program.walk(&mut memo, 100);
            let mut other = functions(&[1, 7, caller, 3]);
            let saved = other.at.sp + 8 * rule(3 << 8).0;
            *other.words.get_mut(&saved).unwrap() += 16;
            assert_eq!(other.is_again(&mut memo, 1, 100), is_known, "{caller}");
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
        // A frame that is larger by two words, and has the same in them.
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
        // A function that passes it on, called by that one, and then by another in its place, whose
        // caller's it is.
        for caller in [3, 8] {
            let mut program = functions(&[1, 7, 1, caller, 4]);
            program.at.bp = 0x9009;
            assert_is_the_walk(&mut memo, &program);
        }
    }

    #[test]
    fn another_era_meets_nothing() {
        let mut memo = memo();
        ten(0).walk(&mut memo, 100);
        assert!(!ten(0).is_again(&mut memo, 2, 100));
        memo.begin(2);
        assert_eq!(memo.depth(&[]), 0);
        assert_eq!(memo.innermost_first().count(), 0);
    }

    #[test]
    fn a_walk_that_was_broken_off_is_not_met() {
        let mut memo = memo();
        ten(0).walk(&mut memo, 100);
        let other = ten(UNKNOWN);
        assert!(matches!(memo_meets(&mut memo, &other), MemoHit::Partial(_)));
        assert!(!ten(0).is_again(&mut memo, 1, 100) && !other.is_again(&mut memo, 1, 100));
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
