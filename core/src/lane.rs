//! A lane: the road of samples and frees from the threads of a program to the writer.
//!
//! Model: a ring of words. At any time at most one thread puts events in, and one, the writer, takes them out. Who that
//! one thread is may change: whoever holds the seat that the lane belongs to, and seats are handed over with a
//! synchronisation of their own.
//!
//! ```text
//!           taken                    published
//!             │   events for the writer  │     room
//!   ──────────┴──────────────────────────┴──────────────> words, without end, in a ring
//! ```
//!
//! An event is as few words as it can be: what crosses from one processor's cache to another's is most of its price.
//! Thread and interval are told once for many events, and what is near the event before is told by how far it is, in one word with
//! its kind:
//!
//! | kind | words |
//! | --- | --- |
//! | `BY` | thread, interval: whose events follow, and under what interval they are sampled |
//! | `FREED` | id, time |
//! | `FREED_NEAR` | ticks since the event before, id less that of the last sample put in here |
//! | `SAMPLED` | id, time, stack, size, slack, counted |
//! | `SAMPLED_NEAR` | ticks since the event before, size and slack; stack, counted. Its id is the next |
//! | ... with `AGAIN` | without stack: it is that of the last sample |
//! | ... with `ALONE` | without counted: it is size and slack |
//!
//! Ids are given by the lane, in the order in which samples are put in: so whoever knows the last one that came out knows of
//! each whether it did. Those of lane n are in the blocks of [`BLOCK`] ids whose number is n modulo [`LANES`].
//!
//! An event is visible as a whole or not at all. Not here: in which order the events of several lanes are to be taken
//! ([`Merge`](crate::Merge)), and what becomes of one that finds no room.

use crate::primitive::atomic::{AtomicU64, Ordering};

const BY: u64 = 0;
const FREED: u64 = 1;
const SAMPLED: u64 = 2;
const FREED_NEAR: u64 = 3;
const SAMPLED_NEAR: u64 = 4;
const AGAIN: u64 = 1;
const ALONE: u64 = 2;

/// An event's first word: its kind, and in the upper bits what is first in the table.
const KIND_BITS: u32 = 3;
/// Of what is near: ticks, and above them either the distance of ids, a signed number, or size and slack.
const TICK_BITS: u32 = 28;
const NEAR_SHIFT: u32 = KIND_BITS + TICK_BITS;
const SIZE_BITS: u32 = 21;
const SLACK_SHIFT: u32 = NEAR_SHIFT + SIZE_BITS;
const SLACK_BITS: u32 = 64 - SLACK_SHIFT;

/// The lowest so many bits of a word.
#[inline(always)]
const fn low(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

/// Lanes there can be.
pub const LANES: usize = 64;

/// Ids that follow each other, before a lane goes on to its next block.
const BLOCK: u64 = 4096;

/// The number of the lane that gave that id.
#[inline(always)]
pub(crate) fn lane_of(id: u64) -> usize {
    (id / BLOCK) as usize % LANES
}

/// The id that a lane gives after that one.
#[inline(always)]
fn id_after(id: u64) -> u64 {
    let after = id + 1;
    if after.is_multiple_of(BLOCK) {
        after + BLOCK * (LANES as u64 - 1)
    } else {
        after
    }
}

/// Words of the longest event, with the `BY` before it.
const LONGEST: usize = 8;

/// Whose an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// Number of the thread.
    pub thread: u32,
    /// Mean interval in force, in bytes.
    pub interval: u64,
}

/// A sampled allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// When, on the scale that orders the events of all lanes: see [`Merge`](crate::Merge).
    pub at: u64,
    /// Below 2^61.
    pub id: u64,
    /// Hash of its stack.
    pub stack: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes beyond them that the block has.
    pub slack: u32,
    /// By the allocator's count, what the thread allocated since the last sample that told of it, and a mark.
    pub counted: u64,
}

/// The end of a sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// When, as in [`Sampled`].
    pub at: u64,
    /// Below 2^61.
    pub id: u64,
}

/// What comes out of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// A sampled allocation.
    Sampled(Sampled),
    /// The end of a sampled block.
    Freed(Freed),
}

/// Which of an [`Out`] it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A sampled allocation.
    Sampled,
    /// The end of a sampled block.
    Freed,
}

/// What came out last. A place in memory for each, and not a value that is handed on: handed on, it would be copied by wider
/// loads than it was just stored by, for which a processor has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Out {
    /// Whose it is.
    pub by: By,
    /// The last [`Next::Sampled`].
    pub sampled: Sampled,
    /// The last [`Next::Freed`].
    pub freed: Freed,
}

impl Out {
    /// Nothing came out yet.
    pub(crate) const NOTHING: Out = Out {
        by: By {
            thread: 0,
            interval: 0,
        },
        sampled: Sampled {
            at: 0,
            id: 0,
            stack: 0,
            size: 0,
            slack: 0,
            counted: 0,
        },
        freed: Freed { at: 0, id: 0 },
    };

    /// As a value.
    pub(crate) fn passed(&self, next: Next) -> (By, Passed) {
        let passed = match next {
            Next::Sampled => Passed::Sampled(self.sampled),
            Next::Freed => Passed::Freed(self.freed),
        };
        (self.by, passed)
    }
}

/// On lines of the cache of its own: what one side writes at every event the other must not have to fetch back.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// What the thread that puts events in keeps. But for `published` it is nobody else's.
#[derive(Debug, Default)]
struct Behind {
    /// Words put in so far, to the end of the last event.
    published: AtomicU64,
    /// The same, to be read on this side: loom follows a store better in a thread that does not read it back.
    put: AtomicU64,
    /// Words taken out when that was last asked.
    seen_taken: AtomicU64,
    /// The last `BY`.
    thread: AtomicU64,
    interval: AtomicU64,
    next_id: AtomicU64,
    /// What the next event may be near to.
    near: Near,
}

/// Of the last events, on either side of a lane: what the next is told by.
#[derive(Debug, Default)]
struct Near {
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
    behind: Apart<Behind>,
    /// Words taken out so far: there is room again.
    taken: Apart<AtomicU64>,
}

impl Lane {
    /// An empty one. `words`: all zero, a power of two of them, 16 at the least. `number`: which of all lanes it is. Its ids
    /// are above `above`.
    ///
    /// # Panics
    /// If there are fewer words, or another number of them.
    #[must_use]
    pub fn new(words: &'static [AtomicU64], number: usize, above: u64) -> Lane {
        assert!(words.len() >= 2 * LONGEST && words.len().is_power_of_two());
        let round = BLOCK * LANES as u64;
        let behind = Behind {
            thread: AtomicU64::new(u64::MAX), // nobody's
            next_id: AtomicU64::new(
                above.next_multiple_of(round) + BLOCK * (number % LANES) as u64 + 1,
            ),
            ..Behind::default()
        };
        Lane {
            words,
            behind: Apart(behind),
            taken: Apart(AtomicU64::new(0)),
        }
    }

    /// A new id, for the next sample that is put in.
    #[inline]
    pub fn new_id(&self) -> u64 {
        let next = &self.behind.0.next_id;
        let id = next.load(Ordering::Relaxed);
        next.store(id_after(id), Ordering::Relaxed);
        id
    }

    /// An id that is above all that were given.
    pub fn above(&self) -> u64 {
        self.behind.0.next_id.load(Ordering::Relaxed)
    }

    /// Puts a sample in. False: there is no room.
    #[inline]
    pub fn put_sampled(&self, by: By, it: &Sampled) -> bool {
        let near = &self.behind.0.near;
        let slack = u64::from(it.slack);
        let ticks = it.at.wrapping_sub(near.at.load(Ordering::Relaxed));
        let is_near = ticks < 1 << TICK_BITS
            && it.size < 1 << SIZE_BITS
            && slack < 1 << SLACK_BITS
            && it.id == id_after(near.id.load(Ordering::Relaxed));
        let found_room = if is_near {
            let what = ticks << KIND_BITS | it.size << NEAR_SHIFT | slack << SLACK_SHIFT;
            let first = what | SAMPLED_NEAR;
            let is_again = it.stack == near.stack.load(Ordering::Relaxed);
            let is_alone = it.counted == it.size + slack;
            match (is_again, is_alone) {
                (true, true) => self.put(by, [first | AGAIN | ALONE]),
                (true, false) => self.put(by, [first | AGAIN, it.counted]),
                (false, true) => self.put(by, [first | ALONE, it.stack]),
                (false, false) => self.put(by, [first, it.stack, it.counted]),
            }
        } else {
            let first = it.id << KIND_BITS | SAMPLED;
            self.put(by, [first, it.at, it.stack, it.size, slack, it.counted])
        };
        if found_room {
            near.at.store(it.at, Ordering::Relaxed);
            near.id.store(it.id, Ordering::Relaxed);
            near.stack.store(it.stack, Ordering::Relaxed);
        }
        found_room
    }

    /// Puts a free by that thread in. False: there is no room.
    #[inline]
    pub fn put_freed(&self, thread: u32, it: &Freed) -> bool {
        let near = &self.behind.0.near;
        let by = By {
            thread,
            interval: self.behind.0.interval.load(Ordering::Relaxed),
        };
        let ticks = it.at.wrapping_sub(near.at.load(Ordering::Relaxed));
        let distance = it.id.wrapping_sub(near.id.load(Ordering::Relaxed));
        let upper = distance << NEAR_SHIFT;
        let is_near = ticks < 1 << TICK_BITS && upper as i64 >> NEAR_SHIFT == distance as i64;
        let found_room = if is_near {
            self.put(by, [upper | ticks << KIND_BITS | FREED_NEAR])
        } else {
            self.put(by, [it.id << KIND_BITS | FREED, it.at])
        };
        if found_room {
            near.at.store(it.at, Ordering::Relaxed);
        }
        found_room
    }

    /// Whether more than half of it waits to be taken.
    #[inline]
    pub fn is_half_full(&self) -> bool {
        let behind = &self.behind.0;
        let put = behind.put.load(Ordering::Relaxed);
        let half = self.words.len() as u64 / 2;
        if put.wrapping_sub(behind.seen_taken.load(Ordering::Relaxed)) <= half {
            return false;
        }
        let taken = self.taken.0.load(Ordering::Acquire);
        behind.seen_taken.store(taken, Ordering::Relaxed);
        put.wrapping_sub(taken) > half
    }

    #[inline(always)]
    fn put<const N: usize>(&self, by: By, event: [u64; N]) -> bool {
        let behind = &self.behind.0;
        let mut at = behind.put.load(Ordering::Relaxed);
        let end = at.wrapping_add(LONGEST as u64);
        let length = self.words.len() as u64;
        if end.wrapping_sub(behind.seen_taken.load(Ordering::Relaxed)) > length {
            // Acquire: what stood in the words was read before they were given back.
            let taken = self.taken.0.load(Ordering::Acquire);
            behind.seen_taken.store(taken, Ordering::Relaxed);
            if end.wrapping_sub(taken) > length {
                return false;
            }
        }
        if u64::from(by.thread) != behind.thread.load(Ordering::Relaxed)
            || by.interval != behind.interval.load(Ordering::Relaxed)
        {
            behind.thread.store(by.thread.into(), Ordering::Relaxed);
            behind.interval.store(by.interval, Ordering::Relaxed);
            self.word(at)
                .store(u64::from(by.thread) << KIND_BITS | BY, Ordering::Relaxed);
            self.word(at.wrapping_add(1))
                .store(by.interval, Ordering::Relaxed);
            at = at.wrapping_add(2);
        }
        for (place, value) in event.into_iter().enumerate() {
            let place = at.wrapping_add(place as u64);
            self.word(place).store(value, Ordering::Relaxed);
        }
        at = at.wrapping_add(N as u64);
        behind.put.store(at, Ordering::Relaxed);
        behind.published.store(at, Ordering::Release);
        true
    }

    #[inline(always)]
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[at as usize & (self.words.len() - 1)]
    }
}

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
        self.end = self.lane.behind.0.published.load(Ordering::Acquire);
        if self.next_at == u64::MAX {
            self.find_next();
        }
    }

    /// Whether more than half of the lane waits to be taken.
    pub(crate) fn is_half_full(&self) -> bool {
        let published = self.lane.behind.0.published.load(Ordering::Acquire);
        published.wrapping_sub(self.at) > self.lane.words.len() as u64 / 2
    }

    /// Whether anything has come since the last look, or is left from it.
    pub(crate) fn is_empty(&self) -> bool {
        self.lane.behind.0.published.load(Ordering::Acquire) == self.at
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
        if self.at.wrapping_sub(self.given_back) > self.lane.words.len() as u64 / 8 {
            self.give_back();
        }
        next
    }

    /// Gives the room of what was taken out back.
    pub(crate) fn give_back(&mut self) {
        if self.given_back != self.at {
            self.given_back = self.at;
            self.lane.taken.0.store(self.at, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn lane(words: usize) -> Lane {
        let words: Box<[_]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Lane::new(Box::leak(words), 0, 0)
    }

    /// An event as it mostly is, or one that is near to nothing.
    #[derive(Debug, Clone)]
    enum Coming {
        Sampled(Sampled),
        /// The next id, so many ticks later.
        SampledNext {
            ticks: u64,
            stack: u64,
            size: u64,
            slack: u32,
            more: u64,
        },
        Freed(Freed),
        /// Of an id so far from the last.
        FreedNear {
            ticks: u64,
            distance: i64,
        },
    }

    fn coming() -> impl Strategy<Value = (By, Coming)> {
        let by = (0u32..3, prop_oneof![Just(1u64), Just(4096)]);
        let by = by.prop_map(|(thread, interval)| By { thread, interval });
        let sampled =
            any::<(u64, u64, u64, u32, u64)>().prop_map(|(at, stack, size, slack, counted)| {
                Coming::Sampled(Sampled {
                    at: at >> 1,
                    id: at >> 4,
                    stack,
                    size,
                    slack,
                    counted,
                })
            });
        let freed = any::<u64>().prop_map(|at| {
            Coming::Freed(Freed {
                at: at >> 1,
                id: at >> 4,
            })
        });
        // On both sides of every limit to what is near.
        let around = |bits: u32| {
            prop_oneof![
                0..1u64 << bits,
                Just((1 << bits) - 1),
                Just(1 << bits),
                Just(0)
            ]
        };
        let next = (
            around(TICK_BITS),
            0u64..3,
            around(SIZE_BITS),
            around(SLACK_BITS),
            0u64..2,
        );
        let next = next.prop_map(|(ticks, stack, size, slack, more)| Coming::SampledNext {
            ticks,
            stack,
            size,
            slack: slack as u32,
            more,
        });
        let distance = (around(63 - NEAR_SHIFT), any::<bool>());
        let near = (around(TICK_BITS), distance).prop_map(|(ticks, (distance, is_negative))| {
            Coming::FreedNear {
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
        /// Against a queue: whatever found room comes out, as it was and in its order, through any number of rounds of
        /// the ring.
        #[test]
        fn it_is_a_queue(
            steps in prop::collection::vec((coming(), 0usize..4), 0..if cfg!(miri) { 30 } else { 300 }),
            words in prop_oneof![Just(16usize), Just(64)],
        ) {
            let lane = lane(words);
            let mut tap = Tap::new(&lane);
            let mut model = VecDeque::new();
            let (mut interval, mut at, mut id) = (0, 0u64, 0u64);
            for ((by, coming), taken) in steps {
                let passed = match coming {
                    Coming::Sampled(it) => Passed::Sampled(it),
                    Coming::SampledNext { ticks, stack, size, slack, more } => Passed::Sampled(Sampled {
                        at: at + ticks,
                        id: id_after(id),
                        stack,
                        size,
                        slack,
                        counted: size + u64::from(slack) + more,
                    }),
                    Coming::Freed(it) => Passed::Freed(it),
                    Coming::FreedNear { ticks, distance } => Passed::Freed(Freed {
                        at: at + ticks,
                        id: id.saturating_add_signed(distance),
                    }),
                };
                let found_room = match &passed {
                    Passed::Sampled(it) => lane.put_sampled(by, it),
                    Passed::Freed(it) => lane.put_freed(by.thread, it),
                };
                prop_assert!(found_room || !model.is_empty());
                if found_room {
                    match &passed {
                        Passed::Sampled(it) => (interval, at, id) = (by.interval, it.at, it.id),
                        Passed::Freed(it) => at = it.at,
                    }
                    model.push_back((By { interval, ..by }, passed));
                }
                for _ in 0..taken {
                    tap.look();
                    prop_assert_eq!(tap.is_empty(), model.is_empty());
                    match model.pop_front() {
                        None => prop_assert_eq!(tap.next_at, u64::MAX),
                        Some(expected) => {
                            let mut out = Out::NOTHING;
                            let next = tap.take(&mut out);
                            prop_assert_eq!(out.passed(next), expected);
                        }
                    }
                    tap.give_back();
                }
            }
        }
    }

    #[test]
    fn what_is_as_usual_is_a_word_or_two() {
        let lane = lane(64);
        let by = By {
            thread: 0,
            interval: 1,
        };
        let put = |at, stack| {
            let before = lane.behind.0.put.load(Ordering::Relaxed);
            let id = lane.new_id();
            let sampled = Sampled {
                at,
                id,
                stack,
                size: 100,
                slack: 12,
                counted: 112,
            };
            assert!(lane.put_sampled(by, &sampled));
            let between = lane.behind.0.put.load(Ordering::Relaxed);
            assert!(lane.put_freed(0, &Freed { at: at + 500, id }));
            let after = lane.behind.0.put.load(Ordering::Relaxed);
            (between - before, after - between)
        };
        put(1000, 7);
        assert_eq!(put(2000, 7), (1, 1));
        assert_eq!(put(3000, 8), (2, 1));
        assert_eq!(put(1 << 40, 8), (6, 1));
        assert_eq!(put(1 << 20, 8), (6, 1), "a time that goes back");
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
        let mut tap = Tap::new(&lane);
        let free = |id| lane.put_freed(7, &Freed { at: id, id });
        let put = (1..).take_while(|&id| free(id)).count() as u64;
        assert!(
            (54..=62).contains(&put),
            "{put} of a word each, and one of two before them"
        );
        assert!(lane.is_half_full());
        tap.look();
        for id in 1..=put {
            let mut out = Out::NOTHING;
            assert_eq!(tap.take(&mut out), Next::Freed);
            assert_eq!(out.freed, Freed { at: id, id });
        }
        tap.give_back();
        assert!(!lane.is_half_full());
        assert!(free(1));
    }
}
