//! Consumer: the writer's side of a lane.
//!
//! It keeps the same record of the last events as the lane, and decodes near events against it.

use std::ops::ControlFlow;

use crate::lanes::event::{
    AGAIN, ALONE, ENDED_BITS, ENDED_SHIFT, FREED_NEAR, Freed, KIND_BITS, LastSample, NEAR_SHIFT,
    NextSample, ORIGIN, Origin, SAMPLED, SAMPLED_NEAR, SAMPLED_TICK_BITS, SIZE_BITS, SLACK_SHIFT,
    Sampled, Sink, TICK_BITS, UsualSink, WIDE, WIDE_SIZE_BITS, low, ticks_of,
};
use crate::lanes::lane::{Lane, id_after, lane_of, place_in_block};
use crate::primitive::atomic::Ordering;

/// The writer's side of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Consumer<'a> {
    lane: &'a Lane,
    /// Words taken out so far.
    at: u64,
    /// Words that were put in, at the last look.
    end: u64,
    /// Words given back so far.
    given_back: u64,
    /// The place at which more room is given back, or at which the words end.
    pause: u64,
    by: Origin,
    /// Id of the last sample that came out.
    pub(crate) last_id: u64,
    last_stack: u64,
    /// Time of the last event.
    last_at: u64,
    /// Time of the next event; `u64::MAX` if there is none.
    pub(crate) next_at: u64,
    /// First word of the next event, or its rest: see [`ended_with`](Self::ended_with).
    first: u64,
}

/// Why no more events are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The next event is too late.
    Until,
    /// The wanted number is reached.
    Enough,
    /// The sink wants no more.
    Broken,
    /// This free waits for its sample, which is in another lane. It is taken out and not delivered.
    Early(Origin, Freed),
}

/// Decodes the word of a [`WIDE`] slack into size and slack.
#[inline(always)]
fn wide(both: u64) -> (u64, u64) {
    (low(both, WIDE_SIZE_BITS), both >> WIDE_SIZE_BITS)
}

impl<'a> Consumer<'a> {
    pub(crate) fn new(lane: &'a Lane) -> Consumer<'a> {
        Consumer {
            lane,
            at: 0,
            end: 0,
            given_back: 0,
            pause: 0,
            by: Origin {
                thread: 0,
                interval: 0,
            },
            last_id: 0,
            last_stack: 0,
            last_at: 0,
            next_at: u64::MAX,
            first: 0,
        }
    }

    /// Reads how far the lane is filled.
    #[inline]
    pub(crate) fn look(&mut self) {
        self.end = self.lane.published();
        self.set_pause();
        if self.next_at == u64::MAX {
            self.find_next();
        }
    }

    /// Returns true if more than half of the lane waits to be taken.
    pub(crate) fn is_half_full(&self) -> bool {
        let published = self.lane.published();
        published.wrapping_sub(self.at) > self.lane.room() / 2
    }

    /// Returns true if nothing has come since the last look, and nothing is left from it.
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
        while self.at < self.pause || self.advance_past_pause() {
            self.first = self.word(0);
            match low(self.first, KIND_BITS) {
                FREED_NEAR.. => {
                    self.next_at = self.last_at.wrapping_add(ticks_of(self.first));
                }
                ORIGIN => {
                    self.by = Origin {
                        thread: (self.first >> KIND_BITS) as u32,
                        interval: self.word(1),
                    };
                    self.at = self.at.wrapping_add(2);
                    continue;
                }
                _ => self.next_at = self.word(1),
            }
            return;
        }
    }

    /// Returns true if a sample of this lane has come out.
    #[inline(always)]
    fn has_delivered(&self, id: u64) -> bool {
        id <= self.last_id && lane_of(id) == lane_of(self.last_id)
    }

    /// Gives `sink` the events before `until`, at most `left`, and subtracts their number from
    /// `left`. `has_come_out` tells of samples of other lanes.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        until: u64,
        left: &mut usize,
        sink: &mut impl Sink,
        has_come_out: impl Fn(u64) -> bool,
    ) -> Stop {
        let mut consumer = *self; // a copy without an address, so that its fields are in registers
        let mut rest = *left;
        let why = loop {
            if rest == 0 {
                break Stop::Enough;
            }
            if consumer.next_at >= until {
                break Stop::Until;
            }
            let taken = consumer.deliver_usual(until, rest, sink);
            if taken > 0 {
                rest -= taken;
                continue;
            }
            let at = consumer.next_at;
            let first = consumer.first;
            let goes_on = if first & SAMPLED_NEAR == 0 && low(first, KIND_BITS) != SAMPLED {
                let (id, words) = if low(first, KIND_BITS) == FREED_NEAR {
                    let distance = first as i64 >> NEAR_SHIFT;
                    (consumer.last_id.wrapping_add_signed(distance), 1)
                } else {
                    (first >> KIND_BITS, 2)
                };
                let freed = Freed { at, id };
                let has_come = consumer.has_delivered(id) || has_come_out(id);
                // The sink comes first: the next event is then not kept beside this one.
                let goes_on = has_come.then(|| sink.freed(consumer.by, &freed));
                let by = consumer.by;
                consumer.advance(at, words);
                match goes_on {
                    None => break Stop::Early(by, freed),
                    Some(goes_on) => goes_on,
                }
            } else if let Some(id) = consumer.ended_with() {
                sink.freed(consumer.by, &Freed { at, id })
            } else {
                let (size, slack, counted, words);
                if first & SAMPLED_NEAR != 0 {
                    consumer.last_id = id_after(consumer.last_id);
                    let mut more = 1;
                    (size, slack) = match first >> SLACK_SHIFT {
                        WIDE => {
                            more += 1;
                            wide(consumer.word(1))
                        }
                        slack => (low(first >> NEAR_SHIFT, SIZE_BITS), slack),
                    };
                    if first & AGAIN == 0 {
                        consumer.last_stack = consumer.word(more);
                        more += 1;
                    }
                    if first & ALONE == 0 {
                        counted = consumer.word(more);
                        more += 1;
                    } else {
                        counted = size;
                    }
                    words = more;
                } else {
                    consumer.last_id = first >> KIND_BITS;
                    [consumer.last_stack, size, slack, counted] =
                        [2, 3, 4, 5].map(|n| consumer.word(n));
                    words = 6;
                }
                let sampled = Sampled {
                    at,
                    id: consumer.last_id,
                    stack: consumer.last_stack,
                    size,
                    slack: slack as u32,
                    counted,
                };
                let goes_on = sink.sampled(consumer.by, &sampled);
                consumer.advance(at, words);
                goes_on
            };
            rest -= 1;
            if goes_on == ControlFlow::Break(()) {
                break Stop::Broken;
            }
        };
        *self = consumer;
        *left = rest;
        why
    }

    /// Takes the sample that ends with the next event out of it, if there is one, and returns its
    /// id. The sample itself stays the next event, at the same time.
    #[inline(always)]
    fn ended_with(&mut self) -> Option<u64> {
        let ended = low(self.first >> ENDED_SHIFT, ENDED_BITS);
        if self.first & SAMPLED_NEAR == 0 || ended == 0 {
            return None;
        }
        self.last_at = self.next_at;
        // Clears the ticks and the ended sample in the word.
        self.first = (self.first >> NEAR_SHIFT << NEAR_SHIFT) | low(self.first, KIND_BITS);
        Some(self.last_id - (ended - 1))
    }

    /// Gives `sink` usual events before `until`, at most `most`. Returns their number.
    ///
    /// It has the effect of [`deliver`](Self::deliver), without the work that is equal for all.
    /// Usual events are near to the one before, in consecutive words, of samples in one block of
    /// ids. It is a function of its own so that it has all registers.
    #[inline(never)]
    fn deliver_usual(&mut self, until: u64, most: usize, sink: &mut impl Sink) -> usize {
        let last = LastSample {
            id: self.last_id,
            stack: self.last_stack,
        };
        let Some(mut usual) = sink.usual_sink(self.by, last) else {
            return 0;
        };
        let words = self.lane.words(self.at, self.pause);
        let words = &words[..words.len().min((most / 2).max(1))]; // each word is at most two events
        let word = |at: usize| words.get(at).map(|word| word.load(Ordering::Relaxed));
        let (mut next, mut frees) = (0, 0);
        let first_place = place_in_block(last.id);
        let (mut last_at, mut place) = (self.last_at, first_place);
        let mut of_next = Some(self.first);
        while let Some(first) = of_next {
            let at;
            if first & SAMPLED_NEAR != 0 {
                at = last_at.wrapping_add(low(first >> KIND_BITS, SAMPLED_TICK_BITS));
                let mut behind = next + 1;
                let mut size = low(first >> NEAR_SHIFT, SIZE_BITS);
                let mut slack = first >> SLACK_SHIFT;
                if slack == WIDE {
                    let Some(both) = word(behind) else {
                        // the rest of the event is at the ring's beginning, or past the pause
                        break;
                    };
                    (size, slack) = wide(both);
                    behind += 1;
                }
                let mut stack = None;
                if first & AGAIN == 0 {
                    let Some(another) = word(behind) else {
                        break; // as above
                    };
                    stack = Some(another);
                    behind += 1;
                }
                let mut counted = size;
                if first & ALONE == 0 {
                    let Some(more) = word(behind) else {
                        break; // as above
                    };
                    counted = more;
                    behind += 1;
                }
                let sampled = NextSample {
                    stack,
                    size,
                    slack,
                    counted,
                };
                if at >= until || place_in_block(place + 1) == 0 {
                    break;
                }
                let ended = low(first >> ENDED_SHIFT, ENDED_BITS);
                let is_taken = match ended.checked_sub(1) {
                    None => usual.sampled(at, sampled),
                    Some(back) => most > 1 && usual.replaced(at, back, sampled),
                };
                if !is_taken {
                    break;
                }
                if let Some(stack) = stack {
                    self.last_stack = stack;
                }
                frees += u64::from(ended > 0);
                place += 1;
                next = behind;
            } else {
                at = last_at.wrapping_add(low(first >> KIND_BITS, TICK_BITS));
                let back = (first as i64 >> NEAR_SHIFT).wrapping_neg().cast_unsigned();
                let is_usual = low(first, KIND_BITS) == FREED_NEAR && at < until && back <= place;
                if !is_usual || !usual.freed(at, back) {
                    break;
                }
                frees += 1;
                next += 1;
            }
            last_at = at;
            of_next = word(next);
        }
        let samples = place - first_place;
        usual.finish(samples, frees);
        self.last_id += samples;
        if next > 0 {
            self.advance(last_at, next as u64);
        }
        (samples + frees) as usize
    }

    /// Goes on to the event behind that time and that many words.
    #[inline(always)]
    fn advance(&mut self, at: u64, words: u64) {
        self.last_at = at;
        self.at = self.at.wrapping_add(words);
        self.find_next();
    }

    /// Goes on past `pause`: gives room back, and returns true if there are more words. It is
    /// inlined, as all parts of [`deliver`](Self::deliver): a call with the consumer's address
    /// would force the fields into memory.
    #[inline(always)]
    fn advance_past_pause(&mut self) -> bool {
        if self.at == self.end {
            return false;
        }
        self.give_back();
        self.set_pause();
        true
    }

    #[inline(always)]
    fn set_pause(&mut self) {
        self.pause = self.end.min(self.given_back + self.lane.room() / 8);
    }

    /// Gives the room of all taken words back.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) {
        if self.given_back != self.at {
            self.given_back = self.at;
            self.lane.give_back(self.at);
        }
    }
}
