//! The walker: the state of a walk that is too large for a stack.
//!
//! Glossary: walker.

use std::sync::atomic::{AtomicU32, Ordering};

use framehop::CacheNative;
use heapprof_core::{Frame, Memos, Rules, StackHasher};
use heapprof_format::WalkEnd;

use crate::unwind::cfi_storage::CfiStorage;
use crate::unwind::python::PythonWalk;

/// Most frames of a walk. The setting can only lower it.
pub(crate) const MAX_FRAMES: usize = 2048;

/// Capacity of a walker for rules, at first and at most, in addresses.
const RULES: usize = 1 << 10;
const MOST_RULES: usize = 1 << 16;

/// Number of rules that must be displaced between two visits of the writer before the walker
/// requests four times as much room. A rule that is displaced has to be derived again, which is
/// slow in large functions.
const MANY_DISPLACED: u64 = 200;

/// Longest recorded stack, in frames, including the allocation function's.
static DEPTH: AtomicU32 = AtomicU32::new(513);
/// At boot: sets the longest recorded stack. `depth` counts the program's frames only.
pub(crate) fn set_depth(depth: u32) {
    DEPTH.store(depth.clamp(1, MAX_FRAMES as u32) + 1, Ordering::Relaxed);
}

/// Returns the longest recorded stack, in frames, including the allocation function's.
#[inline]
pub(crate) fn depth() -> usize {
    DEPTH.load(Ordering::Relaxed) as usize
}

/// Returns the most frames that a walk can hold at once.
pub(crate) fn most_frames() -> usize {
    depth() + 1
}

/// The result of a walk; the frames themselves are in the walker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walked {
    pub(crate) hash: u64,
    pub(crate) end: WalkEnd,
}

/// The result of an echo: the allocation function's entry, and the result of the walk.
pub(crate) type EchoResult = (u64, Walked);

/// The entry, frames' hash and end of a walk, and the hash of all three.
type LastWalk = ((u64, StackHasher, WalkEnd), u64);

/// The state of walks; see the module's text.
pub(crate) struct Walker {
    /// Unwind rules by return address, for nearly every frame of a walk.
    pub(crate) rules: Rules,
    /// framehop's own cache, used once for each rule, and for frames without a rule.
    pub(crate) cache: CacheNative<CfiStorage>,
    /// The memos of recent walks, with which the next walk may have frames in common.
    pub(crate) memos: Memos<WalkEnd, EchoResult>,
    /// The last walk: the allocation function, the frames and the end, and the hash of all three.
    pub(crate) last: LastWalk,
    /// The frames of this walk that are not in the memo, innermost first.
    pub(crate) new_frames: Vec<Frame>,
    /// The Python frames of a walk.
    pub(crate) python: PythonWalk,
    /// The session and hash of the last stack that was found in the set of known stacks.
    pub(crate) known_stack: (u32, u64),
    /// Number of displaced rules after the first walk since the writer's last visit, and the number
    /// of that visit.
    displaced: (u64, u32),
}

impl Walker {
    /// Returns the bytes of one walker, with an allowance for the allocator's rounding.
    pub(crate) fn bytes() -> usize {
        let frames = most_frames();
        let new_frames = frames * size_of::<Frame>();
        (Memos::<WalkEnd, EchoResult>::bytes_for(frames) + new_frames) * 5 / 4 + (64 << 10)
    }

    const NO_LAST: LastWalk = ((0, StackHasher::new(), WalkEnd::Busy), 0);

    pub(crate) fn new() -> Walker {
        let frames = most_frames();
        Walker {
            rules: Rules::with_room_for(RULES),
            cache: CacheNative::new_in(),
            memos: Memos::with_room_for(frames, WalkEnd::Busy),
            last: Walker::NO_LAST,
            new_frames: Vec::with_capacity(frames),
            python: PythonWalk::new(),
            known_stack: (0, 0),
            displaced: (0, 0),
        }
    }

    /// Begins a walk in an era. If it differs from the last walk's, cached results are discarded.
    #[inline]
    pub(crate) fn set_era(&mut self, era: u32) {
        if self.rules.set_era(era) {
            self.last = Walker::NO_LAST;
        }
    }

    /// After a walk: returns the number of rules that the walker needs room for. It is larger than
    /// now if rules have often displaced each other since the writer's visit number `looks`.
    /// `None`: the room suffices.
    #[inline]
    pub(crate) fn wanted_capacity(&mut self, looks: u32) -> Option<usize> {
        let displaced = self.rules.displaced();
        if self.displaced.1 != looks {
            self.displaced = (displaced, looks);
        }
        let is_crowded = displaced - self.displaced.0 >= MANY_DISPLACED;
        (is_crowded && self.rules.room() < MOST_RULES).then_some(4 * self.rules.room())
    }

    /// Notes that the rules have moved to a larger table.
    pub(crate) fn note_move(&mut self) {
        self.displaced.0 = self.rules.displaced();
    }
}
