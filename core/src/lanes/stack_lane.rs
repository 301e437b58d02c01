//! Stack lane: the queue of the frames of unknown stacks from the threads of a program to the
//! writer.
//!
//! Model: a single-producer single-consumer ring of words, as a [`Lane`](crate::Lane). So a hook
//! needs no memory for a stack that it sends. An allocator, our own included, has locks, and needs
//! more stack than a thread may have left.
//!
//! ```text
//!   hash │ labels << 32 | frames << 8 | end │ address of each frame ...
//!        │ a bit for each interrupted frame ... │ words of the labels ...
//! ```
//!
//! The lane does not know what the words of the labels mean. The words of a code object stand in
//! the place of addresses, under the end [`CODE`].

use crate::lanes::event::low;
use crate::lanes::lane::CacheAligned;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// The end of an entry that is a code object and no stack.
const CODE: u8 = u8::MAX;

/// Words before the addresses.
const HEAD: u64 = 2;
/// Place of the number of labels' words in the second word, and of the number of frames.
const LABELS_SHIFT: u32 = 32;
const FRAMES_SHIFT: u32 = 8;

/// A stack that came out, or a code object.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct SentStack {
    /// Hash of the frames, the end and the labels.
    pub hash: u64,
    /// Reason of the walk's end, as it was put in.
    pub end: u8,
    /// Addresses, innermost first.
    pub frames: Vec<u64>,
    /// Frames that a signal interrupted: indices into `frames`, in rising order.
    pub interrupted: Vec<u32>,
    /// The words of the labels, as they were put in; empty without labels.
    pub labels: Vec<u64>,
}

impl SentStack {
    /// Returns true if it is a code object, whose words are in the place of the addresses.
    pub fn is_code(&self) -> bool {
        self.end == CODE
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct StackLane {
    words: &'static [AtomicU64],
    /// Words put in so far, to the end of the last stack.
    put: CacheAligned<Position>,
    /// Words taken out so far, whose room is free again.
    taken: CacheAligned<Position>,
}

/// The position of one of the two sides.
#[derive(Debug, Default)]
struct Position {
    published: AtomicU64,
    /// A copy for the own side: loom follows a store better in a thread that does not read it back.
    own: AtomicU64,
}

impl Position {
    /// Returns the position for the other side. The words before it are visible.
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
    /// Returns an empty lane.
    ///
    /// # Panics
    /// If the number of words is not a power of two.
    #[must_use]
    pub fn new(words: &'static [AtomicU64]) -> StackLane {
        assert!(words.len().is_power_of_two());
        StackLane {
            words,
            put: CacheAligned::default(),
            taken: CacheAligned::default(),
        }
    }

    /// Returns the number of words that a stack of that many frames takes without labels.
    pub const fn words_of(frames: usize) -> usize {
        HEAD as usize + frames + frames.div_ceil(u64::BITS as usize)
    }

    /// Puts a stack in: the address of the innermost frame, each other frame with "it was
    /// interrupted", and the words of its labels. Returns false if there is no room.
    pub fn put(
        &self,
        hash: u64,
        end: u8,
        innermost: u64,
        others: impl ExactSizeIterator<Item = (u64, bool)>,
        labels: &[u64],
    ) -> bool {
        let len = 1 + others.len();
        let at = self.put.0.own();
        let labels_at = at.wrapping_add(Self::words_of(len) as u64);
        let after = labels_at.wrapping_add(labels.len() as u64);
        if after.wrapping_sub(self.taken.0.seen()) > self.words.len() as u64 {
            return false;
        }
        let len = len as u64;
        self.set(at, hash);
        let lengths = (labels.len() as u64) << LABELS_SHIFT | len << FRAMES_SHIFT;
        self.set(at.wrapping_add(1), lengths | u64::from(end));
        for (n, &word) in (0..).zip(labels) {
            self.set(labels_at.wrapping_add(n), word);
        }
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

    /// Puts a code object in: the hash by which stacks name it, and its words. Returns false if
    /// there is no room.
    pub fn put_code(&self, hash: u64, words: &[u64]) -> bool {
        let Some((&first, others)) = words.split_first() else {
            return true;
        };
        let others = others.iter().map(|&word| (word, false));
        self.put(hash, CODE, first, others, &[])
    }

    /// Takes the oldest stack out.
    pub fn take(&self) -> Option<SentStack> {
        let at = self.taken.0.own();
        if at == self.put.0.seen() {
            return None;
        }
        let hash = self.get(at);
        let head = self.get(at.wrapping_add(1));
        let (labels, end) = (head >> LABELS_SHIFT, head as u8);
        let len = low(head, LABELS_SHIFT) >> FRAMES_SHIFT;
        let first = at.wrapping_add(HEAD);
        let frames = (0..len).map(|n| self.get(first.wrapping_add(n))).collect();
        let is_interrupted =
            |n: &u64| self.get(first.wrapping_add(len + n / 64)) >> (n % 64) & 1 != 0;
        let interrupted = (0..len).filter(is_interrupted).map(|n| n as u32).collect();
        let labels_at = at.wrapping_add(Self::words_of(len as usize) as u64);
        let label = |n| self.get(labels_at.wrapping_add(n));
        let taken = (0..labels).map(label).collect();
        self.taken.0.publish(labels_at.wrapping_add(labels));
        Some(SentStack {
            hash,
            end,
            frames,
            interrupted,
            labels: taken,
        })
    }

    /// Returns true if no stack waits.
    pub fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Returns true if more than half of the lane waits to be taken.
    pub fn is_half_full(&self) -> bool {
        self.waiting() > self.words.len() as u64 / 2
    }

    fn waiting(&self) -> u64 {
        // In this order `taken` is at most `put`.
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
        lane.put(
            stack.hash,
            stack.end,
            stack.frames[0],
            others,
            &stack.labels,
        )
    }

    fn words_of(stack: &SentStack) -> usize {
        StackLane::words_of(stack.frames.len()) + stack.labels.len()
    }

    fn stack() -> impl Strategy<Value = SentStack> {
        let frames = prop::collection::vec((any::<u64>(), prop::bool::weighted(0.1)), 1..200);
        let labels = prop::collection::vec(any::<u64>(), 0..9);
        (any::<u64>(), any::<u8>(), frames, labels).prop_map(|(hash, end, frames, labels)| {
            SentStack {
                hash,
                end,
                labels,
                interrupted: (0..)
                    .zip(&frames)
                    .skip(1) // the innermost frame called the allocation function
                    .filter(|(_, it)| it.1)
                    .map(|(n, _)| n)
                    .collect(),
                frames: frames.into_iter().map(|(address, _)| address).collect(),
            }
        })
    }

    proptest! {
        /// Against a queue: stacks come out whole and in order. A refused stack has no room, and
        /// leaves nothing.
        #[test]
        fn what_is_put_in_comes_out(steps in prop::collection::vec(prop::option::of(stack()), 1..if cfg!(miri) { 20 } else { 200 })) {
            let lane = lane(512);
            let (mut queue, mut waiting) = (VecDeque::new(), 0);
            for step in steps {
                match step {
                    Some(stack) => {
                        let words = words_of(&stack);
                        let has_room = waiting + words <= 512;
                        prop_assert_eq!(put(&lane, &stack), has_room);
                        if has_room {
                            waiting += words;
                            queue.push_back(stack);
                        }
                    }
                    None => {
                        let next: Option<SentStack> = queue.pop_front();
                        waiting -= next.as_ref().map_or(0, words_of);
                        prop_assert_eq!(lane.take(), next);
                    }
                }
                prop_assert_eq!(lane.is_empty(), waiting == 0);
                prop_assert_eq!(lane.is_half_full(), waiting > 256);
            }
        }
    }

    #[test]
    fn a_code_object_comes_out_as_one() {
        let lane = lane(64);
        assert!(lane.put_code(7, &[u64::MAX, 2, 3]) && !lane.put_code(8, &[0; 64]));
        assert!(put(
            &lane,
            &SentStack {
                frames: vec![1],
                ..SentStack::default()
            }
        ));
        let code = lane.take().unwrap();
        assert!(code.is_code());
        assert_eq!((code.hash, &code.frames[..]), (7, &[u64::MAX, 2, 3][..]));
        assert!(!lane.take().unwrap().is_code());
    }

    #[test]
    fn a_stack_that_fills_it_has_room() {
        let lane = lane(64);
        let stack = SentStack {
            hash: 7,
            end: 3,
            frames: (100..159).collect(),
            interrupted: vec![1, 58],
            labels: vec![u64::MAX, 0],
        };
        assert_eq!(words_of(&stack), 64);
        for _ in 0..3 {
            assert!(put(&lane, &stack) && !put(&lane, &stack));
            assert_eq!(lane.take().as_ref(), Some(&stack));
        }
    }
}
