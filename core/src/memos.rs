//! Several memos: the last walks from different places in the program.
//!
//! A program that allocates at a few places in turn would have its walks find, each time, what the other place's walk left behind. So
//! the last few places have a memo each. A walk from another place takes the memo that was first to be taken, and begins with a
//! copy of the last walk's, wherever that was: it mostly has the frames near the root in common with it, and a frame that is copied is a
//! cache line.

use crate::frame::Frame;
use crate::memo::Memo;

/// Enough for C++ containers, whose calls come from a handful of places: with four, 0.78 of their walks are not those of last time
/// (`scripts/count-walks`), with eight none.
const COUNT: usize = 8;

/// Longer walks stay where they are: copying them costs more than it saves.
const MOST_COPIED: usize = 128;

/// See the module's text. `E` says why a walk ended.
#[derive(Debug)]
pub struct Memos<E> {
    memos: [Memo<E>; COUNT],
    /// Address and stack pointer at which the last walk with each began.
    places: [(u64, u64); COUNT],
    /// That of the last walk, or of the one under way.
    chosen: usize,
    /// To be taken next by a new place.
    next: usize,
}

impl<E: Copy> Memos<E> {
    /// Empty, each as [`Memo::with_room_for`] makes it.
    #[must_use]
    pub fn with_room_for(room: usize, end: E) -> Memos<E> {
        Memos {
            memos: std::array::from_fn(|_| Memo::with_room_for(room, end)),
            places: [(0, 0); COUNT],
            chosen: 0,
            next: 0,
        }
    }

    /// Bytes that [`with_room_for`](Self::with_room_for) takes.
    #[must_use]
    pub const fn bytes_for(room: usize) -> usize {
        COUNT * room * size_of::<Frame>()
    }

    /// Chooses the one for a walk that begins at the frame `at`.
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
        self.chosen = known.unwrap_or_else(|| self.give_one_to(place));
    }

    fn give_one_to(&mut self, place: (u64, u64)) -> usize {
        let mut given = self.chosen;
        if self.chosen().len() <= MOST_COPIED {
            self.next = (self.next + 1) % COUNT;
            // An error: it is the turn of the one that has the last walk. Then there is nothing to copy.
            if let Ok([memo, last]) = self.memos.get_disjoint_mut([self.next, self.chosen]) {
                memo.copy_from(last);
                given = self.next;
            }
        }
        self.places[given] = place;
        given
    }

    /// The one that was chosen last.
    #[inline(always)]
    #[must_use]
    pub fn chosen(&self) -> &Memo<E> {
        &self.memos[self.chosen % COUNT]
    }

    /// The same, to walk with.
    #[inline(always)]
    pub fn chosen_mut(&mut self) -> &mut Memo<E> {
        &mut self.memos[self.chosen % COUNT]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::program::{Program, call, found, frame, memo, ten};

    fn memos() -> Memos<&'static str> {
        Memos::with_room_for(40, "none")
    }

    /// As the walker does: how many frames were unwound.
    fn walk(memos: &mut Memos<&'static str>, program: &Program, limit: usize) -> usize {
        memos.choose(&frame(program.at));
        program.walk(memos.chosen_mut(), limit)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 2000 }))]

        /// Stacks that have their outer calls in common, in any order: each walk finds what a walk without memos finds.
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

    #[test]
    fn places_in_turn_are_each_known() {
        let inner = |address: u64| {
            let mut program = ten(0);
            program.at.address += address;
            program
        };
        let mut memos = memos();
        let mut unwound = |address: u64| walk(&mut memos, &inner(address), 100);
        // Each finds the frames of the one before but for its innermost.
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7].map(&mut unwound),
            [10, 1, 1, 1, 1, 1, 1, 1]
        );
        assert_eq!([3, 1, 0, 2, 6, 1, 0, 7].map(&mut unwound), [0; 8]);
        // The one whose memo is taken is new when it comes again.
        assert_eq!([9, 0, 9].map(&mut unwound), [1, 1, 0]);
    }

    #[test]
    fn long_walks_are_not_copied() {
        let mut memos = Memos::with_room_for(1000, "none");
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
