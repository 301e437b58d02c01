//! Memos: the cached walks of recent call sites.
//!
//! A program that allocates at a few sites in turn would overwrite a single memo each time. So each
//! of the last few sites has a memo. A walk from a new site takes the memo that was assigned first,
//! and begins with a copy of the last walk's memo. Both walks mostly have the frames near the root
//! in common, and copying a frame is one cache line.

use crate::unwind::echo::Echo;
use crate::unwind::frame::Frame;
use crate::unwind::kinds::Words;
use crate::unwind::memo::Memo;

/// Number of memos. It suffices for C++ containers, which call from a handful of sites; with half
/// as many, most of their walks are new (`scripts/count-walks`).
const COUNT: usize = 8;

/// Most frames that are copied. Copying a longer walk costs more than it saves.
const MOST_COPIED: usize = 128;

/// See the module's text. `E` is the reason of a walk's end, `F` its result.
#[derive(Debug)]
pub struct Memos<E, F> {
    memos: [Memo<E>; COUNT],
    echoes: [Echo<F>; COUNT],
    /// Address and stack pointer at which the last walk of each memo began.
    places: [(u64, u64); COUNT],
    /// Memo of the last walk, or of the current one.
    chosen: usize,
    /// Memo that was assigned last.
    next: usize,
}

impl<E: Copy, F: Copy> Memos<E, F> {
    /// Returns empty memos, each as [`Memo::with_room_for`] makes it.
    #[must_use]
    pub fn with_room_for(room: usize, end: E) -> Memos<E, F> {
        Memos {
            memos: std::array::from_fn(|_| Memo::with_room_for(room, end)),
            echoes: std::array::from_fn(|_| Echo::empty()),
            places: [(0, 0); COUNT],
            chosen: 0,
            next: 0,
        }
    }

    /// Returns the bytes that [`with_room_for`](Self::with_room_for) allocates.
    #[must_use]
    pub const fn bytes_for(room: usize) -> usize {
        COUNT * (room * size_of::<Frame>() + Echo::<F>::bytes())
    }

    /// Chooses the memo for a walk that begins at the frame `at`.
    #[inline(always)]
    pub fn choose(&mut self, at: &Frame) {
        let place = (at.address, at.sp);
        if self.places[self.chosen % COUNT] != place {
            self.change_to(place);
        }
    }

    #[inline(never)]
    fn change_to(&mut self, place: (u64, u64)) {
        let known = self.places.iter().position(|known| *known == place);
        self.chosen = known.unwrap_or_else(|| self.assign(place));
    }

    fn assign(&mut self, place: (u64, u64)) -> usize {
        let mut given = self.chosen;
        if self.chosen().len() <= MOST_COPIED {
            self.next = (self.next + 1) % COUNT;
            // An error means that the next memo has the last walk, so there is nothing to copy.
            if let Ok([memo, last]) = self.memos.get_disjoint_mut([self.next, self.chosen]) {
                memo.copy_from(last);
                given = self.next;
            }
        }
        self.places[given] = place;
        self.echoes[given].clear();
        given
    }

    /// Returns the cached result for a walk that begins at `at`, if `hold` says that its words are
    /// unchanged. Nothing else needs a check then. The memo must be [chosen](Self::choose).
    #[inline(always)]
    pub fn find_unchanged(
        &self,
        era: u32,
        at: &Frame,
        hold: impl FnOnce(Words<'_>) -> bool,
    ) -> Option<F> {
        let echo = &self.echoes[self.chosen % COUNT];
        echo.find_unchanged(era, at, self.chosen().hash(), hold)
    }

    /// Records the result `found` of a walk in that era that was repeated, so that
    /// [`find_unchanged`](Self::find_unchanged) finds the next one.
    #[inline]
    pub fn echo(&mut self, era: u32, found: F) {
        let memo = &self.memos[self.chosen % COUNT];
        if let Some(frames) = memo.unchanged() {
            self.echoes[self.chosen % COUNT].record(era, frames, memo.hash(), found);
        }
    }

    /// Returns the chosen memo.
    #[inline(always)]
    #[must_use]
    pub fn chosen(&self) -> &Memo<E> {
        &self.memos[self.chosen % COUNT]
    }

    /// Returns the chosen memo, to walk with.
    #[inline(always)]
    pub fn chosen_mut(&mut self) -> &mut Memo<E> {
        &mut self.memos[self.chosen % COUNT]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::unwind::model_program::{Program, call, found, frame, functions, memo, ten};

    fn memos() -> Memos<&'static str, u64> {
        Memos::with_room_for(40, "none")
    }

    /// Walks as the preloaded library does. Returns the number of frames that were unwound.
    fn walk(memos: &mut Memos<&'static str, u64>, program: &Program, limit: usize) -> usize {
        memos.choose(&frame(program.at));
        program.walk(memos.chosen_mut(), limit)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2000 }))]

        /// Stacks with common outer calls, in any order: each walk finds the frames of a walk
        /// without memos.
        #[test]
        fn a_walk_with_memos_is_the_walk(
            outer in prop::collection::vec(call(), 1..20),
            inner in prop::collection::vec((0..20usize, prop::collection::vec(call(), 1..6)), 1..6),
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
            limit in 3..40usize,
        ) {
            let programs: Vec<Program> = inner.iter().map(|(common, inner)| {
                let calls = outer.iter().take(*common).chain(inner);
                Program::new(&calls.copied().collect::<Vec<_>>())
            }).collect();
            let mut memos = memos();
            for next in order {
                let program = next.get(&programs);
                walk(&mut memos, program, limit);
                let mut without = memo();
                program.walk(&mut without, limit);
                prop_assert_eq!(found(memos.chosen()), found(&without));
            }
        }
    }

    /// Walks as the preloaded library does. Returns true if the result was cached.
    fn find_or_walk(memos: &mut Memos<&'static str, u64>, program: &Program, limit: usize) -> bool {
        let at = frame(program.at);
        memos.choose(&at);
        let found = |memos: &Memos<_, _>| memos.chosen().hash().finish(0, 0);
        let cached = memos.find_unchanged(1, &at, |words| program.hold(words));
        if let Some(cached) = cached {
            assert_eq!(cached, found(memos));
            return true;
        }
        if program.is_repeated(memos.chosen_mut(), 1, limit) {
            memos.echo(1, found(memos));
        } else {
            program.walk(memos.chosen_mut(), limit);
        }
        false
    }

    /// Returns the frames without the register, which is not always stored if it makes no
    /// difference.
    fn frames(memo: &Memo<&'static str>) -> impl PartialEq + std::fmt::Debug {
        let (frames, sum, end) = found(memo);
        let frames = frames.into_iter().map(|(address, sp, _)| (address, sp));
        (frames.collect::<Vec<_>>(), sum, end)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 1000 }))]

        /// The same stack several times, then another one, which mostly differs by one call or one
        /// register value.
        #[test]
        fn a_cached_result_is_the_walk(
            first in prop::collection::vec(call(), 1..12),
            changes in prop::collection::vec((any::<prop::sample::Index>(), call(), 0..4u8), 0..8),
            order in prop::collection::vec((any::<prop::sample::Index>(), 0..7u64, 1..4usize), 1..60),
            limit in 3..40usize,
        ) {
            let mut programs = vec![Program::new(&first)];
            let (mut calls, length) = (first.clone(), first.len());
            for (place, call, what) in changes {
                let changed = &mut calls[place.index(length)];
                match what {
                    0 => changed.0 ^= 8,
                    1 | 2 => changed.1 = call.1,
                    _ => *changed = call,
                }
                programs.push(Program::new(&calls));
            }
            let mut memos = memos();
            for (which, place, times) in order {
                // More sites than there are memos.
                let mut program = which.get(&programs).clone();
                program.at.address += 32 * place;
                let mut without = memo();
                program.walk(&mut without, limit);
                for _ in 0..times {
                    find_or_walk(&mut memos, &program, limit);
                    prop_assert_eq!(frames(memos.chosen()), frames(&without));
                }
            }
        }
    }

    #[test]
    fn the_third_walk_is_found() {
        let mut memos = memos();
        let mut times =
            |program: &Program| [(); 3].map(|()| find_or_walk(&mut memos, program, 100));
        assert_eq!(times(&functions(&[1, 3, 2, 3, 4])), [false, false, true]);
        // Each function finds its frame by the register: all values matter.
        let by_register = functions(&[7, 7, 7]);
        assert_eq!(times(&by_register), [false, false, true]);
        let mut moved = by_register;
        moved.at.bp += 16;
        assert!(!times(&moved)[0]);
    }

    /// The register is checked only where it matters.
    #[test]
    fn a_value_that_makes_no_difference_is_not_checked() {
        let with = |bp: u64| {
            // The third function saves the register for the second, which ignores it, as the first
            // does.
            let mut program = Program::new(&[(0x301, None), (0x101, None), (0x301, Some(bp))]);
            program.at.bp = bp;
            program
        };
        let mut memos = memos();
        let cached = [1, 1, 2, 3].map(|bp| find_or_walk(&mut memos, &with(bp), 100));
        assert_eq!(cached, [false, false, true, true]);
    }

    #[test]
    fn walks_of_another_era_are_not_found() {
        let (mut memos, program) = (memos(), ten(0));
        while !find_or_walk(&mut memos, &program, 100) {}
        let at = frame(program.at);
        assert!(
            memos
                .find_unchanged(1, &at, |words| program.hold(words))
                .is_some()
        );
        assert!(
            memos
                .find_unchanged(2, &at, |words| program.hold(words))
                .is_none()
        );
        assert!(memos.find_unchanged(1, &at, |_| false).is_none());
    }

    #[test]
    fn a_longer_list_than_there_is_room_for_is_none() {
        let mut memos = Memos::with_room_for(1000, "none");
        for (length, is_found) in [(100, true), (300, false)] {
            let program = Program::new(&vec![(0x100, None); length]);
            let cached = [(); 4].map(|()| find_or_walk(&mut memos, &program, 1000));
            assert_eq!(cached[3], is_found, "{length}");
        }
    }

    #[test]
    fn places_in_turn_are_each_known() {
        let inner = |address: u64| {
            let mut program = ten(0);
            program.at.address += address;
            program
        };
        let mut memos = memos();
        let mut unwound = |address: u64| walk(&mut memos, &inner(address), 100);
        // Each walk reuses all frames of the one before but the innermost.
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7].map(&mut unwound),
            [10, 1, 1, 1, 1, 1, 1, 1]
        );
        assert_eq!([3, 1, 0, 2, 6, 1, 0, 7].map(&mut unwound), [0; 8]);
        // A site whose memo was reassigned is new when it comes again.
        assert_eq!([9, 0, 9].map(&mut unwound), [1, 1, 0]);
    }

    #[test]
    fn long_walks_are_not_copied() {
        let mut memos: Memos<_, u64> = Memos::with_room_for(1000, "none");
        let long = |length: usize, address: u64| {
            let mut program = Program::new(&vec![(0x100, None); length]);
            program.at.address += address;
            program
        };
        let length = MOST_COPIED + 1;
        walk(&mut memos, &long(length, 0), 2000);
        let first = memos.chosen;
        for address in 0..9 {
            walk(&mut memos, &long(length, address), 2000);
            assert_eq!(memos.chosen, first);
        }
    }
}
