//! The memo of a walk: what the next walk mostly has in common with it.
//!
//! Model: unwinding from a frame outwards is a function of the frame's registers and of the stack words that it
//! reads. The memo keeps both for each frame. When a later walk arrives at the same address, stack
//! pointer and frame pointer, and every word that was read from there on still has its value, the rest of
//! the walk would be the same: it need not be done again. This is exact, not a guess; comparing two words a
//! frame costs a tenth of unwinding it.
//!
//! ```text
//!  this walk   leaf2 ── mid2 ──┐
//!  memo        leaf1 ── mid1 ──┴─ handler ── loop ── main ── _start
//!                                 ^ same registers, same words from here on
//! ```
//!
//! Where the words of one frame have changed, the walk goes on there, and the memo may be met again behind it. When all that
//! changed is the word just below the caller's stack pointer, the return address, the frame need not be unwound
//! either: that word decides where the caller is and nothing else, so the caller has the registers that the
//! last caller had.
//!
//! Most functions use the frame pointer's register for something else, so it is often another value in the innermost one, and
//! unwinding does not depend on it. That is found out by what happens: the same frame unwound with two values of the
//! register by a rule that reads what it needs from the stack pointer or from that register on. Had it needed the register, it
//! would have read elsewhere, or its caller would have another value (`Memo::learn`).
//!
//! Frames are kept root first. What a walk finds anew replaces in its place what it found there last time; frames that
//! both have stay where they are, and nothing is copied.
//!
//! Not here: reading memory, rules, modules. The caller reads the words and says in which era of loaded code it walks.

use crate::StackHasher;

/// Words that unwinding one frame may have read and still be kept: a return address and a frame pointer.
const WORDS: usize = 2;

/// One frame of a walk: where it was, and what unwinding it read. One cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Frame {
    /// The program counter: a return address, or one that a signal interrupted.
    pub address: u64,
    /// The stack pointer there.
    pub sp: u64,
    /// The frame pointer's register there.
    pub bp: u64,
    /// Values of the words that were read.
    values: [u64; WORDS],
    /// Where they were, from the stack pointer on, in bytes.
    offsets: [i32; WORDS],
    /// What it adds to the hash of the stack, at its place in the memo.
    summand: u64,
    /// Number of the module plus one; 0: of none.
    module: u32,
    /// How many words were read; more than [`WORDS`]: not all are known.
    reads: u8,
    /// Whether the address is a return address.
    pub returns: bool,
    /// Unwinding does not depend on the frame pointer's register.
    any_bp: bool,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    /// One of which nothing was read yet. `module`: the number of its module plus one, or 0.
    #[inline(always)]
    #[must_use]
    pub fn new(address: u64, returns: bool, sp: u64, bp: u64, module: u32) -> Frame {
        Frame {
            address,
            sp,
            bp,
            values: [0; WORDS],
            offsets: [0; WORDS],
            summand: 0,
            module,
            reads: 0,
            returns,
            any_bp: false,
        }
    }

    /// Notes a word that unwinding this frame depends on.
    #[inline(always)]
    pub fn note(&mut self, address: u64, value: u64) {
        let at = usize::from(self.reads);
        match i32::try_from(address.wrapping_sub(self.sp) as i64) {
            Ok(offset) if at < WORDS => {
                self.values[at] = value;
                self.offsets[at] = offset;
                self.reads += 1;
            }
            _ => self.note_more(),
        }
    }

    /// Notes that it depends on more than can be kept.
    pub fn note_more(&mut self) {
        self.reads = u8::MAX;
    }

    /// Address of a word that was read.
    #[inline(always)]
    fn place(&self, i: usize) -> u64 {
        self.sp.wrapping_add_signed(self.offsets[i].into())
    }

    /// Whether every word still has its value.
    #[inline(always)]
    fn still_holds(&self, word: &mut impl FnMut(u64) -> Option<u64>) -> bool {
        let reads = usize::from(self.reads);
        if reads > WORDS {
            return false;
        }
        for (value, offset) in self.values.iter().zip(&self.offsets).take(reads) {
            if word(self.sp.wrapping_add_signed(i64::from(*offset))) != Some(*value) {
                return false;
            }
        }
        true
    }

    /// Whether a walk that is here would go on as this one did, for all that is known without reading.
    #[inline(always)]
    fn is_at(&self, here: &Frame) -> bool {
        self.is_at_but_for_bp(here) && (self.bp == here.bp || self.any_bp)
    }

    #[inline(always)]
    fn is_at_but_for_bp(&self, here: &Frame) -> bool {
        self.address == here.address && self.sp == here.sp && self.returns == here.returns
    }

    /// What goes into the hash of a stack for this frame: another module at the same place makes another
    /// stack.
    #[inline(always)]
    fn summand_at(&self, place: usize) -> u64 {
        StackHasher::of_frame(place, self.address ^ u64::from(self.module) << 48)
    }
}

/// Registers at which a walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The program counter.
    pub address: u64,
    /// Whether it is a return address.
    pub returns: bool,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer's register.
    pub bp: u64,
}

/// What a walk has in common with the memo from a frame outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// Nothing that is known.
    Nothing,
    /// All: the walk is over.
    Rest,
    /// Some frames, which are taken over. The walk goes on here.
    Part(Place),
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
    /// The last walk can be met: it came to its end, and was not cut for its length, which would be elsewhere next time.
    is_whole: bool,
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
        }
    }

    /// Begins a walk. The last one is forgotten if it was in another era (code may have changed since) or was broken off.
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

    /// Whether a walk that begins at the frame `at` would be the last one again, from its first frame to its end: then there is
    /// nothing to do, and this is all that a walk costs. Walks of `limit` frames are cut, and none of them is another's.
    ///
    /// `word` reads the stack.
    #[inline]
    #[must_use]
    pub fn is_again(
        &self,
        era: u32,
        at: &Frame,
        limit: usize,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        if !self.is_whole || self.era != era || self.frames.len() >= limit {
            return false;
        }
        if !self.frames.last().is_some_and(|first| first.is_at(at)) {
            return false;
        }
        for frame in self.frames.iter().rev() {
            if !frame.still_holds(&mut word) {
                return false;
            }
        }
        true
    }

    /// From here on the walk under way meets nothing: its stack pointers are no longer in order.
    pub fn meet_no_more(&mut self) {
        self.ahead = 0;
    }

    /// How many frames the walk has so far, with the `fresh` ones.
    #[inline]
    #[must_use]
    pub fn depth(&self, fresh: &[Frame]) -> usize {
        self.frames.len() - self.open + fresh.len()
    }

    /// What the walk that is at the frame `at` has in common with the memo from there on. If there is something, the
    /// `fresh` frames (innermost first) and those in common are taken over; the walk, whose frames have to stay
    /// below `limit`, goes on as the answer says.
    ///
    /// `word` reads the stack. `never` is an address to which a return is more than a return: it is left to the caller.
    #[inline]
    pub fn meet(
        &mut self,
        at: &Frame,
        fresh: &mut Vec<Frame>,
        limit: usize,
        never: u64,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> Met {
        while self.ahead > 0 && self.frames[self.ahead - 1].sp < at.sp {
            self.ahead -= 1;
        }
        let Some(first) = self.ahead.checked_sub(1) else {
            return Met::Nothing;
        };
        if !self.frames[first].is_at(at) {
            return Met::Nothing;
        }
        // Where it does not matter for what comes from here on, it may be what a function called from here passes on,
        // to a caller that will be another.
        self.frames[first].bp = at.bp;
        let mut changed = first + 1;
        for frame in self.frames[..=first].iter().rev() {
            if !frame.still_holds(&mut word) {
                break;
            }
            changed -= 1;
        }
        // Those that hold, and if it only returns elsewhere the one that does not.
        let most = first + 1 - changed + usize::from(changed > 0);
        if self.depth(fresh) + most >= limit {
            return Met::Nothing; // where it is to be cut depends on each frame
        }
        if self.depth(fresh) + first + 1 > self.room {
            return Met::Nothing; // what is left of the last walk would be there too
        }
        let Some(changed) = changed.checked_sub(1) else {
            self.settle(first + 1, fresh);
            self.open = 0;
            self.is_whole = true;
            return Met::Rest;
        };
        if let Some(caller) = self.returns_elsewhere(changed, never, &mut word) {
            self.settle(first + 1, fresh);
            self.open = changed;
            self.ahead = changed;
            return Met::Part(caller);
        }
        if changed == first {
            return Met::Nothing;
        }
        self.settle(first + 1, fresh);
        self.open = changed + 1;
        self.ahead = changed + 1;
        let next = &self.frames[changed];
        Met::Part(Place {
            address: next.address,
            returns: next.returns,
            sp: next.sp,
            bp: next.bp,
        })
    }

    /// Whether the last walk was where [`meet`](Self::meet) was just asked about with `at`, but for the frame pointer's register:
    /// [`learn`](Self::learn) may find out something.
    #[inline]
    #[must_use]
    pub fn may_learn(&self, at: &Frame) -> bool {
        let was = self.ahead.checked_sub(1).map(|first| &self.frames[first]);
        was.is_some_and(|was| was.is_at_but_for_bp(at) && (was.bp != at.bp || was.any_bp))
    }

    /// After [`may_learn`](Self::may_learn): that frame was unwound, by the rule by which it was last time, and led to `caller`.
    /// For rules only that find the caller's stack pointer, and the word with its register if one is read, from the stack
    /// pointer or from the register and a constant.
    pub fn learn(&self, frame: &mut Frame, caller: Place) {
        let Some(last) = self.ahead.checked_sub(1) else {
            return;
        };
        let was = last.checked_sub(1).map(|last| &self.frames[last]);
        // With another value it has led to the same: it is neither what all is found from, nor passed on.
        frame.any_bp = self.frames[last].any_bp
            || was.is_some_and(|was| was.sp == caller.sp && was.bp == caller.bp);
    }

    /// If the frame's return address is all that changed, takes the new one over and says where its caller is.
    #[inline]
    fn returns_elsewhere(
        &mut self,
        changed: usize,
        never: u64,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<Place> {
        let caller = *self.frames.get(changed.checked_sub(1)?)?;
        let frame = &mut self.frames[changed];
        let reads = usize::from(frame.reads);
        if reads > WORDS || !caller.returns {
            return None;
        }
        let mut found = None;
        for i in 0..reads {
            let (place, old) = (frame.place(i), frame.values[i]);
            let new = word(place)?;
            if place == caller.sp.wrapping_sub(8) && old == caller.address {
                found = Some((i, new));
            } else if new != old {
                return None;
            }
        }
        let (i, address) = found?;
        if address == 0 || address == never {
            return None;
        }
        frame.values[i] = address;
        Some(Place {
            address,
            returns: true,
            sp: caller.sp,
            bp: caller.bp,
        })
    }

    /// Puts the `fresh` frames (innermost first) in place of those from `keep` on that are still the last walk's.
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

    /// Ends a walk that met no rest: the `fresh` frames (innermost first) are its outermost. `is_whole`: it was
    /// not cut for its length.
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
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Where handlers of a signal return to, in the programs of these tests.
    const NEVER: u64 = 0x666;
    /// The outermost function's return address.
    const ROOT: u64 = 0;
    const TOP: u64 = 0x7000_0000;

    /// A stack in memory, and the registers of its innermost function.
    #[derive(Debug, Clone)]
    struct Program {
        words: BTreeMap<u64, u64>,
        at: Place,
    }

    /// What the function of an address does, which is told by the address alone, as by an unwind table: how large its
    /// frame is, in words, whether it saved the frame pointer in it, and whether it found its frame by that register.
    fn rule(address: u64) -> (u64, bool, bool) {
        let function = address >> 8;
        (
            1 + function % 5,
            function.is_multiple_of(3),
            function.is_multiple_of(7),
        )
    }

    impl Program {
        /// One function called by another: each is an address and the value of the frame pointer's register that it
        /// sets, if it does. The outermost is first.
        fn new(calls: &[(u64, Option<u64>)]) -> Program {
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
                    words.insert(place, 0x1234); // the function's own
                }
                if by_register {
                    bp = cfa;
                } else if saves {
                    bp = sets.unwrap_or(bp);
                }
                caller = address;
            }
            let at = Place {
                address: caller,
                returns: true,
                sp,
                bp,
            };
            Program { words, at }
        }

        /// The caller of `at`, with every word that tells noted.
        fn caller(&self, at: Place, frame: &mut Frame) -> Option<Place> {
            let mut word = |place: u64| {
                let value = self.words.get(&place).copied();
                frame.note(place, value.unwrap_or_default());
                value
            };
            let (size, saves, by_register) = rule(at.address);
            let cfa = match by_register {
                true => at.bp,
                false => at.sp + 8 * (size + 2),
            };
            let bp = match saves || by_register {
                true => word(cfa - 16)?,
                false => at.bp,
            };
            let address = word(cfa - 8)?;
            let caller = Place {
                address,
                returns: true,
                sp: cfa,
                bp,
            };
            (address != ROOT).then_some(caller)
        }

        fn is_again(&self, memo: &Memo<&'static str>, era: u32, limit: usize) -> bool {
            let at = self.at;
            let frame = Frame::new(at.address, at.returns, at.sp, at.bp, 1);
            memo.is_again(era, &frame, limit, |place| self.words.get(&place).copied())
        }

        /// As the walker does: how many frames were unwound.
        fn walk(&self, memo: &mut Memo<&'static str>, limit: usize) -> usize {
            let (mut fresh, mut at, mut unwound) = (Vec::new(), self.at, 0);
            if self.is_again(memo, 1, limit) {
                return 0;
            }
            memo.begin(1);
            loop {
                let mut frame = Frame::new(at.address, at.returns, at.sp, at.bp, 1);
                if memo.depth(&fresh) + 1 >= limit {
                    memo.end(&mut fresh, "too deep", false);
                    return unwound;
                }
                let read = |place: u64| self.words.get(&place).copied();
                match memo.meet(&frame, &mut fresh, limit, NEVER, read) {
                    Met::Rest => return unwound,
                    Met::Part(next) => {
                        at = next;
                        continue;
                    }
                    Met::Nothing => {}
                }
                unwound += 1;
                let may_learn = memo.may_learn(&frame);
                let caller = self.caller(at, &mut frame);
                if let Some(caller) = caller.filter(|_| may_learn) {
                    memo.learn(&mut frame, caller);
                }
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

    fn memo() -> Memo<&'static str> {
        Memo::with_room_for(40, "none")
    }

    /// The register, too, where it matters.
    type Found = (u64, u64, Option<u64>);

    fn found(memo: &Memo<&'static str>) -> (Vec<Found>, StackHasher, &'static str) {
        let frames = memo.innermost_first();
        let frames = frames.map(|frame| {
            let (_, saves, by_register) = rule(frame.address);
            let matters = by_register || !saves;
            (frame.address, frame.sp, matters.then_some(frame.bp))
        });
        (frames.collect(), memo.hash(), memo.why_ended())
    }

    /// Addresses of few functions, each with two places that call.
    fn call() -> impl Strategy<Value = (u64, Option<u64>)> {
        let address =
            (1..9u64, 0..2u64).prop_map(|(function, place)| function << 8 | place << 3 | 1);
        (address, prop::option::of(0x9000..0x9003u64))
    }

    proptest! {
        // Many: what goes wrong may need three walks of a kind.
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 4000 }))]

        /// Stacks that differ by some calls here and there: each walk finds what a walk without a memo finds.
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
                let mut without = self::memo();
                program.walk(&mut without, limit);
                prop_assert_eq!(found(&memo), found(&without));
                let depth = calls.len().min(limit - 1);
                prop_assert_eq!(found(&memo).0.len(), depth);
            }
        }
    }

    /// Functions that keep no frame pointer; the second place of the fifth of ten is another.
    fn ten(place: u64) -> Program {
        let call = |i: u64| (0x100 + (i == 4) as u64 * place, None);
        Program::new(&(0..10).map(call).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_changed_is_unwound() {
        let mut memo = memo();
        assert!(!ten(0).is_again(&memo, 1, 100));
        assert_eq!(ten(0).walk(&mut memo, 100), 10);
        assert!(ten(0).is_again(&memo, 1, 100) && !ten(8).is_again(&memo, 1, 100));
        assert!(!ten(0).is_again(&memo, 1, 10), "it would be cut");
        assert_eq!(ten(0).walk(&mut memo, 100), 0);
        // The frame that is called from elsewhere is not unwound; its caller, which is elsewhere, is.
        assert_eq!(ten(8).walk(&mut memo, 100), 1);
        assert_eq!(ten(0).walk(&mut memo, 100), 1);
    }

    /// Functions that find their frame by the register, or save it, or neither; the last is innermost.
    fn functions(functions: &[u64]) -> Program {
        let calls = functions.iter().map(|function| (function << 8, None));
        Program::new(&calls.collect::<Vec<_>>())
    }

    /// With the memo as without one.
    #[track_caller]
    fn assert_is_the_walk(memo: &mut Memo<&'static str>, program: &Program) {
        program.walk(memo, 100);
        let mut without = self::memo();
        program.walk(&mut without, 100);
        assert_eq!(found(memo), found(&without));
    }

    #[test]
    fn a_register_that_does_not_matter_is_found_out() {
        let (mut memo, mut program) = (memo(), functions(&[1, 1, 1, 3]));
        for (bp, is_known) in [(0x9001, false), (0x9002, false), (0x9003, true)] {
            program.at.bp = bp;
            assert_eq!(program.is_again(&memo, 1, 100), is_known);
            program.walk(&mut memo, 100);
        }
        // And is still known when what it saved is another, for which it is unwound again.
        program.at.bp = 0x9004;
        let saved = program.at.sp + 8 * rule(3 << 8).0;
        *program.words.get_mut(&saved).unwrap() += 1;
        assert!(program.walk(&mut memo, 100) > 0);
        program.at.bp = 0x9005;
        assert!(program.is_again(&memo, 1, 100));
    }

    #[test]
    fn a_register_that_is_passed_on_matters() {
        let (mut memo, mut program) = (memo(), functions(&[1, 7, 1, 4]));
        for bp in 0x9001..0x9005 {
            program.at.bp = bp;
            assert!(!program.is_again(&memo, 1, 100));
            program.walk(&mut memo, 100);
        }
    }

    #[test]
    fn a_register_that_leads_to_the_caller_matters() {
        let (mut memo, mut program) = (memo(), functions(&[1, 7, 1, 7]));
        program.walk(&mut memo, 100);
        // A frame that is larger by two words, and has the same in them.
        let saved = [16, 8].map(|below| program.words[&(program.at.bp - below)]);
        program.at.bp += 16;
        program.words.insert(program.at.bp - 16, saved[0]);
        program.words.insert(program.at.bp - 8, saved[1]);
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
        // A function that passes it on, called by that one, and then by another in its place, whose caller's it is.
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
        assert!(!ten(0).is_again(&memo, 2, 100));
        memo.begin(2);
        assert_eq!(memo.depth(&[]), 0);
        assert_eq!(memo.innermost_first().count(), 0);
    }

    #[test]
    fn a_walk_that_was_broken_off_is_not_met() {
        let mut memo = memo();
        ten(0).walk(&mut memo, 100);
        assert!(matches!(memo_meets(&mut memo, &ten(8)), Met::Part(_)));
        assert!(!ten(0).is_again(&memo, 1, 100) && !ten(8).is_again(&memo, 1, 100));
        assert_eq!(memo_meets(&mut memo, &ten(8)), Met::Nothing);
        assert_eq!(ten(8).walk(&mut memo, 100), 10);
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
            Met::Part(Place {
                address: frames[3].address,
                returns: true,
                sp: frames[3].sp,
                bp: frames[3].bp
            })
        );
    }

    fn memo_meets(memo: &mut Memo<&'static str>, program: &Program) -> Met {
        memo.begin(1);
        let at = program.at;
        let frame = Frame::new(at.address, at.returns, at.sp, at.bp, 1);
        let read = |place: u64| program.words.get(&place).copied();
        memo.meet(&frame, &mut Vec::new(), 100, NEVER, read)
    }
}
