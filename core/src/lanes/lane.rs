//! Lane: the queue of samples and frees from the threads of a program to the writer.
//!
//! Glossary: lane, id.
//!
//! Model: a single-producer single-consumer ring of words. The consumer is the writer. The producer
//! is the thread that holds the seat to which the lane belongs. Seats are handed over with a
//! synchronisation of their own.
//!
//! ```text
//!           taken                    published
//!             │   events for the writer  │     room
//!   ──────────┴──────────────────────────┴──────────────> words, without end, in a ring
//! ```
//!
//! A lane gives the ids, in the order of its samples. So when an id has come out of a lane, all
//! smaller ids of that lane have come out, too. Lane n owns every block of [`BLOCK`] ids whose
//! number is n modulo [`LANES`].
//!
//! The writer sees an event as a whole or not at all.
//!
//! Not here: the order of the events of several lanes ([`Merge`](crate::Merge)), and what happens
//! to an event that finds no room.

use crate::lanes::event::{
    AGAIN, ALONE, ENDED_BITS, ENDED_SHIFT, EndedSample, FREED, FREED_NEAR, Freed, KIND_BITS,
    LONGEST, NEAR_SHIFT, ORIGIN, Origin, SAMPLED, SAMPLED_NEAR, SAMPLED_TICK_BITS, SIZE_BITS,
    SLACK_SHIFT, Sampled, TICK_BITS, WIDE, WIDE_SIZE_BITS, WIDE_SLACK_BITS,
};
use crate::primitive::atomic::{AtomicU64, Ordering};

/// Most lanes.
pub const LANES: usize = 64;

/// Consecutive ids that a lane gives before it goes on to its next block.
const BLOCK: u64 = 1 << 16;

/// Returns the number of the lane that gave an id.
#[inline(always)]
pub(crate) fn lane_of(id: u64) -> usize {
    (id / BLOCK) as usize % LANES
}

/// Returns the distance of an id from the first id of its block.
#[inline(always)]
pub(crate) fn place_in_block(id: u64) -> u64 {
    id % BLOCK
}

/// Returns the id that a lane gives after `id`.
#[inline(always)]
pub(crate) fn id_after(id: u64) -> u64 {
    let after = id + 1;
    if after.is_multiple_of(BLOCK) {
        after + BLOCK * (LANES as u64 - 1)
    } else {
        after
    }
}

/// A value on cache lines of its own. Each side writes its own lines, so neither
/// fetches them back from the other at every event.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CacheAligned<T>(pub(crate) T);

/// The producer's state. Only `published` is read by the writer.
#[derive(Debug, Default)]
struct Producer {
    /// Words put in so far, to the end of the last event.
    published: AtomicU64,
    /// A copy of `published` for the producer: loom follows a store better in a thread that does
    /// not read it back.
    put: AtomicU64,
    /// Limits of `put`. Up to the first one there is room for an event; up to the second one the
    /// lane is at most half full. Both follow from `taken`, as last read.
    full_after: AtomicU64,
    half_after: AtomicU64,
    /// Thread and interval of the last `ORIGIN`.
    thread: AtomicU64,
    interval: AtomicU64,
    next_id: AtomicU64,
    /// The reference of near events.
    previous: Previous,
}

/// The last events of a lane: the next event is encoded against them.
#[derive(Debug, Default)]
struct Previous {
    /// Time of the last event.
    at: AtomicU64,
    /// Id and stack of the last sample.
    id: AtomicU64,
    stack: AtomicU64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Lane {
    words: &'static [AtomicU64],
    producer: CacheAligned<Producer>,
    /// Words taken out so far, whose room is free again.
    taken: CacheAligned<AtomicU64>,
}

impl Lane {
    /// Returns an empty lane. `words` are all zero. `number` is the lane's number. Its ids are
    /// above `above`.
    ///
    /// # Panics
    /// If the number of words is not a power of two, or below the length of the longest event.
    #[must_use]
    pub fn new(words: &'static [AtomicU64], number: usize, above: u64) -> Lane {
        assert!(words.len() >= LONGEST && words.len().is_power_of_two());
        let round = BLOCK * LANES as u64;
        let producer = Producer {
            thread: AtomicU64::new(u64::MAX), // no thread
            next_id: AtomicU64::new(
                above.next_multiple_of(round) + BLOCK * (number % LANES) as u64 + 1,
            ),
            ..Producer::default()
        };
        let lane = Lane {
            words,
            producer: CacheAligned(producer),
            taken: CacheAligned(AtomicU64::new(0)),
        };
        lane.refresh_limits();
        lane
    }

    /// Reads how far the writer has come, and sets the limits.
    #[cold]
    fn refresh_limits(&self) {
        // Acquire: the words were read before their room was given back.
        let taken = self.taken.0.load(Ordering::Acquire);
        let (producer, length) = (&self.producer.0, self.room());
        let full = taken.wrapping_add(length - LONGEST as u64);
        producer.full_after.store(full, Ordering::Relaxed);
        let half = taken.wrapping_add(length / 2);
        producer.half_after.store(half, Ordering::Relaxed);
    }

    /// Returns a new id, for the next sample that is put in.
    #[inline]
    pub fn new_id(&self) -> u64 {
        let next = &self.producer.0.next_id;
        let id = next.load(Ordering::Relaxed);
        next.store(id_after(id), Ordering::Relaxed);
        id
    }

    /// Returns an id that is above all ids given so far.
    pub fn above(&self) -> u64 {
        self.producer.0.next_id.load(Ordering::Relaxed)
    }

    /// Returns the encoding of "the sample `id` ends with the next sample". Returns `None` if the
    /// two are not near; the caller then puts a free in before the sample.
    #[inline(always)]
    pub fn ended(&self, id: u64) -> Option<EndedSample> {
        let last = self.producer.0.previous.id.load(Ordering::Relaxed);
        let back = last.wrapping_sub(id);
        // Within one block: the sample belongs to this lane and comes out before the next one.
        let is_near = back < (1 << ENDED_BITS) - 1 && back <= place_in_block(last);
        is_near.then_some(EndedSample(back + 1))
    }

    /// Puts a sample in, together with the end of `ended` by the same thread at the same time.
    /// Returns false if there is no room for both.
    ///
    /// If there is room, `begins_at` is called with the first word before anything is written.
    #[inline(always)]
    pub fn put_sampled(
        &self,
        by: Origin,
        it: &Sampled,
        ended: EndedSample,
        begins_at: impl FnOnce(&AtomicU64),
    ) -> bool {
        let near = &self.producer.0.previous;
        let slack = u64::from(it.slack);
        let ticks = it.at.wrapping_sub(near.at.load(Ordering::Relaxed));
        let is_near =
            ticks < 1 << SAMPLED_TICK_BITS && it.id == id_after(near.id.load(Ordering::Relaxed));
        let is_short = it.size < 1 << SIZE_BITS && slack < WIDE;
        let Some(mut at) = self.reserve(by) else {
            return false;
        };
        begins_at(self.word(at));
        let what = ticks << KIND_BITS | ended.0 << ENDED_SHIFT;
        if is_near && is_short {
            let sizes = it.size << NEAR_SHIFT | slack << SLACK_SHIFT;
            at = self.write_near(at, what | sizes, None, it);
        } else {
            let it = &{ *it }; // a copy, so that the near sample stays in registers
            at = self.write_unusual(at, is_near.then_some(what), it, ended);
        }
        near.at.store(it.at, Ordering::Relaxed);
        near.id.store(it.id, Ordering::Relaxed);
        near.stack.store(it.stack, Ordering::Relaxed);
        self.publish(at);
        true
    }

    /// Writes a near sample. `what` is its first word without the kind. `sizes` is the word of a
    /// wide slack, if there is one.
    #[inline(always)]
    fn write_near(&self, mut at: u64, what: u64, sizes: Option<u64>, it: &Sampled) -> u64 {
        let again =
            (it.stack == self.producer.0.previous.stack.load(Ordering::Relaxed)).then_some(AGAIN);
        let alone = (it.counted == it.size).then_some(ALONE);
        let kind = SAMPLED_NEAR | again.unwrap_or(0) | alone.unwrap_or(0);
        at = self.write(at, what | kind);
        if let Some(sizes) = sizes {
            at = self.write(at, sizes);
        }
        if again.is_none() {
            at = self.write(at, it.stack);
        }
        if alone.is_none() {
            at = self.write(at, it.counted);
        }
        at
    }

    /// Writes a sample that is large, or not near. `near` is the beginning of its first word if it
    /// is near.
    #[cold]
    #[inline(never)]
    fn write_unusual(
        &self,
        mut at: u64,
        near: Option<u64>,
        it: &Sampled,
        EndedSample(ended): EndedSample,
    ) -> u64 {
        let slack = u64::from(it.slack);
        let has_room = it.size < 1 << WIDE_SIZE_BITS && slack < 1 << WIDE_SLACK_BITS;
        if let Some(what) = near.filter(|_| has_room) {
            let sizes = it.size | slack << WIDE_SIZE_BITS;
            return self.write_near(at, what | WIDE << SLACK_SHIFT, Some(sizes), it);
        }
        if let Some(back) = ended.checked_sub(1) {
            let id = self.producer.0.previous.id.load(Ordering::Relaxed) - back;
            at = self.write(at, id << KIND_BITS | FREED);
            at = self.write(at, it.at);
        }
        let first = it.id << KIND_BITS | SAMPLED;
        for word in [first, it.at, it.stack, it.size, it.slack.into(), it.counted] {
            at = self.write(at, word);
        }
        at
    }

    /// Puts a free by that thread in. `begins_at` is as in [`put_sampled`](Self::put_sampled).
    /// Returns false if there is no room.
    #[inline(always)]
    pub fn put_freed(&self, thread: u32, it: &Freed, begins_at: impl FnOnce(&AtomicU64)) -> bool {
        let near = &self.producer.0.previous;
        let by = Origin {
            thread,
            interval: self.producer.0.interval.load(Ordering::Relaxed),
        };
        let ticks = it.at.wrapping_sub(near.at.load(Ordering::Relaxed));
        let distance = it.id.wrapping_sub(near.id.load(Ordering::Relaxed));
        let upper = distance << NEAR_SHIFT;
        let is_near = ticks < 1 << TICK_BITS && upper as i64 >> NEAR_SHIFT == distance as i64;
        let Some(mut at) = self.reserve(by) else {
            return false;
        };
        begins_at(self.word(at));
        if is_near {
            at = self.write(at, upper | ticks << KIND_BITS | FREED_NEAR);
        } else {
            at = self.write(at, it.id << KIND_BITS | FREED);
            at = self.write(at, it.at);
        }
        near.at.store(it.at, Ordering::Relaxed);
        self.publish(at);
        true
    }

    /// Returns true if more than half of the lane waits for the writer.
    #[inline]
    pub fn is_half_full(&self) -> bool {
        self.is_beyond(&self.producer.0.half_after)
    }

    /// Returns true if more is put in than `limit` allows. The limit is read again before the
    /// answer is true.
    #[inline(always)]
    fn is_beyond(&self, limit: &AtomicU64) -> bool {
        let put = self.producer.0.put.load(Ordering::Relaxed);
        let is_beyond = || put > limit.load(Ordering::Relaxed);
        is_beyond() && {
            self.refresh_limits();
            is_beyond()
        }
    }

    /// Returns the place of an event of that origin, or `None` if there is no room. Words from
    /// there on are invisible until they are [published](Self::publish).
    #[inline(always)]
    fn reserve(&self, by: Origin) -> Option<u64> {
        let producer = &self.producer.0;
        if self.is_beyond(&producer.full_after) {
            return None;
        }
        let at = producer.put.load(Ordering::Relaxed);
        let is_another = u64::from(by.thread) != producer.thread.load(Ordering::Relaxed)
            || by.interval != producer.interval.load(Ordering::Relaxed);
        Some(if is_another {
            self.write_origin(at, by)
        } else {
            at
        })
    }

    /// Writes the origin of the events that follow.
    #[inline(never)]
    fn write_origin(&self, at: u64, by: Origin) -> u64 {
        let producer = &self.producer.0;
        producer.thread.store(by.thread.into(), Ordering::Relaxed);
        producer.interval.store(by.interval, Ordering::Relaxed);
        let at = self.write(at, u64::from(by.thread) << KIND_BITS | ORIGIN);
        self.write(at, by.interval)
    }

    /// Writes a word and returns the next place.
    #[inline(always)]
    fn write(&self, at: u64, word: u64) -> u64 {
        self.word(at).store(word, Ordering::Relaxed);
        at.wrapping_add(1)
    }

    /// Makes all words before `end` visible to the writer.
    #[inline(always)]
    fn publish(&self, end: u64) {
        self.producer.0.put.store(end, Ordering::Relaxed);
        self.producer.0.published.store(end, Ordering::Release);
    }

    /// Writer only: returns the number of words put in so far. Their contents are visible.
    #[inline(always)]
    pub(crate) fn published(&self) -> u64 {
        self.producer.0.published.load(Ordering::Acquire)
    }

    /// Writer only: gives the room of all words before `taken` back.
    #[inline(always)]
    pub(crate) fn give_back(&self, taken: u64) {
        self.taken.0.store(taken, Ordering::Release);
    }

    /// Returns the number of words of the ring.
    #[inline(always)]
    pub(crate) fn room(&self) -> u64 {
        self.words.len() as u64
    }

    /// Returns the words of a range up to the end of the ring.
    #[inline(always)]
    pub(crate) fn words(&self, from: u64, to: u64) -> &[AtomicU64] {
        let start = from as usize & (self.words.len() - 1);
        let side_by_side = &self.words[start..];
        &side_by_side[..side_by_side.len().min(to.wrapping_sub(from) as usize)]
    }

    /// Returns the word at a place that is counted from the first word ever.
    #[inline(always)]
    pub(crate) fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[at as usize & (self.words.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::consumer::Consumer;
    use crate::lanes::event::{Event, NoUsualSink, SLACK_BITS, Sink};
    use crate::lanes::model_all::All;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::ops::ControlFlow;

    /// Takes up to that many events.
    fn take(consumer: &mut Consumer<'_>, mut most: usize, refused: u64) -> Vec<(Origin, Event)> {
        let mut all = All {
            refused,
            ..All::default()
        };
        let _ = consumer.deliver(u64::MAX, &mut most, &mut all, |_| true);
        all.events
    }

    fn lane(words: usize) -> Lane {
        let words: Box<[_]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Lane::new(Box::leak(words), 0, 0)
    }

    /// A usual event, or one that is near to nothing.
    #[derive(Debug, Clone)]
    enum TestEvent {
        Sampled(Sampled),
        /// A sample with the next id, that many ticks later. If one event can tell it, the sample
        /// that many ids back ends with it.
        SampledNext {
            later: Sampled,
            ended: Option<u64>,
        },
        Freed(Freed),
        /// A free of an id that far from the last.
        FreedNear {
            ticks: u64,
            distance: i64,
        },
    }

    fn test_event() -> impl Strategy<Value = (Origin, TestEvent)> {
        let by = (0u32..3, prop_oneof![Just(1u64), Just(4096)]);
        let by = by.prop_map(|(thread, interval)| Origin { thread, interval });
        let sampled =
            any::<(u64, u64, u64, u32, u64)>().prop_map(|(at, stack, size, slack, counted)| {
                TestEvent::Sampled(Sampled {
                    at: at >> 1,
                    // Every other id is the last but two of its block, so that later ids are in
                    // another block.
                    id: (at >> 4) | ((at & 1) * (BLOCK - 3)),
                    stack,
                    size,
                    slack,
                    counted,
                })
            });
        let freed = any::<u64>().prop_map(|at| {
            TestEvent::Freed(Freed {
                at: at >> 1,
                id: at >> 4,
            })
        });
        // Values on both sides of each limit of nearness.
        let around = |bits: u32| {
            prop_oneof![
                0..1u64 << bits,
                Just((1 << bits) - 1),
                Just(1 << bits),
                Just(0)
            ]
        };
        let next = (
            around(SAMPLED_TICK_BITS),
            0u64..3,
            prop_oneof![around(SIZE_BITS), around(WIDE_SIZE_BITS)],
            prop_oneof![around(SLACK_BITS), Just(WIDE - 1), around(WIDE_SLACK_BITS)],
            0u64..2,
            prop::option::of(prop_oneof![0..4u64, around(ENDED_BITS)]),
        );
        let next = next.prop_map(|(ticks, stack, size, slack, more, ended)| {
            let later = Sampled {
                at: ticks,
                id: 0,
                stack,
                size,
                slack: slack as u32,
                counted: size + more,
            };
            TestEvent::SampledNext { later, ended }
        });
        let distance = (around(63 - NEAR_SHIFT), any::<bool>());
        let near = (around(TICK_BITS), distance).prop_map(|(ticks, (distance, is_negative))| {
            TestEvent::FreedNear {
                ticks,
                distance: if is_negative {
                    -(distance as i64)
                } else {
                    distance as i64
                },
            }
        });
        (
            by,
            prop_oneof![1 => sampled, 4 => next, 1 => freed, 4 => near],
        )
    }

    proptest! {
        /// Against a queue: events that found room come out unchanged and in order, over many
        /// rounds of the ring.
        #[test]
        fn it_is_a_queue(
            steps in prop::collection::vec((test_event(), 0usize..6), 0..if cfg!(miri) { 30 } else { 300 }),
            refused in prop_oneof![Just(0), any::<u64>()],
            words in prop_oneof![Just(16usize), Just(64)],
        ) {
            let lane = lane(words);
            let mut consumer = Consumer::new(&lane);
            let mut model = VecDeque::new();
            let (mut interval, mut at, mut id) = (0, 0u64, 0u64);
            for ((by, coming), taken) in steps {
                let next = |at, id, later: Sampled| Sampled {
                    at: at + later.at,
                    id: id_after(id),
                    ..later
                };
                if let TestEvent::SampledNext { later, ended: Some(back) } = coming {
                    let sampled = next(at, id, later);
                    let ended = id.wrapping_sub(back);
                    let told = lane.ended(ended);
                    prop_assert!(told.is_none() || back < 63 && lane_of(ended) == lane_of(id));
                    if told.is_some_and(|told| lane.put_sampled(by, &sampled, told, |_| {})) {
                        (interval, at, id) = (by.interval, sampled.at, sampled.id);
                        model.push_back((by, Event::Freed(Freed { at, id: ended })));
                        model.push_back((by, Event::Sampled(sampled)));
                    }
                }
                let passed = match coming {
                    TestEvent::Sampled(it) => Event::Sampled(it),
                    TestEvent::SampledNext { later, .. } => Event::Sampled(next(at, id, later)),
                    TestEvent::Freed(it) => Event::Freed(it),
                    TestEvent::FreedNear { ticks, distance } => Event::Freed(Freed {
                        at: at + ticks,
                        id: id.saturating_add_signed(distance),
                    }),
                };
                let found_room = match &passed {
                    Event::Sampled(it) => lane.put_sampled(by, it, EndedSample::NONE, |_| {}),
                    Event::Freed(it) => lane.put_freed(by.thread, it, |_| {}),
                };
                prop_assert!(found_room || !model.is_empty());
                if found_room {
                    match &passed {
                        Event::Sampled(it) => (interval, at, id) = (by.interval, it.at, it.id),
                        Event::Freed(it) => at = it.at,
                    }
                    model.push_back((Origin { interval, ..by }, passed));
                }
                consumer.look();
                prop_assert_eq!(consumer.is_empty(), model.is_empty());
                if model.is_empty() {
                    prop_assert_eq!(consumer.next_at, u64::MAX);
                }
                let expected: Vec<_> = model.drain(..taken.min(model.len())).collect();
                prop_assert_eq!(take(&mut consumer, taken, refused), expected);
                consumer.give_back();
            }
        }
    }

    #[test]
    fn what_is_as_usual_is_a_word_or_two() {
        let lane = lane(128);
        let by = Origin {
            thread: 0,
            interval: 1,
        };
        let put = |at, stack| {
            let before = lane.producer.0.put.load(Ordering::Relaxed);
            let id = lane.new_id();
            let sampled = Sampled {
                at,
                id,
                stack,
                size: 100,
                slack: 12,
                counted: 100,
            };
            assert!(lane.put_sampled(by, &sampled, EndedSample::NONE, |_| {}));
            let between = lane.producer.0.put.load(Ordering::Relaxed);
            assert!(lane.put_freed(0, &Freed { at: at + 500, id }, |_| {}));
            let after = lane.producer.0.put.load(Ordering::Relaxed);
            (between - before, after - between)
        };
        put(1000, 7);
        assert_eq!(put(2000, 7), (1, 1));
        assert_eq!(put(3000, 8), (2, 1));
        assert_eq!(put(1 << 40, 8), (6, 1));
        assert_eq!(put(1 << 20, 8), (6, 1), "a time that goes back");
        let replace = |at, back| {
            let before = lane.producer.0.put.load(Ordering::Relaxed);
            let id = lane.new_id();
            let sampled = Sampled {
                at,
                id,
                stack: 8,
                size: 100,
                slack: 12,
                counted: 100,
            };
            let ended = lane.ended((id - 1).wrapping_sub(back));
            assert!(lane.put_sampled(by, &sampled, ended.unwrap_or_default(), |_| {}));
            let words = lane.producer.0.put.load(Ordering::Relaxed) - before;
            (ended.is_some(), words)
        };
        let at = (1 << 20) + 1000;
        assert_eq!(replace(at, 0), (true, 1));
        assert_eq!(replace(at, 4), (true, 1));
        assert_eq!(replace(at, 8), (false, 1), "of the block of ids before");
        // All events but the two whose times go back or far ahead are usual.
        let (mut consumer, mut all) = (Consumer::new(&lane), All::default());
        consumer.look();
        let _ = consumer.deliver(u64::MAX, &mut usize::MAX.clone(), &mut all, |_| true);
        assert_eq!((all.events.len(), all.usual), (15, 13));
        assert_eq!(replace(at + (1 << 23), 0), (true, 8));
    }

    #[test]
    fn a_large_block_is_a_word_more() {
        let lane = lane(128);
        let by = Origin {
            thread: 0,
            interval: 1,
        };
        let (mut expected, mut lengths) = (Vec::new(), Vec::new());
        for (at, size, slack) in [
            (1, 8, 8),
            (2, 5 << 20, 1 << 18),
            (3, 40_000, 960),
            (4, 8, 4095),
            (5, 1 << 36, 0),
        ] {
            let it = Sampled {
                at,
                id: lane.new_id(),
                stack: 7,
                size,
                slack,
                counted: size,
            };
            let before = lane.producer.0.put.load(Ordering::Relaxed);
            assert!(lane.put_sampled(by, &it, EndedSample::NONE, |_| {}));
            lengths.push(lane.producer.0.put.load(Ordering::Relaxed) - before);
            expected.push((by, Event::Sampled(it)));
        }
        assert_eq!(lengths[1..], [2, 1, 2, 6]);
        let mut consumer = Consumer::new(&lane);
        consumer.look();
        assert_eq!(take(&mut consumer, usize::MAX, 0), expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps for an interpreter")]
    fn ids_rise_tell_their_lane_and_are_never_another_s() {
        let mut all = std::collections::HashSet::new();
        for number in [0, 1, 63] {
            for above in [0, 5 * BLOCK * LANES as u64] {
                let words: Box<[_]> = (0..16).map(|_| AtomicU64::new(0)).collect();
                let lane = Lane::new(Box::leak(words), number, above);
                let mut last = above;
                for _ in 0..3 * BLOCK {
                    let id = lane.new_id();
                    assert!(id > last && lane_of(id) == number && all.insert(id));
                    last = id;
                }
                assert!(lane.above() > last && lane.above() < above + 4 * BLOCK * LANES as u64);
            }
        }
    }

    #[test]
    fn a_full_lane_refuses_and_says_in_time_that_it_fills() {
        let lane = lane(64);
        let mut consumer = Consumer::new(&lane);
        let tap_at = std::cell::Cell::new(0);
        let free = |id| {
            let has_room = lane.put_freed(7, &Freed { at: id, id }, |_| {});
            let words = lane.producer.0.put.load(Ordering::Relaxed) - tap_at.get();
            assert_eq!(lane.is_half_full(), words > 32);
            has_room
        };
        let put = (1..).take_while(|&id| free(id)).count() as u64;
        assert!(
            (52..=62).contains(&put),
            "{put} of a word each, and one of two before them"
        );
        assert!(lane.is_half_full());
        consumer.look();
        for id in 1..=put {
            let [(by, Event::Freed(freed))] = take(&mut consumer, 1, 0)[..] else {
                panic!("one free")
            };
            assert_eq!((by.thread, freed), (7, Freed { at: id, id }));
        }
        consumer.give_back();
        tap_at.set(lane.producer.0.put.load(Ordering::Relaxed));
        assert!(!lane.is_half_full());
        assert!(free(1));
    }

    /// A sink that puts another event in for each that it takes, while there is room.
    struct Refilled<'a> {
        lane: &'a Lane,
        taken: usize,
        put: usize,
    }

    impl Sink for Refilled<'_> {
        type UsualSink<'a>
            = NoUsualSink
        where
            Self: 'a;

        fn sampled(&mut self, _: Origin, _: &Sampled) -> ControlFlow<()> {
            unreachable!("none was put in")
        }

        fn freed(&mut self, by: Origin, it: &Freed) -> ControlFlow<()> {
            self.taken += 1;
            self.put += usize::from(self.lane.put_freed(by.thread, it, |_| {}));
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn room_is_given_back_while_events_are_taken() {
        let lane = lane(256);
        let put = (1..).take_while(|&id| lane.put_freed(7, &Freed { at: id, id }, |_| {}));
        let put = put.count();
        let mut consumer = Consumer::new(&lane);
        consumer.look();
        let mut refilled = Refilled {
            lane: &lane,
            taken: 0,
            put: 0,
        };
        let _ = consumer.deliver(u64::MAX, &mut usize::MAX.clone(), &mut refilled, |_| true);
        assert_eq!(refilled.taken, put, "what one look showed");
        // All but the last eighth, and the events taken before the first room was given back.
        assert!(
            refilled.put > put * 5 / 8 && refilled.put < put,
            "{}",
            refilled.put
        );
    }
}
