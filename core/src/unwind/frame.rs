//! Frame: one step of a walk, with the registers and the stack words that unwinding it read.
//!
//! Unwinding a frame is a function of its registers and of the stack words that it reads. Both are
//! kept. So a later walk can check whether the frame still leads to the same caller, and find what
//! changed.
//!
//! Not here: the frames that two walks have in common ([`Memo`](crate::Memo)), rules ([`Rule`]).

use crate::unwind::kinds::{Cursor, Kind, Word};
use crate::unwind::rules::Rule;
use crate::unwind::stack_hash::StackHasher;

/// Most words of one frame that are kept: a frame pointer and a return address.
const WORDS: usize = 2;

/// One frame of a walk. It takes one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Frame {
    /// The program counter: a return address, or one that a signal interrupted.
    pub address: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer's register.
    pub bp: u64,
    /// Values of the words that were read.
    values: [u64; WORDS],
    /// Their distances from the stack pointer, in bytes.
    offsets: [i32; WORDS],
    /// Contribution to the hash of the stack, at the frame's place in the memo.
    pub(crate) summand: u64,
    /// Number of the module plus one; 0: no module.
    module: u32,
    /// Number of words that were read. Above [`WORDS`]: some are unknown.
    reads: u8,
    /// True if the address is a return address.
    pub returns: bool,
    /// The way in which it was unwound.
    pub(crate) kind: Kind,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    /// Returns a frame without words. `module` is the number of its module plus one, or 0.
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
            kind: Kind::Other,
        }
    }

    /// Unwinds the frame by a rule, and notes the words that were read. Returns `None`, and notes
    /// nothing, if the rule does not apply.
    ///
    /// `word` reads the stack.
    #[inline(always)]
    pub fn unwind(
        &mut self,
        rule: Rule,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> Option<Cursor> {
        let kind = rule.kind();
        let (sp, saved) = match kind {
            Kind::Other => return None,
            Kind::PassesOn => (self.sp.checked_add(rule.up())?, None),
            Kind::Restores => (
                self.sp.checked_add(rule.up())?,
                Some(self.sp.checked_add_signed(rule.saved())?),
            ),
            Kind::ByRegister => (self.bp.checked_add(16)?, Some(self.bp)),
        };
        if sp <= self.sp {
            return None;
        }
        let bp = match saved {
            Some(saved) => word(saved)?,
            None => self.bp,
        };
        let address = word(sp - 8).filter(|&address| address != 0)?;
        if let Some(saved) = saved {
            self.note(saved, bp);
        }
        self.note(sp - 8, address);
        (self.kind, self.module) = (kind, rule.module());
        Some(Cursor {
            address,
            returns: true,
            sp,
            bp,
        })
    }

    /// Notes a word on which unwinding this frame depends.
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

    /// Notes that the frame depends on more words than can be kept.
    pub fn note_more(&mut self) {
        self.reads = u8::MAX;
    }

    /// Returns the address of a word that was read.
    #[inline(always)]
    fn word_at(&self, i: usize) -> u64 {
        self.sp.wrapping_add_signed(self.offsets[i].into())
    }

    /// Returns the words that were read, or `None` if some are unknown.
    pub(crate) fn words(&self) -> Option<impl Iterator<Item = Word> + '_> {
        let reads = usize::from(self.reads);
        let word = |i| Word {
            at: self.word_at(i),
            value: self.values[i],
        };
        (reads <= WORDS).then(|| (0..reads).map(word))
    }

    /// Returns true if every word has its old value.
    #[inline(always)]
    pub(crate) fn still_holds(&self, word: &mut impl FnMut(u64) -> Option<u64>) -> bool {
        let mut holds = |i| word(self.word_at(i)) == Some(self.values[i]);
        match self.reads {
            0 => true,
            1 => holds(0),
            2 => holds(0) && holds(1),
            _ => false,
        }
    }

    /// Returns true if a walk at `here` is at this frame, whatever the frame pointer's register is.
    #[inline(always)]
    pub(crate) fn is_at(&self, here: &Frame) -> bool {
        self.address == here.address && self.sp == here.sp && self.returns == here.returns
    }

    /// Reads the words that tell the caller's address and the caller's frame pointer. Returns
    /// `None` if any other word changed.
    #[inline(always)]
    pub(crate) fn read_changed(
        &self,
        caller: &Frame,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<ChangedWords> {
        let last = self.returns_to(caller)?;
        let mut saved = None;
        if last == 1 {
            let first = word(self.word_at(0))?;
            if first != self.values[0] {
                if self.kind == Kind::Other {
                    return None; // it may be anything
                }
                saved = Some(first);
            }
        }
        let address = word(self.word_at(last)).filter(|&address| address != 0)?;
        Some(ChangedWords { address, saved })
    }

    /// Stores new values of the words.
    #[inline(always)]
    pub(crate) fn put(&mut self, changed_words: ChangedWords) {
        if let Some(saved) = changed_words.saved {
            self.values[0] = saved;
        }
        if let Some(last) = usize::from(self.reads).checked_sub(1) {
            self.values[last] = changed_words.address;
        }
    }

    /// Returns the index of the word with the address at which `caller` goes on: the last word, by
    /// every rule. Returns `None` if a signal's frame or a frame of ours lies in between.
    #[inline(always)]
    pub(crate) fn returns_to(&self, caller: &Frame) -> Option<usize> {
        let last = usize::from(self.reads).checked_sub(1)?;
        let is_known = last < WORDS && caller.returns;
        (is_known
            && self.values[last] == caller.address
            && self.word_at(last) == caller.sp.wrapping_sub(8))
        .then_some(last)
    }

    /// Returns true if `rule` leads from here to the same caller as the frame's own rule, by the
    /// same words.
    #[inline(always)]
    pub(crate) fn leads_on_by(&self, rule: Rule) -> bool {
        let up = rule.up().wrapping_sub(8);
        let is_offset = |offset: i32, bytes: u64| i64::from(offset) as u64 == bytes;
        self.kind == rule.kind()
            && match self.kind {
                Kind::Other => false,
                Kind::PassesOn => is_offset(self.offsets[0], up),
                Kind::Restores => {
                    is_offset(self.offsets[0], rule.saved() as u64)
                        && is_offset(self.offsets[1], up)
                }
                Kind::ByRegister => true,
            }
    }

    /// Moves the frame to another address of the same function, from which `rule` leads on as
    /// before.
    #[inline(always)]
    pub(crate) fn move_to(&mut self, address: u64, rule: Rule) {
        (self.address, self.module) = (address, rule.module());
    }

    /// Returns the way in which it was unwound.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of its module plus one, or 0.
    #[must_use]
    pub fn module(&self) -> u32 {
        self.module
    }

    /// Returns the frame's contribution to the hash of a stack, `place` frames above the root.
    /// Another module at the same place makes another stack.
    #[inline(always)]
    #[must_use]
    pub fn summand_at(&self, place: usize) -> u64 {
        StackHasher::of_frame(place, self.address ^ u64::from(self.module) << 48)
    }
}

/// Words of a frame that changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangedWords {
    /// The return address, changed or not.
    pub(crate) address: u64,
    /// The saved value of the frame pointer's register, if it changed.
    pub(crate) saved: Option<u64>,
}
