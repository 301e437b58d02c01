//! Stack lane: the queue of the frames of new stacks, from the threads of a program to the writer.
//!
//! Model: a ring of words, as in a [`Lane`](crate::Lane), with one producer at any time and one
//! consumer. With it a hook needs no memory for what it sends. An allocator, ours included, has
//! locks, and needs more of the stack than a thread may have left.
//!
//! ```text
//!   hash │ frames << 8 | end │ address of each frame ... │ a bit for each frame ...
//!
//!   a frame's bit: it was interrupted, and does not return
//! ```

use crate::lanes::lane::Apart;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// Words before the addresses.
const HEAD: u64 = 2;

/// A stack that came out.
#[derive(Debug, PartialEq, Eq)]
pub struct SentStack {
    /// Hash of the frames and the end.
    pub hash: u64,
    /// Why the walk ended, as it was put in.
    pub end: u8,
    /// Addresses, innermost first.
    pub frames: Vec<u64>,
    /// The frames that a signal interrupted: places in `frames`, in rising order.
    pub interrupted: Vec<u32>,
}

/// See the module's text.
#[derive(Debug)]
pub struct StackLane {
    words: &'static [AtomicU64],
    /// Words put in so far, to the end of the last stack.
    put: Apart<Moved>,
    /// Words taken out so far: there is room again.
    taken: Apart<Moved>,
}

/// How far one of the two sides is.
#[derive(Debug, Default)]
struct Moved {
    published: AtomicU64,
    /// The same, to be read on this side: loom follows a store better in a thread that does not
    /// read it back.
    own: AtomicU64,
}

impl Moved {
    /// For the other side: what was done with the words until then is seen.
    fn seen(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    fn publish(&self, words: u64) {
        self.own.store(words, Ordering::Relaxed);
        self.published.store(words, Ordering::Release);
    }
}

impl StackLane {
    /// An empty one. `words`: a power of two of them.
    ///
    /// # Panics
    /// If there is another number of words.
    #[must_use]
    pub fn new(words: &'static [AtomicU64]) -> StackLane {
        assert!(words.len().is_power_of_two());
        StackLane {
            words,
            put: Apart::default(),
            taken: Apart::default(),
        }
    }

    /// Words that a stack of so many frames takes.
    pub const fn words_of(frames: usize) -> usize {
        HEAD as usize + frames + frames.div_ceil(u64::BITS as usize)
    }

    /// Puts a stack in: the address of its first frame, which is the innermost, and of each of the
    /// others with whether it was interrupted. False: there is no room.
    pub fn put(
        &self,
        hash: u64,
        end: u8,
        innermost: u64,
        others: impl ExactSizeIterator<Item = (u64, bool)>,
    ) -> bool {
        let len = 1 + others.len();
        let at = self.put.0.own();
        let after = at.wrapping_add(Self::words_of(len) as u64);
        if after.wrapping_sub(self.taken.0.seen()) > self.words.len() as u64 {
            return false;
        }
        let len = len as u64;
        self.set(at, hash);
        self.set(at.wrapping_add(1), len << 8 | u64::from(end));
        let first = at.wrapping_add(HEAD);
        let mut bits = 0;
        let frames = std::iter::once((innermost, false)).chain(others);
        for (n, (address, interrupted)) in (0..).zip(frames) {
            self.set(first.wrapping_add(n), address);
            bits |= u64::from(interrupted) << (n % 64);
            if n % 64 == 63 || n + 1 == len {
                self.set(first.wrapping_add(len + n / 64), bits);
                bits = 0;
            }
        }
        self.put.0.publish(after);
        true
    }

    /// Takes the oldest out.
    pub fn take(&self) -> Option<SentStack> {
        let at = self.taken.0.own();
        if at == self.put.0.seen() {
            return None;
        }
        let hash = self.get(at);
        let head = self.get(at.wrapping_add(1));
        let (len, end) = (head >> 8, head as u8);
        let first = at.wrapping_add(HEAD);
        let frames = (0..len).map(|n| self.get(first.wrapping_add(n))).collect();
        let is_interrupted =
            |n: &u64| self.get(first.wrapping_add(len + n / 64)) >> (n % 64) & 1 != 0;
        let interrupted = (0..len).filter(is_interrupted).map(|n| n as u32).collect();
        let words = Self::words_of(len as usize) as u64;
        self.taken.0.publish(at.wrapping_add(words));
        Some(SentStack {
            hash,
            end,
            frames,
            interrupted,
        })
    }

    /// Whether nothing waits there.
    pub fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Whether more than half of it waits to be taken.
    pub fn is_half_full(&self) -> bool {
        self.waiting() > self.words.len() as u64 / 2
    }

    fn waiting(&self) -> u64 {
        // In this order what was taken is no more than what was put in.
        let taken = self.taken.0.seen();
        self.put.0.seen().wrapping_sub(taken)
    }

    fn set(&self, at: u64, value: u64) {
        self.words[at as usize & (self.words.len() - 1)].store(value, Ordering::Relaxed);
    }

    fn get(&self, at: u64) -> u64 {
        self.words[at as usize & (self.words.len() - 1)].load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn lane(words: usize) -> StackLane {
        let words: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(u64::MAX)).collect();
        StackLane::new(Box::leak(words))
    }

    fn put(lane: &StackLane, stack: &SentStack) -> bool {
        let others = stack.frames.iter().enumerate().skip(1);
        let others = others.map(|(n, &address)| (address, stack.interrupted.contains(&(n as u32))));
        lane.put(stack.hash, stack.end, stack.frames[0], others)
    }

    fn stack() -> impl Strategy<Value = SentStack> {
        let frames = prop::collection::vec((any::<u64>(), prop::bool::weighted(0.1)), 1..200);
        (any::<u64>(), any::<u8>(), frames).prop_map(|(hash, end, frames)| SentStack {
            hash,
            end,
            interrupted: (0..)
                .zip(&frames)
                .skip(1) // the allocation function was called
                .filter(|(_, it)| it.1)
                .map(|(n, _)| n)
                .collect(),
            frames: frames.into_iter().map(|(address, _)| address).collect(),
        })
    }

    proptest! {
        /// Against a queue: what goes in comes out, whole and in order; what is refused has no
        /// room, and leaves nothing.
        #[test]
        fn what_is_put_in_comes_out(steps in prop::collection::vec(prop::option::of(stack()), 1..if cfg!(miri) { 20 } else { 200 })) {
            let lane = lane(512);
            let (mut queue, mut waiting) = (VecDeque::new(), 0);
            for step in steps {
                match step {
                    Some(stack) => {
                        let words = StackLane::words_of(stack.frames.len());
                        let has_room = waiting + words <= 512;
                        prop_assert_eq!(put(&lane, &stack), has_room);
                        if has_room {
                            waiting += words;
                            queue.push_back(stack);
                        }
                    }
                    None => {
                        let next: Option<SentStack> = queue.pop_front();
                        waiting -= next.as_ref().map_or(0, |it| StackLane::words_of(it.frames.len()));
                        prop_assert_eq!(lane.take(), next);
                    }
                }
                prop_assert_eq!(lane.is_empty(), waiting == 0);
                prop_assert_eq!(lane.is_half_full(), waiting > 256);
            }
        }
    }

    #[test]
    fn a_stack_that_fills_it_has_room() {
        let lane = lane(64);
        let stack = SentStack {
            hash: 7,
            end: 3,
            frames: (100..161).collect(),
            interrupted: vec![1, 60],
        };
        assert_eq!(StackLane::words_of(61), 64);
        for _ in 0..3 {
            assert!(put(&lane, &stack) && !put(&lane, &stack));
            assert_eq!(lane.take().as_ref(), Some(&stack));
        }
    }
}
