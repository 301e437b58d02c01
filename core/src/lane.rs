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
//! Thread and interval are told once for many events; a free is two words, a sample mostly five:
//!
//! | kind | words |
//! | --- | --- |
//! | `BY` | thread and kind, interval: whose events follow, and under what interval they are sampled |
//! | `FREED` | id and kind, time |
//! | `SAMPLED` | id and kind, time, stack, size, slack; counted is size and slack |
//! | `SAMPLED_COUNTED` | the same, counted |
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
const SAMPLED_COUNTED: u64 = 3;
/// Where the kind is in an event's first word.
const KIND: u64 = 3;

/// Lanes there can be.
pub const LANES: usize = 64;

/// Ids that follow each other, before a lane goes on to its next block.
const BLOCK: u64 = 4096;

/// The number of the lane that gave that id.
#[inline(always)]
pub(crate) fn lane_of(id: u64) -> usize {
    (id / BLOCK) as usize % LANES
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
    /// Below 2^62.
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
    /// Below 2^62.
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
        let mut after = id + 1;
        if after.is_multiple_of(BLOCK) {
            after += BLOCK * (LANES as u64 - 1);
        }
        next.store(after, Ordering::Relaxed);
        id
    }

    /// An id that is above all that were given.
    pub fn above(&self) -> u64 {
        self.behind.0.next_id.load(Ordering::Relaxed)
    }

    /// Puts a sample in. False: there is no room.
    #[inline]
    pub fn put_sampled(&self, by: By, it: &Sampled) -> bool {
        let slack = u64::from(it.slack);
        if it.counted == it.size.wrapping_add(slack) {
            self.put(by, [it.id << 2 | SAMPLED, it.at, it.stack, it.size, slack])
        } else {
            let first = it.id << 2 | SAMPLED_COUNTED;
            self.put(by, [first, it.at, it.stack, it.size, slack, it.counted])
        }
    }

    /// Puts a free by that thread in. False: there is no room.
    #[inline]
    pub fn put_freed(&self, thread: u32, it: &Freed) -> bool {
        let by = By {
            thread,
            interval: self.behind.0.interval.load(Ordering::Relaxed),
        };
        self.put(by, [it.id << 2 | FREED, it.at])
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
                .store(u64::from(by.thread) << 2 | BY, Ordering::Relaxed);
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
            if first & KIND != BY {
                self.next_at = self.word(1);
                return;
            }
            self.by = By {
                thread: (first >> 2) as u32,
                interval: self.word(1),
            };
            self.at = self.at.wrapping_add(2);
        }
    }

    /// Takes the next event out, which must be there, into `out`.
    #[inline(always)]
    pub(crate) fn take(&mut self, out: &mut Out) -> Next {
        let first = self.word(0);
        let (at, id) = (self.next_at, first >> 2);
        out.by = self.by;
        let (next, words) = if first & KIND == FREED {
            out.freed = Freed { at, id };
            (Next::Freed, 2)
        } else {
            let (size, slack) = (self.word(3), self.word(4) as u32);
            let is_counted = first & KIND == SAMPLED_COUNTED;
            self.last_id = id;
            out.sampled = Sampled {
                at,
                id,
                stack: self.word(2),
                size,
                slack,
                counted: match is_counted {
                    true => self.word(5),
                    false => size.wrapping_add(slack.into()),
                },
            };
            (Next::Sampled, 5 + u64::from(is_counted))
        };
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

    fn event() -> impl Strategy<Value = (By, Passed)> {
        let by = (0u32..3, prop_oneof![Just(1u64), Just(4096)]);
        let by = by.prop_map(|(thread, interval)| By { thread, interval });
        let sampled = (any::<(u64, u64, u64, u32, u64)>(), any::<bool>()).prop_map(
            |((at, stack, size, slack, counted), is_usual)| {
                Passed::Sampled(Sampled {
                    at: at >> 1,
                    id: at >> 3,
                    stack,
                    size,
                    slack,
                    counted: if is_usual {
                        size.wrapping_add(slack.into())
                    } else {
                        counted
                    },
                })
            },
        );
        let freed = any::<u64>().prop_map(|at| {
            Passed::Freed(Freed {
                at: at >> 1,
                id: at >> 2,
            })
        });
        (by, prop_oneof![sampled, freed])
    }

    proptest! {
        /// Against a queue: whatever found room comes out, as it was and in its order, through any number of rounds of
        /// the ring.
        #[test]
        fn it_is_a_queue(
            steps in prop::collection::vec((event(), 0usize..4), 0..if cfg!(miri) { 30 } else { 300 }),
            words in prop_oneof![Just(16usize), Just(64)],
        ) {
            let lane = lane(words);
            let mut tap = Tap::new(&lane);
            let mut model = VecDeque::new();
            let mut interval = 0;
            for ((by, passed), taken) in steps {
                let found_room = match &passed {
                    Passed::Sampled(it) => {
                        let found_room = lane.put_sampled(by, it);
                        if found_room {
                            interval = by.interval;
                        }
                        found_room
                    }
                    Passed::Freed(it) => lane.put_freed(by.thread, it),
                };
                prop_assert!(found_room || !model.is_empty());
                if found_room {
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
            (26..=31).contains(&put),
            "{put} of two words each, and one of two before them"
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
