//! The memo of a walk: what the next walk of the same thread mostly has in common with it.
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
//! Where the words of one frame have changed (it returns elsewhere than last time), that frame is unwound, and
//! the memo may be met again behind it.
//!
//! Frames are kept root first, so that what is new is pushed on top, and the hash of the kept part is at hand.

use heapprof_core::StackHasher;
use heapprof_format::WalkEnd;

use crate::stack::Readable;

/// Words that unwinding one frame may have read and still be kept: a return address and a frame pointer.
const WORDS: usize = 2;

/// One frame of a walk: where it was, and what unwinding it read. One cache line.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) address: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    /// Values of the words that were read.
    values: [u64; WORDS],
    /// Where they were, from the stack pointer on, in bytes.
    offsets: [i32; WORDS],
    /// Hash of all frames from the root to this one, once it is in the memo.
    hash: StackHasher,
    /// Number of the module plus one; 0: of none.
    module: u32,
    /// How many words were read; more than [`WORDS`]: not all are known.
    reads: u8,
    /// The address is a return address, not one that a signal interrupted.
    pub(crate) returns: bool,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    pub(crate) fn new(address: u64, returns: bool, sp: u64, bp: u64, module: u32) -> Frame {
        Frame {
            address,
            sp,
            bp,
            values: [0; WORDS],
            offsets: [0; WORDS],
            hash: StackHasher::new(),
            module,
            reads: 0,
            returns,
        }
    }

    /// Notes a word that unwinding this frame depends on.
    #[inline(always)]
    pub(crate) fn note(&mut self, address: u64, value: u64) {
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
    pub(crate) fn note_more(&mut self) {
        self.reads = u8::MAX;
    }

    /// Whether every word still has its value.
    #[inline(always)]
    fn still_holds(&self, stack: &mut Readable) -> bool {
        let reads = usize::from(self.reads);
        reads <= WORDS
            && (0..reads).all(|i| {
                let address = self.sp.wrapping_add_signed(self.offsets[i].into());
                stack.word(address) == Ok(self.values[i])
            })
    }

    /// What goes into the hash of a stack for this frame: another module at the same place makes another
    /// stack.
    fn hashed(&self) -> u64 {
        self.address ^ u64::from(self.module) << 48
    }
}

/// See the module's text.
pub(crate) struct Memo {
    /// Root first.
    frames: Vec<Frame>,
    end: WalkEnd,
    /// Unloaded modules at the time, as `modules` counts them: code may have changed since.
    closed: u32,
}

/// Where a walk looks next in the memo: frames that may still be met, counted from the root.
#[derive(Clone, Copy)]
pub(crate) struct Cursor(usize);

/// What a walk has in common with the memo from a frame outwards.
pub(crate) enum Met {
    /// Nothing that is known.
    Nothing,
    /// Everything: so many frames of the memo, from the root, are the rest of the walk.
    Rest(usize),
    /// The frames from `first` out to just before `changed`, of which the words that are read have changed.
    Part { first: usize, changed: usize },
}

impl Cursor {
    /// Meets nothing.
    pub(crate) fn nowhere() -> Cursor {
        Cursor(0)
    }
}

impl Memo {
    pub(crate) fn with_room_for(frames: usize) -> Memo {
        Memo {
            frames: Vec::with_capacity(frames),
            end: WalkEnd::Busy,
            closed: 0,
        }
    }

    /// Begins a walk, with `closed` modules unloaded so far.
    pub(crate) fn begin(&mut self, closed: u32) -> Cursor {
        // A walk that was cut at the depth limit would be cut elsewhere next time.
        if self.closed != closed || self.end == WalkEnd::TooDeep {
            self.frames.clear();
            self.closed = closed;
        }
        Cursor(self.frames.len())
    }

    /// What the walk that is at the frame `at` has in common with the memo from there on.
    #[inline]
    pub(crate) fn meet(&self, cursor: &mut Cursor, at: &Frame, stack: &mut Readable) -> Met {
        while cursor.0 > 0 && self.frames[cursor.0 - 1].sp < at.sp {
            cursor.0 -= 1;
        }
        let Some(first) = cursor.0.checked_sub(1) else {
            return Met::Nothing;
        };
        let met = &self.frames[first];
        let same = met.address == at.address
            && met.sp == at.sp
            && met.bp == at.bp
            && met.returns == at.returns;
        if !same {
            return Met::Nothing;
        }
        let frames = &self.frames[..=first];
        match frames.iter().rposition(|frame| !frame.still_holds(stack)) {
            None => Met::Rest(cursor.0),
            Some(changed) if changed == first => Met::Nothing,
            Some(changed) => Met::Part { first, changed },
        }
    }

    /// The frames of a [`Met::Part`], innermost first, and the one at which unwinding goes on.
    pub(crate) fn part(
        &self,
        first: usize,
        changed: usize,
    ) -> (impl Iterator<Item = Frame> + '_, Frame) {
        (
            self.frames[changed + 1..=first].iter().rev().copied(),
            self.frames[changed],
        )
    }

    /// Ends a walk: `kept` frames of the memo and the `fresh` ones (innermost first) are the new memo.
    pub(crate) fn end(&mut self, kept: usize, fresh: &[Frame], end: WalkEnd) {
        self.frames.truncate(kept);
        if kept == 0 {
            self.end = end;
        }
        let mut hash = match self.frames.last() {
            Some(frame) => frame.hash,
            None => {
                let mut hash = StackHasher::new();
                hash.push(self.end as u64);
                hash
            }
        };
        self.frames.extend(fresh.iter().rev());
        for frame in self.frames.iter_mut().skip(kept) {
            hash.push(frame.hashed());
            frame.hash = hash;
        }
    }

    /// Why the walk ended.
    pub(crate) fn why_ended(&self) -> WalkEnd {
        self.end
    }

    /// Hash of the whole stack.
    pub(crate) fn hash(&self) -> StackHasher {
        self.frames
            .last()
            .map_or(StackHasher::new(), |frame| frame.hash)
    }

    /// Its frames, innermost first.
    pub(crate) fn innermost_first(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().rev()
    }
}
