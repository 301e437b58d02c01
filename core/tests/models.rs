//! The lock-free structures under loom: every interleaving of two or three threads, and every value
//! that an atomic may then show.
//!
//!     scripts/models
//!
//! Tables are tiny here (two slots in the first level, windows of two), so that threads collide at
//! every step, growth included. The model has the program's own synchronisation, too: an address
//! reaches another thread, or comes back from the allocator, only through such a synchronisation.
//!
//! Loom has one limit. It remembers only the last of two threads' accesses to an atomic. So a
//! thread that reads back a value before it stores hides another thread's read. Structures are
//! written so that they need not read back.
#![cfg(loom)]

use heapprof_core::{
    BloomFilter, EndedSample, Event, Freed, Growth, Lane, Levels, Merge, Origin, SampleTable,
    Sampled, SentStack, Slot, StackLane, StackSet, Unit, level_slots,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::thread;

/// Most levels in a model.
const MOST: usize = 2;

/// The levels of the preloaded library, step by step, with memory that exists from the start.
struct Modelled {
    memory: [&'static [Slot]; MOST],
    count: AtomicUsize,
    growing: AtomicBool,
}

impl Modelled {
    fn new() -> Modelled {
        let memory = |level| {
            let slots: Box<[Slot]> = (0..level_slots(level)).map(|_| Slot::default()).collect();
            &*Box::leak(slots)
        };
        Modelled {
            memory: std::array::from_fn(memory),
            count: AtomicUsize::new(0),
            growing: AtomicBool::new(false),
        }
    }
}

impl Levels for Modelled {
    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
    fn level(&self, n: usize) -> Option<&'static [Slot]> {
        self.memory.get(n).copied()
    }
    fn pause(&self) {
        thread::yield_now();
    }
    fn grow(&self, seen: usize) -> Growth {
        if seen >= MOST {
            return Growth::Refused;
        }
        if self.growing.swap(true, Ordering::Acquire) {
            return Growth::Busy;
        }
        if self.count() == seen {
            self.count.store(seen + 1, Ordering::Release);
        }
        self.growing.store(false, Ordering::Release);
        Growth::Grown
    }
}

fn table() -> Arc<SampleTable<Modelled>> {
    Arc::new(SampleTable::new(Modelled::new()))
}

/// Runs the model with at most three preemptions. A lost update needs two; with more than three,
/// some models take hours.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Takes the sample at `address` out, and leaves its slot.
fn take(table: &SampleTable<Modelled>, address: u64) -> Option<u64> {
    let (id, vacant) = table.take(address)?;
    vacant.leave();
    Some(id)
}

const A: u64 = 0x1000;
const B: u64 = 0x2000;

#[test]
fn two_threads_find_their_own_samples() {
    model(|| {
        let table = table();
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                assert!(table.insert(A, 1));
                assert_eq!(take(&table, A), Some(1));
                assert_eq!(take(&table, A), None);
            })
        };
        assert!(table.insert(B, 2));
        assert_eq!(take(&table, B), Some(2));
        other.join().unwrap();
        assert!(!table.holds(A) && !table.holds(B));
    });
}

#[test]
fn a_block_that_was_handed_over_is_found() {
    model(|| {
        let table = table();
        let handed_over = Arc::new(AtomicU64::new(0));
        let other = {
            let (table, handed_over) = (Arc::clone(&table), Arc::clone(&handed_over));
            thread::spawn(move || {
                assert!(table.insert(A, 7));
                handed_over.store(A, Ordering::Release); // the program gives the pointer away
            })
        };
        // Meanwhile this thread uses the table too.
        assert!(table.insert(B, 8));
        if handed_over.load(Ordering::Acquire) == A {
            assert_eq!(take(&table, A), Some(7));
        }
        assert_eq!(take(&table, B), Some(8));
        other.join().unwrap();
    });
}

#[test]
fn an_address_that_comes_back_carries_the_new_sample() {
    model(|| {
        let table = table();
        assert!(table.insert(A, 1));
        let freed = Arc::new(AtomicBool::new(false));
        let other = {
            let (table, freed) = (Arc::clone(&table), Arc::clone(&freed));
            thread::spawn(move || {
                assert_eq!(take(&table, A), Some(1));
                // the real free: the allocator may reuse the address
                freed.store(true, Ordering::Release);
            })
        };
        if freed.load(Ordering::Acquire) {
            assert!(table.insert(A, 2));
            assert_eq!(take(&table, A), Some(2));
        }
        other.join().unwrap();
        assert!(!table.holds(A));
    });
}

#[test]
fn a_place_that_was_kept_is_nobody_else_s() {
    model(|| {
        let table = table();
        assert!(table.insert(A, 1));
        let Some((1, kept)) = table.take(A) else {
            unreachable!()
        };
        let freed = Arc::new(AtomicBool::new(false));
        let other = {
            let (table, freed) = (Arc::clone(&table), Arc::clone(&freed));
            thread::spawn(move || {
                assert!(table.insert(B, 2)); // one of two slots is free
                // The allocator gave the address to this thread meanwhile, and it is free again.
                assert!(table.insert(A, 3));
                assert_eq!(take(&table, A), Some(3));
                freed.store(true, Ordering::Release);
                assert_eq!(take(&table, B), Some(2));
            })
        };
        if freed.load(Ordering::Acquire) {
            kept.fill(4);
            assert_eq!(take(&table, A), Some(4));
        } else {
            kept.leave();
        }
        other.join().unwrap();
        assert!(!table.holds(A) && !table.holds(B));
    });
}

#[test]
fn growth_loses_nothing() {
    model(|| {
        let table = table();
        // The first level has two slots: the third entry needs another level.
        assert!(table.insert(0x100, 100));
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || assert!(table.insert(A, 1)))
        };
        assert!(table.insert(B, 2));
        other.join().unwrap();
        assert_eq!(take(&table, 0x100), Some(100));
        assert_eq!(take(&table, A), Some(1));
        assert_eq!(take(&table, B), Some(2));
    });
}

#[test]
fn whoever_finds_a_stack_known_finds_its_frames_queued() {
    model(|| {
        let set = Arc::new(StackSet::new(Modelled::new()));
        set.insert(1); // the level exists: its publication must not stand in for that of the stack
        let queued = Arc::new(AtomicU64::new(0));
        let other = {
            let (set, queued) = (Arc::clone(&set), Arc::clone(&queued));
            thread::spawn(move || {
                queued.store(1, Ordering::Relaxed); // the frames
                set.insert(77);
            })
        };
        if set.contains(77) {
            assert_eq!(queued.load(Ordering::Relaxed), 1);
        }
        other.join().unwrap();
        assert!(set.contains(77));
    });
}

#[test]
fn two_threads_that_ship_the_same_stack_leave_it_known() {
    model(|| {
        let set = Arc::new(StackSet::new(Modelled::new()));
        let other = {
            let set = Arc::clone(&set);
            thread::spawn(move || set.insert(77))
        };
        // One of the two threads adds the first level. The other may find it busy, and leave the
        // stack to be sent again.
        set.insert(77);
        other.join().unwrap();
        assert!(set.contains(77));
        set.insert(78);
        assert!(set.contains(77) && set.contains(78));
    });
}

#[test]
fn the_bloom_filter_says_maybe_while_a_sample_lives() {
    model(|| {
        let filter = BloomFilter::new();
        filter.set_unit(Unit::SMALLEST, std::iter::empty());
        let filter = Arc::new(filter);
        let handed_over = Arc::new(AtomicBool::new(false));
        let other = {
            let (filter, handed_over) = (Arc::clone(&filter), Arc::clone(&handed_over));
            thread::spawn(move || {
                filter.add(A);
                handed_over.store(true, Ordering::Release);
            })
        };
        // The same counter, for another block.
        filter.add(A);
        filter.remove(A);
        if handed_over.load(Ordering::Acquire) {
            assert!(filter.may_hold(A));
        }
        other.join().unwrap();
        assert!(filter.may_hold(A));
        filter.remove(A);
        assert!(!filter.may_hold(A));
    });
}

/// A lane with the fewest words: the third long event has no room until some are taken.
fn lane(number: usize) -> &'static Lane {
    let words: Box<[AtomicU64]> = (0..16).map(|_| AtomicU64::new(0)).collect();
    Box::leak(Box::new(Lane::new(Box::leak(words), number, 0)))
}

/// Ticks after which no event is near: the event has its long form.
const LONG_AFTER: u64 = 1 << 40;

fn sampled(at: u64, id: u64) -> Sampled {
    Sampled {
        at,
        id,
        stack: id * 3,
        size: id * 5,
        slack: 1,
        counted: id * 7,
    }
}

const ORIGIN: Origin = Origin {
    thread: 4,
    interval: 1,
};

/// Takes all events that are there now.
fn taken(merge: &mut Merge<'static>, lanes: &[&'static Lane]) -> Vec<Event> {
    merge.look(u64::MAX, lanes.iter().copied().enumerate());
    merge.map(|(_, passed)| passed).collect()
}

#[test]
fn what_is_put_into_a_lane_comes_out_whole_and_in_order() {
    model(|| {
        let lane = lane(0);
        let other = thread::spawn(move || {
            // The third event has room only if the writer took some meanwhile, and then crosses the
            // end of the ring.
            [1, 2, 3].map(|n| {
                lane.put_sampled(
                    ORIGIN,
                    &sampled(n * LONG_AFTER, lane.new_id()),
                    EndedSample::NONE,
                    |_| {},
                )
            })
        });
        let mut merge = Merge::new(0);
        let mut all = taken(&mut merge, &[lane]);
        all.extend(taken(&mut merge, &[lane]));
        let put = other.join().unwrap();
        all.extend(taken(&mut merge, &[lane]));
        let expected = (1..).zip(put).filter(|(_, put)| *put);
        let expected = expected.map(|(n, _)| Event::Sampled(sampled(n * LONG_AFTER, n)));
        assert!(put[0] && all.iter().copied().eq(expected));
        assert!(merge.is_empty());
    });
}

#[test]
fn a_stack_comes_out_of_its_lane_whole() {
    model(|| {
        let words: Box<[AtomicU64]> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let lane: &'static StackLane = Box::leak(Box::new(StackLane::new(Box::leak(words))));
        // Five words each: the second has room only if the first was taken meanwhile, and crosses
        // the end of the ring.
        let other = thread::spawn(move || {
            [1, 2].map(|n| lane.put(n, 4, n * 5, [(n * 7, true)].into_iter(), &[]))
        });
        let mut all: Vec<SentStack> = lane.take().into_iter().collect();
        let put = other.join().unwrap();
        all.extend(std::iter::from_fn(|| lane.take()));
        let expected = (1..).zip(put).filter(|(_, put)| *put);
        let expected = expected.map(|(n, _)| SentStack {
            hash: n,
            end: 4,
            frames: vec![n * 5, n * 7],
            interrupted: vec![1],
            labels: vec![],
        });
        assert!(put[0] && all.into_iter().eq(expected));
    });
}

/// A sample names a stack that another thread put in before it added the stack to the set.
#[test]
fn a_stack_is_there_when_a_sample_of_another_thread_names_it() {
    model(|| {
        let words: Box<[AtomicU64]> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let stacks: &'static StackLane = Box::leak(Box::new(StackLane::new(Box::leak(words))));
        let lane = lane(0);
        let known = Arc::new(AtomicBool::new(false));
        let finds = {
            let known = Arc::clone(&known);
            thread::spawn(move || {
                assert!(stacks.put(9, 0, 5, std::iter::empty(), &[]));
                known.store(true, Ordering::Release);
            })
        };
        let samples = thread::spawn(move || {
            known.load(Ordering::Acquire)
                && lane.put_sampled(
                    ORIGIN,
                    &sampled(1, lane.new_id()),
                    EndedSample::NONE,
                    |_| {},
                )
        });
        // The lanes of samples come first, as in the writer.
        let mut merge = Merge::new(0);
        let has_come = !taken(&mut merge, &[lane]).is_empty();
        let stack = stacks.take();
        assert!(!has_come || stack.is_some_and(|it| it.hash == 9));
        finds.join().unwrap();
        samples.join().unwrap();
    });
}

#[test]
fn a_lane_goes_from_hand_to_hand_with_its_seat() {
    model(|| {
        let lane = lane(0);
        let busy = Arc::new(AtomicBool::new(false));
        let put = |busy: &AtomicBool, at| {
            let has_seat = !busy.swap(true, Ordering::Acquire);
            if has_seat {
                assert!(lane.put_sampled(
                    ORIGIN,
                    &sampled(at, lane.new_id()),
                    EndedSample::NONE,
                    |_| {}
                ));
                busy.store(false, Ordering::Release);
            }
            has_seat
        };
        let other = {
            let busy = Arc::clone(&busy);
            thread::spawn(move || put(&busy, 1))
        };
        let put = [put(&busy, 2), other.join().unwrap()];
        let all = taken(&mut Merge::new(0), &[lane]);
        // Each has an id of its own, in order.
        for (i, passed) in all.iter().enumerate() {
            let Event::Sampled(it) = passed else {
                unreachable!()
            };
            assert_eq!(*it, sampled(it.at, i as u64 + 1));
        }
        assert_eq!(all.len(), put.iter().filter(|put| **put).count());
    });
}

#[test]
fn no_block_is_freed_before_it_was_allocated() {
    model(|| {
        let lanes = [lane(0), lane(1)];
        let handed_over = Arc::new(AtomicBool::new(false));
        let first = {
            let handed_over = Arc::clone(&handed_over);
            thread::spawn(move || {
                // In the lane that is looked at first, so that a look may see the free and not
                // this.
                assert!(lanes[0].put_sampled(
                    ORIGIN,
                    &sampled(7, lanes[0].new_id()),
                    EndedSample::NONE,
                    |_| {}
                ));
                handed_over.store(true, Ordering::Release);
            })
        };
        let second = thread::spawn(move || {
            let has_it = handed_over.load(Ordering::Acquire);
            // The counter was read too early.
            has_it && lanes[1].put_freed(5, &Freed { at: 6, id: 1 }, |_| {})
        });
        let mut merge = Merge::new(0);
        let mut all = taken(&mut merge, &lanes);
        first.join().unwrap();
        let was_freed = second.join().unwrap();
        all.extend(taken(&mut merge, &lanes));
        assert_eq!(all[0], Event::Sampled(sampled(7, 1)));
        assert_eq!(all.len(), 1 + usize::from(was_freed));
        assert!(merge.is_empty());
    });
}
