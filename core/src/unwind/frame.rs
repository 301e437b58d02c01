//! Frame: one step of a walk, its registers and the stack words that unwinding it read.
//!
//! Unwinding a frame is a function of its registers and of the stack words that it reads. The frame
//! keeps both. So a later walk can check whether the same frame would still lead to the same
//! caller, and which words differ.
//!
//! Not here: which frames two walks have in common ([`Memo`](crate::Memo)), rules ([`Rule`]).

use crate::unwind::kinds::{Cursor, Kind, Word};
use crate::unwind::rules::Rule;
use crate::unwind::stack_hash::StackHasher;

/// Words that unwinding one frame may have read and still be kept: a frame pointer and a return
/// address.
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
    /// Its summand in the hash of the stack, at its place in the memo.
    pub(crate) summand: u64,
    /// Number of the module plus one; 0: of none.
    module: u32,
    /// How many words were read; more than [`WORDS`]: not all are known.
    reads: u8,
    /// Whether the address is a return address.
    pub returns: bool,
    /// How it was unwound.
    pub(crate) kind: Kind,
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
            kind: Kind::Other,
        }
    }

    /// Unwinds it by a rule, and notes the words that were read. `None`: not by this rule; nothing
    /// is noted.
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
    fn word_at(&self, i: usize) -> u64 {
        self.sp.wrapping_add_signed(self.offsets[i].into())
    }

    /// The words that were read. `None`: not all are known.
    pub(crate) fn words(&self) -> Option<impl Iterator<Item = Word> + '_> {
        let reads = usize::from(self.reads);
        let word = |i| Word {
            at: self.word_at(i),
            value: self.values[i],
        };
        (reads <= WORDS).then(|| (0..reads).map(word))
    }

    /// Whether every word still has its value.
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

    /// Whether a walk that is here is where this one was, but for the frame pointer's register.
    #[inline(always)]
    pub(crate) fn is_at(&self, here: &Frame) -> bool {
        self.address == here.address && self.sp == here.sp && self.returns == here.returns
    }

    /// The words that say where that caller is and which value the register has there, if no others
    /// changed: read anew.
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
                    return None; // it may say anything
                }
                saved = Some(first);
            }
        }
        let address = word(self.word_at(last)).filter(|&address| address != 0)?;
        Some(ChangedWords { address, saved })
    }

    /// Notes other values of the words that were read.
    #[inline(always)]
    pub(crate) fn put(&mut self, anew: ChangedWords) {
        if let Some(saved) = anew.saved {
            self.values[0] = saved;
        }
        if let Some(last) = usize::from(self.reads).checked_sub(1) {
            self.values[last] = anew.address;
        }
    }

    /// Returns which of the words is the return address into that caller: the last, by every rule.
    /// `None` if none is, because a signal's frame or frames of our own lie between.
    #[inline(always)]
    pub(crate) fn returns_to(&self, caller: &Frame) -> Option<usize> {
        let last = usize::from(self.reads).checked_sub(1)?;
        let is_known = last < WORDS && caller.returns;
        (is_known
            && self.values[last] == caller.address
            && self.word_at(last) == caller.sp.wrapping_sub(8))
        .then_some(last)
    }

    /// Whether that rule leads from here to the same caller as the frame's own did, by the same
    /// words.
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

    /// Puts it at another address of the same function, from where that rule leads on as before.
    #[inline(always)]
    pub(crate) fn move_to(&mut self, address: u64, rule: Rule) {
        (self.address, self.module) = (address, rule.module());
    }

    /// How it was unwound.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of its module plus one; 0: of none.
    #[must_use]
    pub fn module(&self) -> u32 {
        self.module
    }

    /// Returns the summand of this frame in the hash of a stack, `place` frames above the root.
    /// Another module at the same place makes another stack.
    #[inline(always)]
    #[must_use]
    pub fn summand_at(&self, place: usize) -> u64 {
        StackHasher::of_frame(place, self.address ^ u64::from(self.module) << 48)
    }
}

/// Words of a frame that are others than before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangedWords {
    /// The return address; it may be what it was.
    pub(crate) address: u64,
    /// The value of the frame pointer's register that was saved, if it is another.
    pub(crate) saved: Option<u64>,
}
