//! The walker: what a walk needs that is too large for a stack.

use framehop::x86_64::CacheX86_64;
use heapprof_core::{Frame, Memo, Places};
use heapprof_format::WalkEnd;

use crate::room::Room;

/// Most frames a walk can have. The setting can only lower it.
pub(crate) const MAX_FRAMES: usize = 2048;

/// Caches of one walker: rules for 32,000 addresses in all.
const MOST_CACHES: usize = 64;

/// Rules displaced between two looks that call for twice as many caches: each costs a third of a microsecond.
const MANY_DISPLACED: u64 = 2_000;
/// And for sixteen times as many: a quarter of the time between two looks.
const VERY_MANY_DISPLACED: u64 = 16_000;

/// See the module's text.
pub(crate) struct Walker {
    /// Unwind rules by address. framehop's cache has room for 509; a program with more call sites on its
    /// stacks than that gets several, by `tend`. Their number is a power of two.
    caches: Vec<CacheX86_64<Room>>,
    /// In which of them a rule is.
    places: Places,
    /// The last walk, which the next one may have much in common with.
    pub(crate) memo: Memo<WalkEnd>,
    /// The allocation function that the last walk's stack was called with, and the hash of both.
    pub(crate) last: (u64, u64),
    /// The frames of this walk that are not the memo's, innermost first.
    pub(crate) fresh: Vec<Frame>,
    /// The session and hash of the last stack that was found to be known.
    pub(crate) known: (u32, u64),
    /// Rules that were displaced when `tend` last looked.
    displaced: u64,
}

impl Walker {
    pub(crate) fn new() -> Walker {
        Walker {
            caches: vec![CacheX86_64::new_in()],
            places: Places::new(),
            memo: Memo::with_room_for(MAX_FRAMES, WalkEnd::Busy),
            last: (0, 0),
            fresh: Vec::with_capacity(MAX_FRAMES),
            known: (0, 0),
            displaced: 0,
        }
    }

    /// The cache for the rule of an address, and what else a walk needs at the same time.
    #[inline(always)]
    pub(crate) fn parts(
        &mut self,
        address: u64,
    ) -> (&mut CacheX86_64<Room>, &mut Vec<Frame>, &Memo<WalkEnd>) {
        let index = self.places.cache_of(address, self.caches.len());
        (&mut self.caches[index], &mut self.fresh, &self.memo)
    }

    /// The rule of this address displaced another's.
    #[cold]
    pub(crate) fn has_displaced(&mut self, address: u64) {
        self.places.has_displaced(address);
    }

    /// Gives it more caches, if its rules keep displacing each other. Now and then, in the writer.
    pub(crate) fn tend(&mut self) {
        let stats = self.caches.iter().map(|cache| cache.stats());
        let displaced = stats.map(|stats| stats.miss_wrong_address_count).sum();
        let since = displaced - std::mem::replace(&mut self.displaced, displaced).min(displaced);
        let times = match since {
            0..MANY_DISPLACED => return,
            MANY_DISPLACED..VERY_MANY_DISPLACED => 2,
            _ => 16,
        };
        let count = (self.caches.len() * times).min(MOST_CACHES);
        self.caches.resize_with(count, CacheX86_64::new_in);
    }
}
