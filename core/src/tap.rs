//! A tap: the writer's side of a lane.
//!
//! It keeps what the lane's side keeps of the last events, and so knows what the next is near to.

use crate::event::{
    AGAIN, ALONE, BY, By, FREED, FREED_NEAR, Freed, KIND_BITS, NEAR_SHIFT, Next, Out, SAMPLED,
    SIZE_BITS, SLACK_SHIFT, Sampled, TICK_BITS, low,
};
use crate::lane::{Lane, id_after};
use crate::primitive::atomic::Ordering;

/// The writer's side of a lane.
#[derive(Debug)]
pub(crate) struct Tap<'a> {
    lane: &'a Lane,
    /// Words taken out so far.
    at: u64,
    /// Words that were there when that was last asked.
    end: u64,
    /// Words given back so far.
    given_back: u64,
    by: By,
    /// Id of the last sample that came out.
    pub(crate) last_id: u64,
    last_stack: u64,
    /// When the last event was.
    last_at: u64,
    /// When the next event was; `u64::MAX`: there is none.
    pub(crate) next_at: u64,
}

impl<'a> Tap<'a> {
    pub(crate) fn new(lane: &'a Lane) -> Tap<'a> {
        Tap {
            lane,
            at: 0,
            end: 0,
            given_back: 0,
            by: By {
                thread: 0,
                interval: 0,
            },
            last_id: 0,
            last_stack: 0,
            last_at: 0,
            next_at: u64::MAX,
        }
    }

    /// Looks what is there by now.
    #[inline]
    pub(crate) fn look(&mut self) {
        self.end = self.lane.published();
        if self.next_at == u64::MAX {
            self.find_next();
        }
    }

    /// Whether more than half of the lane waits to be taken.
    pub(crate) fn is_half_full(&self) -> bool {
        let published = self.lane.published();
        published.wrapping_sub(self.at) > self.lane.room() / 2
    }

    /// Whether anything has come since the last look, or is left from it.
    pub(crate) fn is_empty(&self) -> bool {
        self.lane.published() == self.at
    }

    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        self.lane
            .word(self.at.wrapping_add(at))
            .load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn find_next(&mut self) {
        self.next_at = u64::MAX;
        while self.at != self.end {
            let first = self.word(0);
            match low(first, KIND_BITS) {
                BY => {
                    self.by = By {
                        thread: (first >> KIND_BITS) as u32,
                        interval: self.word(1),
                    };
                    self.at = self.at.wrapping_add(2);
                    continue;
                }
                FREED | SAMPLED => self.next_at = self.word(1),
                _ => {
                    let ticks = low(first >> KIND_BITS, TICK_BITS);
                    self.next_at = self.last_at.wrapping_add(ticks);
                }
            }
            return;
        }
    }

    /// Takes the next event out, which must be there, into `out`.
    #[inline(always)]
    pub(crate) fn take(&mut self, out: &mut Out) -> Next {
        let first = self.word(0);
        let at = self.next_at;
        out.by = self.by;
        let (next, words) = match low(first, KIND_BITS) {
            FREED => {
                out.freed = Freed {
                    at,
                    id: first >> KIND_BITS,
                };
                (Next::Freed, 2)
            }
            FREED_NEAR => {
                let distance = first as i64 >> NEAR_SHIFT;
                out.freed = Freed {
                    at,
                    id: self.last_id.wrapping_add_signed(distance),
                };
                (Next::Freed, 1)
            }
            SAMPLED => {
                self.last_id = first >> KIND_BITS;
                self.last_stack = self.word(2);
                out.sampled = Sampled {
                    at,
                    id: self.last_id,
                    stack: self.last_stack,
                    size: self.word(3),
                    slack: self.word(4) as u32,
                    counted: self.word(5),
                };
                (Next::Sampled, 6)
            }
            kind => {
                self.last_id = id_after(self.last_id);
                let mut words = 1;
                if kind & AGAIN == 0 {
                    self.last_stack = self.word(words);
                    words += 1;
                }
                let size = low(first >> NEAR_SHIFT, SIZE_BITS);
                let slack = first >> SLACK_SHIFT;
                let mut counted = size + slack;
                if kind & ALONE == 0 {
                    counted = self.word(words);
                    words += 1;
                }
                out.sampled = Sampled {
                    at,
                    id: self.last_id,
                    stack: self.last_stack,
                    size,
                    slack: slack as u32,
                    counted,
                };
                (Next::Sampled, words)
            }
        };
        self.last_at = at;
        self.at = self.at.wrapping_add(words);
        self.find_next();
        if self.at.wrapping_sub(self.given_back) > self.lane.room() / 8 {
            self.give_back();
        }
        next
    }

    /// Gives the room of what was taken out back.
    pub(crate) fn give_back(&mut self) {
        if self.given_back != self.at {
            self.given_back = self.at;
            self.lane.give_back(self.at);
        }
    }
}
