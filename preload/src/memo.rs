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
//! Frames are kept root first, so that what is new is pushed on top, and the hash of the kept part is at hand.

use heapprof_core::StackHasher;
use heapprof_format::WalkEnd;

use crate::stack::Readable;

/// Words that unwinding one frame may have read and still be kept: a return address and a frame pointer.
const WORDS: usize = 2;

/// One frame of a walk: where it was, and what unwinding it read.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) address: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    /// What goes into the hash for this frame: the address and its module.
    pub(crate) hashed: u64,
    /// Addresses and values of the words that were read.
    read: [(u64, u64); WORDS],
    /// How many there were; more than [`WORDS`]: not all are known.
    reads: u8,
    /// The address is a return address, not one that a signal interrupted.
    pub(crate) returns: bool,
    /// Hash of all frames from the root to this one, once it is in the memo.
    hash: StackHasher,
}

const _: () = assert!(size_of::<Frame>() <= 80);

impl Frame {
    pub(crate) fn new(address: u64, returns: bool, sp: u64, bp: u64, tag: u64) -> Frame {
        Frame {
            address,
            sp,
            bp,
            hashed: address ^ tag,
            read: [(0, 0); WORDS],
            reads: 0,
            returns,
            hash: StackHasher::new(),
        }
    }

    /// Notes a word that unwinding this frame depends on.
    #[inline(always)]
    pub(crate) fn note(&mut self, address: u64, value: u64) {
        if let Some(place) = self.read.get_mut(usize::from(self.reads)) {
            *place = (address, value);
        }
        self.reads = self.reads.saturating_add(1);
    }

    /// Notes that it depends on more than can be kept.
    pub(crate) fn note_more(&mut self) {
        self.reads = u8::MAX;
    }

    /// Whether every word still has its value.
    #[inline(always)]
    fn still_holds(&self, stack: &mut Readable) -> bool {
        let Some(known) = self.read.get(..usize::from(self.reads)) else {
            return false;
        };
        known
            .iter()
            .all(|&(address, value)| stack.word(address) == Ok(value))
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

/// Where a walk looks next in the memo.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    /// Frames of the memo that may still be met, from the root.
    len: usize,
    /// Only frames below this index may hold: the one at it was found changed.
    below: usize,
}

impl Cursor {
    /// Meets nothing.
    pub(crate) fn nowhere() -> Cursor {
        Cursor { len: 0, below: 0 }
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
        Cursor {
            len: self.frames.len(),
            below: usize::MAX,
        }
    }

    /// How many frames of the memo, from the root, are the rest of the walk that is at these registers; `None`:
    /// not known from here.
    #[inline]
    pub(crate) fn rest(
        &self,
        cursor: &mut Cursor,
        at: &Frame,
        stack: &mut Readable,
    ) -> Option<usize> {
        while cursor.len > 0 && self.frames[cursor.len - 1].sp < at.sp {
            cursor.len -= 1;
        }
        let last = cursor.len.checked_sub(1)?;
        let met = &self.frames[last];
        let same = met.address == at.address
            && met.sp == at.sp
            && met.bp == at.bp
            && met.returns == at.returns;
        if !same || last >= cursor.below {
            return None;
        }
        match self.frames[..=last]
            .iter()
            .rposition(|frame| !frame.still_holds(stack))
        {
            None => Some(cursor.len),
            Some(changed) => {
                cursor.below = changed;
                None
            }
        }
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
        for frame in fresh.iter().rev() {
            hash.push(frame.hashed);
            self.frames.push(Frame { hash, ..*frame });
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
