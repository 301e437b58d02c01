//! The walker: what a walk needs that is too large for a stack.

use std::sync::atomic::{AtomicU32, Ordering};

use framehop::CacheNative;
use heapprof_core::{Frame, Memos, Rules, StackHasher};
use heapprof_format::WalkEnd;

use crate::unwind::cfi_storage::Room;

/// Most frames a walk can have. The setting can only lower it.
pub(crate) const MAX_FRAMES: usize = 2048;

/// Addresses whose rules a walker has room for, at first and at most: 16 KiB and a mebibyte.
const RULES: usize = 1 << 10;
const MOST_RULES: usize = 1 << 16;

/// Rules displaced between two looks of the writer that call for four times as much room. To learn one again costs from a third of a microsecond
/// to several, in large functions.
const MANY_DISPLACED: u64 = 200;

/// Longest stack to be recorded, in frames, the allocation function's included.
static DEPTH: AtomicU32 = AtomicU32::new(513);
/// At boot. `depth`: the longest stack, in frames of the program.
pub(crate) fn set_depth(depth: u32) {
    DEPTH.store(depth.clamp(1, MAX_FRAMES as u32) + 1, Ordering::Relaxed);
}

/// Returns the longest stack to be recorded, in frames, the allocation function's included.
#[inline]
pub(crate) fn depth() -> usize {
    DEPTH.load(Ordering::Relaxed) as usize
}

/// Most frames that a walk can come to hold at once.
pub(crate) fn most_frames() -> usize {
    depth() + 1
}

/// What a walk found; the frames themselves are in the walker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walked {
    pub(crate) hash: u64,
    pub(crate) end: WalkEnd,
}

/// What a walk to the allocation function at `entry` found: what an echo says.
pub(crate) type Heard = (u64, Walked);

/// What a walk found, and the hash of that.
type Last = ((u64, StackHasher, WalkEnd), u64);

/// See the module's text.
pub(crate) struct Walker {
    /// Unwind rules by return address, of nearly every frame that walks lead past.
    pub(crate) rules: Rules,
    /// framehop's own, for what it is still asked: once for each of the rules, and for frames that have none.
    pub(crate) cache: CacheNative<Room>,
    /// The last walks, which the next one may have much in common with.
    pub(crate) memos: Memos<WalkEnd, Heard>,
    /// Of the last walk: the allocation function, the frames and the end, and the hash of all three.
    pub(crate) last: Last,
    /// The frames of this walk that are not the memo's, innermost first.
    pub(crate) fresh: Vec<Frame>,
    /// The session and hash of the last stack that was found to be known.
    pub(crate) known: (u32, u64),
    /// How many rules had been displaced after the first walk since the writer's last look, and the number of that look.
    displaced: (u64, u32),
}

impl Walker {
    /// Bytes that one takes, and some for the allocator's rounding.
    pub(crate) fn bytes() -> usize {
        let frames = most_frames();
        let fresh = frames * size_of::<Frame>();
        (Memos::<WalkEnd, Heard>::bytes_for(frames) + fresh) * 5 / 4 + (64 << 10)
    }

    const NO_LAST: Last = ((0, StackHasher::new(), WalkEnd::Busy), 0);

    pub(crate) fn new() -> Walker {
        let frames = most_frames();
        Walker {
            rules: Rules::with_room_for(RULES),
            cache: CacheNative::new_in(),
            memos: Memos::with_room_for(frames, WalkEnd::Busy),
            last: Walker::NO_LAST,
            fresh: Vec::with_capacity(frames),
            known: (0, 0),
            displaced: (0, 0),
        }
    }

    /// A walk begins in that era: what was found in another is forgotten.
    #[inline]
    pub(crate) fn set_era(&mut self, era: u32) {
        if self.rules.set_era(era) {
            self.last = Walker::NO_LAST;
        }
    }

    /// For how many rules it needs room, after a walk: they have displaced each other often since the writer's last look, which was number
    /// `looks`. `None`: for no more than it has.
    #[inline]
    pub(crate) fn room_wanted(&mut self, looks: u32) -> Option<usize> {
        let displaced = self.rules.displaced();
        if self.displaced.1 != looks {
            self.displaced = (displaced, looks);
        }
        let is_crowded = displaced - self.displaced.0 >= MANY_DISPLACED;
        (is_crowded && self.rules.room() < MOST_RULES).then_some(4 * self.rules.room())
    }

    /// Its rules have moved.
    pub(crate) fn has_moved(&mut self) {
        self.displaced.0 = self.rules.displaced();
    }
}
