//! Echo: the set of stack words on which the result of a walk depends.
//!
//! Glossary: echo.
//!
//! Model: a [`Memo`](crate::Memo) compares a walk with the last one frame by frame, so that it can
//! continue where they differ. Most walks do not differ anywhere. For these there is a list of
//! words with their values: the return addresses, and each frame pointer on which an outer frame
//! depends. It is made when a walk is repeated without a change. If no word changed, neither did
//! the walk.
//!
//! An echo is valid in one era of loaded code. It holds the walk's result; the memo has the frames.
//!
//! Not here: reading memory. The caller gets the list, and the address range of its words.

use crate::unwind::frame::Frame;
use crate::unwind::kinds::{Kind, Word, Words};
use crate::unwind::stack_hash::StackHasher;

/// Most words. A walk with more is compared frame by frame.
const MOST: usize = 128;

/// See the module's text. `E` is the result of a walk.
#[derive(Debug)]
pub(crate) struct Echo<E> {
    era: u32,
    /// Sum of the frames.
    frames: StackHasher,
    /// True if the innermost frame is at a return address; and the frame pointer's register there,
    /// if it matters.
    returns: bool,
    bp: Option<u64>,
    words: Vec<Word>,
    start: u64,
    end: u64,
    found: Option<E>,
}

impl<E: Copy> Echo<E> {
    /// Returns an empty echo. It allocates here, and never again.
    pub(crate) fn empty() -> Echo<E> {
        Echo {
            era: 0,
            frames: StackHasher::new(),
            returns: false,
            bp: None,
            words: Vec::with_capacity(MOST),
            start: 0,
            end: 0,
            found: None,
        }
    }

    /// Returns the bytes that an echo allocates.
    pub(crate) const fn bytes() -> usize {
        MOST * size_of::<Word>()
    }

    /// Returns the cached result for a walk at the frame `at`, if `hold` says that the words are
    /// unchanged. `frames` is the sum of the last walk's frames.
    #[inline(always)]
    pub(crate) fn find_unchanged(
        &self,
        era: u32,
        at: &Frame,
        frames: StackHasher,
        hold: impl FnOnce(Words<'_>) -> bool,
    ) -> Option<E> {
        let found = self.found?;
        let is_there = self.era == era
            && self.frames == frames
            && self.returns == at.returns
            && self.bp.is_none_or(|bp| bp == at.bp);
        let words = Words {
            words: &self.words,
            start: self.start,
            end: self.end,
        };
        (is_there && hold(words)).then_some(found)
    }

    /// Clears the echo: the next walk begins elsewhere.
    pub(crate) fn clear(&mut self) {
        self.found = None;
    }

    /// Records the walk through these frames, root first, and its result `found`.
    pub(crate) fn record(&mut self, era: u32, frames: &[Frame], sum: StackHasher, found: E) {
        self.found = None;
        self.words.clear();
        (self.start, self.end) = (u64::MAX, 0);
        // True if the frame pointer's register makes no difference at the frame before, which is
        // the caller.
        let (mut is_free, mut caller): (bool, Option<&Frame>) = (false, None);
        for frame in frames {
            let returns_to = caller.and_then(|caller| frame.returns_to(caller));
            let Some(words) = frame.words() else {
                return; // it depends on unknown words
            };
            for (i, word) in words.enumerate() {
                // The first of two words is the saved register.
                let is_saved = i == 0 && returns_to == Some(1) && frame.kind != Kind::Other;
                if is_saved && is_free {
                    continue;
                }
                let Some(end) = word.at.checked_add(8).filter(|_| self.words.len() < MOST) else {
                    return;
                };
                self.start = self.start.min(word.at);
                self.end = self.end.max(end);
                self.words.push(word);
            }
            is_free = match frame.kind {
                Kind::Restores => true,
                Kind::PassesOn => is_free && returns_to.is_some(),
                _ => false,
            };
            caller = Some(frame);
        }
        let Some(innermost) = caller else {
            return;
        };
        (self.era, self.frames, self.returns) = (era, sum, innermost.returns);
        self.bp = (!is_free).then_some(innermost.bp);
        self.found = Some(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::model_program::{Program, frame, functions, memo};

    /// Returns the echo of the program's walk.
    fn of(program: &Program) -> Echo<()> {
        let mut memo = memo();
        program.walk(&mut memo, 100);
        assert!(program.is_repeated(&mut memo, 1, 100));
        let mut echo = Echo::empty();
        echo.record(1, memo.unchanged().unwrap(), memo.hash(), ());
        assert!(matches(&echo, program));
        echo
    }

    fn matches(echo: &Echo<()>, program: &Program) -> bool {
        let at = frame(program.at);
        let found = echo.find_unchanged(1, &at, echo.frames, |words| program.hold(words));
        found.is_some()
    }

    /// In [`functions`], the seventh finds its frame by the register, the third saves the register,
    /// and the first ignores it.
    #[test]
    fn a_saved_register_matters_if_it_leads_to_the_caller() {
        for (called, matters) in [
            (&[1, 7, 3][..], true),
            (&[1, 7, 1, 3], true),
            (&[1, 7, 1, 1, 3], true),
            (&[1, 3, 3], false),
            (&[1, 3, 1, 3], false),
            // No outer function restores the register: it may matter at the root.
            (&[1, 1, 3], true),
        ] {
            let mut program = functions(called);
            let echo = of(&program);
            // The innermost is the third: four words of its own, the register's word, and the
            // return address.
            let saved = program.at.sp + 8 * 4;
            *program.words.get_mut(&saved).unwrap() += 32;
            assert_eq!(matches(&echo, &program), !matters, "{called:?}");
        }
    }

    #[test]
    fn every_return_address_matters() {
        let called = &[1, 2, 3, 7, 4, 3, 8, 3];
        let program = functions(called);
        let echo = of(&program);
        let returns = program
            .words
            .iter()
            .filter(|(_, value)| called.iter().any(|function| function << 8 == **value));
        let mut count = 0;
        for place in returns.map(|(place, _)| place) {
            let mut changed = program.clone();
            *changed.words.get_mut(place).unwrap() += 8;
            assert!(!matches(&echo, &changed));
            count += 1;
        }
        assert_eq!(count, called.len() - 1);
    }

    /// A signal handler that leaves the register alone was not called by the interrupted function.
    #[test]
    fn a_register_that_is_passed_on_over_frames_that_are_not_there_matters() {
        let frames = |returns: bool| {
            let mut caller = Frame::new(0x300, returns, 0x7100, 0, 1);
            caller.kind = Kind::Restores;
            let mut frame = Frame::new(0x100, true, 0x7000, 5, 1);
            frame.note(0x70f8, 0x300);
            frame.kind = Kind::PassesOn;
            [caller, frame]
        };
        for returns in [true, false] {
            let frames = frames(returns);
            let mut echo = Echo::empty();
            echo.record(1, &frames, StackHasher::new(), ());
            let mut another = frames[1];
            another.bp = 6;
            for (at, is_found) in [(frames[1], true), (another, returns)] {
                let found = echo.find_unchanged(1, &at, StackHasher::new(), |_| true);
                assert_eq!(found.is_some(), is_found);
            }
        }
    }
}
