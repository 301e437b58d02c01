//! Echo: the stack words on which a walk's result depends. If none changed, the result is the same.
//!
//! Model: a [`Memo`](crate::Memo) compares a walk with the last one frame by frame, and the walk
//! resumes where they differ. Most walks do not differ. For these there is a list of words and
//! their values, made when a walk is found again without a change. The words are the return
//! addresses, and the frame pointers on which an outer frame depends. If all of them hold, the
//! result is that of the listed walk.
//!
//! The list is valid while the code is the same (the era). It gives the result; the frames
//! themselves are the memo's.
//!
//! Not here: reading memory. The caller gets the list, and the range of addresses that its words
//! lie in.

use crate::unwind::frame::Frame;
use crate::unwind::kinds::{Kind, Word, Words};
use crate::unwind::stack_hash::StackHasher;

/// Longer lists are not made: such walks are compared frame by frame.
const MOST: usize = 128;

/// See the module's text. `E` says what was found.
#[derive(Debug)]
pub(crate) struct Echo<E> {
    era: u32,
    /// The hash of the frames.
    frames: StackHasher,
    /// Whether the innermost frame is at a return address, and the frame pointer's register there
    /// if that matters.
    returns: bool,
    bp: Option<u64>,
    words: Vec<Word>,
    start: u64,
    end: u64,
    found: Option<E>,
}

impl<E: Copy> Echo<E> {
    /// Creates an echo of no walk. It allocates here, and never again.
    pub(crate) fn none() -> Echo<E> {
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

    /// Bytes that one takes.
    pub(crate) const fn bytes() -> usize {
        MOST * size_of::<Word>()
    }

    /// Returns the result of the walk from the frame `at`, if the last walk is the one with the
    /// hash `frames`, and `hold` says that its words are unchanged.
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

    /// Forgets the walk: the next walk begins elsewhere.
    pub(crate) fn forget(&mut self) {
        self.found = None;
    }

    /// Takes the walk through these frames, root first, with the result `found`.
    pub(crate) fn make(&mut self, era: u32, frames: &[Frame], sum: StackHasher, found: E) {
        self.found = None;
        self.words.clear();
        (self.start, self.end) = (u64::MAX, 0);
        // Whether another value in the frame pointer's register would make no difference at the
        // frame before, which is the caller.
        let (mut is_free, mut caller): (bool, Option<&Frame>) = (false, None);
        for frame in frames {
            let returns_to = caller.and_then(|caller| frame.returns_to(caller));
            let Some(words) = frame.words() else {
                return; // it depends on more than is known
            };
            for (i, word) in words.enumerate() {
                // The first of two is where the register was saved.
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

    /// The echo of the program's walk.
    fn of(program: &Program) -> Echo<()> {
        let mut memo = memo();
        program.walk(&mut memo, 100);
        assert!(program.is_again(&mut memo, 1, 100));
        let mut echo = Echo::none();
        echo.make(1, memo.unchanged().unwrap(), memo.hash(), ());
        assert!(finds(&echo, program));
        echo
    }

    fn finds(echo: &Echo<()>, program: &Program) -> bool {
        let at = frame(program.at);
        let heard = echo.find_unchanged(1, &at, echo.frames, |words| program.hold(words));
        heard.is_some()
    }

    /// Functions of [`functions`]: the seventh finds its frame by the register, the third saves it,
    /// the first has nothing to do with it.
    #[test]
    fn a_register_that_was_saved_matters_to_whom_it_leads_to_the_caller() {
        for (called, matters) in [
            (&[1, 7, 3][..], true),
            (&[1, 7, 1, 3], true),
            (&[1, 7, 1, 1, 3], true),
            (&[1, 3, 3], false),
            (&[1, 3, 1, 3], false),
            // None restores it any more: whether the value makes a difference at the root is not
            // known.
            (&[1, 1, 3], true),
        ] {
            let mut program = functions(called);
            let echo = of(&program);
            // The innermost is the third, with four words of its own, that of the register, and the
            // return address.
            let saved = program.at.sp + 8 * 4;
            *program.words.get_mut(&saved).unwrap() += 32;
            assert_eq!(finds(&echo, &program), !matters, "{called:?}");
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
            assert!(!finds(&echo, &changed));
            count += 1;
        }
        assert_eq!(count, called.len() - 1);
    }

    /// A signal's handler that leaves the register alone was not called by what it interrupted.
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
            let mut echo = Echo::none();
            echo.make(1, &frames, StackHasher::new(), ());
            let mut another = frames[1];
            another.bp = 6;
            for (at, is_heard) in [(frames[1], true), (another, returns)] {
                let heard = echo.find_unchanged(1, &at, StackHasher::new(), |_| true);
                assert_eq!(heard.is_some(), is_heard);
            }
        }
    }
}
