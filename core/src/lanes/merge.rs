//! Merge: the events of all lanes in the order of their times, with each sample before its free.
//!
//! A thread reads an event's time before it puts the event into its lane. Within a lane, events
//! keep their order. Among lanes, the one with the earliest event is followed until its next event
//! is more than some tolerance later than another lane's. So threads that alternate within a
//! microsecond come out in longer runs. Runs are cheaper here and in the log, whose times are not
//! that exact.
//!
//! Lanes are looked at one after another, and the writer may lose the processor in between for
//! milliseconds. Meanwhile a thread may put a sample into a lane that has been looked at. Another
//! thread may put the free of that block into a lane that has not. The free would be seen and the
//! sample not. So only events that are older than the look come out: they were put in before the
//! look.
//!
//! Times alone could still bring a free before its sample if the two are in different lanes. A
//! processor may read its counter before the load that brought it the address. (A barrier between
//! the two would cost more than the rest of the hook.) So a free waits until its sample has come
//! out. The sample is on its way: it was put in before any thread got the address.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::lanes::consumer::{Consumer, Stop};
use crate::lanes::event::{Event, Freed, NoUsualSink, Origin, Sampled, Sink};
use crate::lanes::lane::{LANES, Lane, lane_of};

/// See the module's text. This is the writer's side of all lanes.
#[derive(Debug)]
pub struct Merge<'a> {
    consumers: Vec<Consumer<'a>>,
    /// Index of each lane in `consumers`, by the lane's number.
    places: [u8; LANES],
    /// The lane whose events are taken now, and the time up to which.
    current: usize,
    until: u64,
    /// Time of the last look: older events have been seen.
    looked_at: u64,
    /// How much later than another lane's next event an event may be and still come first.
    tolerance: u64,
    /// Ids up to here belong to no lane: their samples came out elsewhere.
    inherited: u64,
    /// Frees whose samples have not come out, and frees that waited and are ready now.
    waiting: Vec<(Origin, Freed)>,
    ready: VecDeque<(Origin, Freed)>,
}

/// In `places`: a lane that has not been looked at.
const NONE: u8 = u8::MAX;

impl<'a> Merge<'a> {
    /// Returns a merge of lanes whose ids are above `inherited`.
    #[must_use]
    pub fn new(inherited: u64) -> Merge<'a> {
        Merge {
            consumers: Vec::new(),
            places: [NONE; LANES],
            current: 0,
            until: 0,
            looked_at: 0,
            tolerance: 0,
            inherited,
            waiting: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Lets events come out up to `tolerance` too late, in the unit of their times. The default
    /// is 0.
    pub fn set_tolerance(&mut self, tolerance: u64) {
        self.tolerance = tolerance;
    }

    /// Looks at all `lanes`, each given with its number. `now` is a time that was read before.
    /// Events that are not older stay for the next look; with `u64::MAX` none does.
    pub fn look(&mut self, now: u64, lanes: impl Iterator<Item = (usize, &'a Lane)>) {
        // A leftover event that is later than now: the counter was set back.
        let is_set_back = self
            .consumers
            .iter()
            .any(|consumer| (now..u64::MAX).contains(&consumer.next_at));
        self.looked_at = if is_set_back { u64::MAX } else { now };
        for (number, lane) in lanes {
            let place = &mut self.places[number % LANES];
            if *place == NONE {
                *place = self.consumers.len() as u8;
                self.consumers.push(Consumer::new(lane));
            }
            self.consumers[usize::from(*place)].look();
        }
        self.until = 0;
    }

    /// Returns the time before which the last look has seen every event.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Gives `sink` the seen events before the time `before`, at most `left`, and subtracts their
    /// number from `left`. Returns `Continue` if there are no more. Otherwise `left` is 0, or
    /// `sink` broke off.
    #[inline]
    pub fn deliver(
        &mut self,
        before: u64,
        left: &mut usize,
        sink: &mut impl Sink,
    ) -> ControlFlow<()> {
        let before = before.min(self.looked_at);
        while *left > 0 {
            if let Some((by, freed)) = self.ready.pop_front() {
                *left -= 1;
                sink.freed(by, &freed)?;
                continue;
            }
            // While a free waits, each event may be its sample.
            let most = if self.waiting.is_empty() { *left } else { 1 };
            let mut rest = most;
            let until = self.until.min(before);
            let why = match self.consumers.get(self.current) {
                None => Stop::Until,
                Some(consumer) => {
                    let mut consumer = *consumer;
                    let why = consumer.deliver(until, &mut rest, sink, |id| self.has_come_out(id));
                    self.consumers[self.current] = consumer;
                    why
                }
            };
            *left -= most - rest;
            if let Stop::Early(by, freed) = why {
                self.waiting.push((by, freed));
                continue;
            }
            if !self.waiting.is_empty() {
                self.release_waiting();
            }
            match why {
                Stop::Broken => return ControlFlow::Break(()),
                Stop::Until if !self.choose() || self.consumers[self.current].next_at >= before => {
                    self.consumers.iter_mut().for_each(Consumer::give_back);
                    return ControlFlow::Continue(());
                }
                _ => {}
            }
        }
        ControlFlow::Break(())
    }

    /// Returns true if the sample of an id has come out.
    #[inline(always)]
    fn has_come_out(&self, id: u64) -> bool {
        let place = self.places[lane_of(id)];
        let last = self
            .consumers
            .get(usize::from(place))
            .map_or(0, |consumer| consumer.last_id);
        id <= last || id <= self.inherited
    }

    #[cold]
    fn release_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (by, freed) in waiting {
            if self.has_come_out(freed.id) {
                self.ready.push_back((by, freed));
            } else {
                self.waiting.push((by, freed));
            }
        }
    }

    /// Finds the lane with the earliest event, and how far it may be followed.
    #[inline(never)]
    fn choose(&mut self) -> bool {
        let (mut first, mut second) = (u64::MAX, u64::MAX);
        for (place, consumer) in self.consumers.iter().enumerate() {
            if consumer.next_at < first {
                (first, second) = (consumer.next_at, first);
                self.current = place;
            } else {
                second = second.min(consumer.next_at);
            }
        }
        // The first event comes out in any case.
        self.until = if first == u64::MAX {
            0
        } else {
            second.saturating_add(self.tolerance).max(first + 1)
        };
        first != u64::MAX
    }

    /// Returns true if more than half of a lane waits to be taken.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        self.consumers.iter().any(Consumer::is_half_full)
    }

    /// Returns the number of lanes that were looked at.
    #[must_use]
    pub fn known_lanes(&self) -> usize {
        self.consumers.len()
    }

    /// Returns true if no event has come since the last look, in the known lanes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // A waiting free comes out with its sample, and the sample's lane is not empty.
        self.ready.is_empty() && self.consumers.iter().all(Consumer::is_empty)
    }
}

/// The next event with its origin. `None`: look again.
impl Iterator for Merge<'_> {
    type Item = (Origin, Event);

    fn next(&mut self) -> Option<Self::Item> {
        let mut one = SingleEvent(None);
        let _ = self.deliver(u64::MAX, &mut 1, &mut one); // the result is in `one`
        one.0
    }
}

/// A sink for one event.
struct SingleEvent(Option<(Origin, Event)>);

impl Sink for SingleEvent {
    type UsualSink<'a>
        = NoUsualSink
    where
        Self: 'a;

    fn sampled(&mut self, by: Origin, it: &Sampled) -> ControlFlow<()> {
        self.0 = Some((by, Event::Sampled(*it)));
        ControlFlow::Continue(())
    }

    fn freed(&mut self, by: Origin, it: &Freed) -> ControlFlow<()> {
        self.0 = Some((by, Event::Freed(*it)));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::event::{EndedSample, Sampled};
    use crate::lanes::model_all::All;
    use crate::primitive::atomic::AtomicU64;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    fn lanes(count: usize) -> Vec<Lane> {
        let words = || (0..1024).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        (0..count)
            .map(|number| Lane::new(Box::leak(words()), number, 0))
            .collect()
    }

    fn sampled(at: u64, id: u64) -> Sampled {
        Sampled {
            at,
            id,
            stack: 1,
            size: 8,
            slack: 0,
            counted: 8,
        }
    }

    /// Takes up to `most` events before a time. An even number limits `left`; with an odd one the
    /// sink breaks off.
    fn deliver(merge: &mut Merge<'_>, before: u64, most: usize) -> Vec<(Origin, Event)> {
        if most == 0 {
            return Vec::new();
        }
        let is_told = most.is_multiple_of(2);
        let mut all = All {
            breaks_after: (!is_told).then_some(most),
            // Another pattern each time, and often none.
            refused: (most as u64 % 3).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            ..All::default()
        };
        let at_first = if is_told { most } else { usize::MAX };
        let mut left = at_first;
        let flow = merge.deliver(before, &mut left, &mut all);
        assert_eq!(flow.is_break(), all.events.len() == most);
        assert_eq!(at_first - left, all.events.len());
        all.events
    }

    /// One step of a program with several threads, or of its writer.
    #[derive(Debug, Clone)]
    enum Step {
        /// A thread reads the time for a sample, and then pauses.
        Begin { thread: usize },
        /// The thread puts that sample in.
        Put { thread: usize, lane: usize },
        /// A block whose sample was put in is freed by a thread that read its time that much too
        /// early.
        Free {
            which: usize,
            lane: usize,
            early: u64,
        },
        /// The writer looks at the first lanes only, as if the others had been empty, and takes
        /// that many events.
        Look { lanes: usize, take: usize },
    }

    fn step() -> impl Strategy<Value = (u64, Step)> {
        let step = prop_oneof![
            (0usize..4).prop_map(|thread| Step::Begin { thread }),
            (0usize..4, 0usize..3).prop_map(|(thread, lane)| Step::Put { thread, lane }),
            (0usize..8, 0usize..3, 0u64..100).prop_map(|(which, lane, early)| Step::Free {
                which,
                lane,
                early
            }),
            (1usize..4, 0usize..20).prop_map(|(lanes, take)| Step::Look { lanes, take }),
        ];
        (1u64..50, step)
    }

    proptest! {
        #[test]
        fn a_free_comes_after_its_sample_and_all_comes_out(
            steps in prop::collection::vec(step(), 0..if cfg!(miri) { 40 } else { 200 }),
        ) {
            let lanes = lanes(3);
            let numbered = || lanes.iter().enumerate();
            let mut merge = Merge::new(0);
            let mut clock = 100;
            let mut begun: HashMap<usize, u64> = HashMap::new();
            let mut live = Vec::new();
            let (mut put, mut seen, mut ended) = (0, HashSet::new(), HashSet::new());
            let mut take = |merge: &mut Merge, most: usize| {
                for event in deliver(merge, u64::MAX, most) {
                    match event {
                        (by, Event::Sampled(it)) => {
                            prop_assert_eq!(by.interval, it.at);
                            prop_assert!(seen.insert(it.id));
                        }
                        (_, Event::Freed(it)) => {
                            prop_assert!(seen.contains(&it.id), "{} freed before it was there", it.id);
                            prop_assert!(ended.insert(it.id));
                        }
                    }
                }
                Ok(())
            };
            for (ticks, step) in steps {
                clock += ticks;
                match step {
                    Step::Begin { thread } => {
                        begun.entry(thread).or_insert(clock);
                    }
                    Step::Put { thread, lane } => {
                        if let Some(at) = begun.remove(&thread) {
                            let by = Origin { thread: thread as u32, interval: at };
                            let id = lanes[lane].new_id();
                            let found_room = lanes[lane].put_sampled(by, &sampled(at, id), EndedSample::NONE, |_| {});
                            prop_assert!(found_room);
                            put += 1;
                            live.push(id);
                        }
                    }
                    Step::Free { which, lane, early } => {
                        if !live.is_empty() {
                            let id = live.swap_remove(which % live.len());
                            let freed = Freed { at: clock - early, id };
                            let found_room = lanes[lane].put_freed(9, &freed, |_| {});
                            prop_assert!(found_room);
                        }
                    }
                    Step::Look { lanes: count, take: most } => {
                        merge.look(u64::MAX, numbered().take(count));
                        take(&mut merge, most)?;
                    }
                }
            }
            merge.look(u64::MAX, numbered());
            take(&mut merge, usize::MAX)?;
            prop_assert!(merge.is_empty());
            prop_assert_eq!(seen.len(), put);
            prop_assert_eq!(ended.len(), put - live.len());
        }

        /// Events that do not wait come in the order of time, within the tolerance, up to the
        /// requested time.
        #[test]
        fn events_come_by_their_times(
            events in prop::collection::vec((0usize..3, 1u64..1000, any::<bool>()), 0..60),
            until in prop::collection::vec(1u64..10_000, 0..10),
            tolerance in prop_oneof![Just(0), 1u64..3000],
        ) {
            let lanes = lanes(3);
            let mut merge = Merge::new(0);
            merge.set_tolerance(tolerance);
            let (mut clock, mut live, mut all) = (0, Vec::new(), Vec::new());
            for &(lane, ticks, frees) in &events {
                clock += ticks;
                all.push(clock);
                let by = Origin { thread: lane as u32, interval: 1 };
                let found_room = match live.pop().filter(|_| frees) {
                    Some(id) => lanes[lane].put_freed(1, &Freed { at: clock, id }, |_| {}),
                    None => {
                        live.push(lanes[lane].new_id());
                        lanes[lane].put_sampled(by, &sampled(clock, live[live.len() - 1]), EndedSample::NONE, |_| {})
                    }
                };
                prop_assert!(found_room);
            }
            merge.look(u64::MAX, lanes.iter().enumerate());
            let mut times: Vec<u64> = Vec::new();
            let mut before = 0;
            for more in until.into_iter().chain([u64::MAX]) {
                before = more.saturating_add(before);
                let poured = deliver(&mut merge, before, usize::MAX);
                times.extend(poured.iter().map(|(_, passed)| match passed {
                    Event::Sampled(it) => it.at,
                    Event::Freed(it) => it.at,
                }));
                let due = all.iter().filter(|&&at| at < before).count();
                prop_assert_eq!(times.len(), due);
            }
            prop_assert_eq!(times.len(), events.len());
            let latest = times.iter().scan(0, |latest, &at| {
                *latest = at.max(*latest);
                Some(*latest)
            });
            prop_assert!(times.iter().zip(latest).all(|(&at, latest)| latest - at <= tolerance));
        }
    }

    proptest! {
        /// The writer is held up between two lanes while threads go on: their events still come in
        /// the order of time.
        #[test]
        fn a_look_that_takes_long_changes_no_order(
            looks in prop::collection::vec(prop::collection::vec((0usize..3, 0usize..4, 1u64..100), 0..20), 1..6),
        ) {
            let lanes = lanes(3);
            let mut merge = Merge::new(0);
            let (mut clock, mut put) = (0, 0);
            let mut times: Vec<u64> = Vec::new();
            let mut deliver = |merge: &mut Merge<'_>| {
                let poured = deliver(merge, u64::MAX, usize::MAX);
                times.extend(poured.iter().map(|(_, passed)| match passed {
                    Event::Sampled(it) => it.at,
                    Event::Freed(it) => it.at,
                }));
            };
            for events in &looks {
                let now = clock + 1;
                // Events whose second number is a lane's happen before the look at that lane, the
                // others after the last look.
                let mut happen = |lane_looked_at: usize| {
                    for &(lane, when, ticks) in events {
                        if when == lane_looked_at {
                            clock += ticks;
                            let by = Origin { thread: lane as u32, interval: 1 };
                            assert!(lanes[lane].put_sampled(by, &sampled(clock, lanes[lane].new_id()), EndedSample::NONE, |_| {}));
                            put += 1;
                        }
                    }
                };
                merge.look(now, lanes.iter().enumerate().inspect(|&(number, _)| happen(number)));
                happen(3);
                deliver(&mut merge);
            }
            merge.look(u64::MAX, lanes.iter().enumerate());
            deliver(&mut merge);
            prop_assert!(times.is_sorted(), "{times:?}");
            prop_assert_eq!(times.len(), put);
        }
    }

    #[test]
    fn a_counter_that_is_set_back_holds_nothing_back() {
        let lanes = lanes(2);
        let put = |lane: usize, at| {
            let by = Origin {
                thread: 1,
                interval: 1,
            };
            assert!(lanes[lane].put_sampled(
                by,
                &sampled(at, lanes[lane].new_id()),
                EndedSample::NONE,
                |_| {}
            ));
        };
        let mut merge = Merge::new(0);
        put(0, 1000);
        put(1, 20);
        merge.look(30, lanes.iter().enumerate());
        assert_eq!(deliver(&mut merge, u64::MAX, usize::MAX).len(), 1);
        put(1, 40);
        merge.look(50, lanes.iter().enumerate());
        assert_eq!(deliver(&mut merge, u64::MAX, usize::MAX).len(), 2);
        put(1, 70);
        merge.look(60, lanes.iter().enumerate());
        assert_eq!(deliver(&mut merge, u64::MAX, usize::MAX).len(), 0);
    }

    #[test]
    fn a_free_that_waited_comes_right_after_its_sample() {
        let lanes = lanes(2);
        let by = |at| Origin {
            thread: 1,
            interval: at,
        };
        let ids = [10, 11, 12].map(|at| {
            let id = lanes[0].new_id();
            assert!(lanes[0].put_sampled(by(at), &sampled(at, id), EndedSample::NONE, |_| {}));
            id
        });
        let freed = Freed { at: 5, id: ids[0] };
        assert!(lanes[1].put_freed(2, &freed, |_| {}));
        let mut merge = Merge::new(0);
        merge.look(u64::MAX, lanes.iter().enumerate());
        let all = deliver(&mut merge, u64::MAX, usize::MAX);
        let all: Vec<Event> = all.into_iter().map(|(_, passed)| passed).collect();
        let samples = [10, 11, 12].map(|at| Event::Sampled(sampled(at, ids[at as usize - 10])));
        assert_eq!(
            all,
            [samples[0], Event::Freed(freed), samples[1], samples[2]]
        );
    }

    /// The last id of a lane and the first id of the next lane are neighbours, which says nothing
    /// about their samples.
    #[test]
    fn a_free_of_another_lane_s_sample_with_the_id_before_waits_for_it() {
        let lanes = lanes(2);
        let by = Origin {
            thread: 1,
            interval: 1,
        };
        let first = lanes[1].new_id();
        let last = first - 2;
        assert_ne!(
            crate::lanes::lane::lane_of(first),
            crate::lanes::lane::lane_of(last)
        );
        for (lane, at, id) in [(1, 10, first), (0, 50, last)] {
            assert!(lanes[lane].put_sampled(by, &sampled(at, id), EndedSample::NONE, |_| {}));
        }
        assert!(lanes[1].put_freed(1, &Freed { at: 20, id: last }, |_| {}));
        let mut merge = Merge::new(0);
        merge.look(u64::MAX, lanes.iter().enumerate());
        let all = deliver(&mut merge, u64::MAX, 100);
        let ids = all.into_iter().map(|(_, passed)| match passed {
            Event::Sampled(it) => (true, it.id),
            Event::Freed(it) => (false, it.id),
        });
        assert_eq!(
            ids.collect::<Vec<_>>(),
            [(true, first), (true, last), (false, last)]
        );
    }

    #[test]
    fn threads_that_take_turns_come_in_runs() {
        let lanes = lanes(2);
        for turn in 0..100 {
            let lane = &lanes[turn % 2];
            let by = Origin {
                thread: turn as u32 % 2,
                interval: 1,
            };
            assert!(lane.put_sampled(
                by,
                &sampled(turn as u64 * 10, lane.new_id()),
                EndedSample::NONE,
                |_| {}
            ));
        }
        let switches = |tolerance| {
            let mut merge = Merge::new(0);
            merge.set_tolerance(tolerance);
            merge.look(u64::MAX, lanes.iter().enumerate());
            let all = deliver(&mut merge, u64::MAX, usize::MAX);
            assert_eq!(all.len(), 100);
            let turns = all.windows(2);
            turns
                .filter(|two| two[0].0.thread != two[1].0.thread)
                .count()
        };
        assert_eq!(switches(0), 99);
        assert!((8..=12).contains(&switches(100)), "{}", switches(100));
    }

    #[test]
    fn what_was_inherited_is_freed_at_once() {
        let lanes = lanes(1);
        let mut merge = Merge::new(77);
        assert!(lanes[0].put_freed(1, &Freed { at: 1, id: 77 }, |_| {}));
        merge.look(u64::MAX, lanes.iter().enumerate());
        let (by, passed) = merge.next().unwrap();
        assert_eq!(
            (by.thread, passed),
            (1, Event::Freed(Freed { at: 1, id: 77 }))
        );
        assert_eq!(merge.next(), None);
    }

    #[test]
    fn it_says_what_waits_and_gives_room_back() {
        let lanes = lanes(2);
        let by = Origin {
            thread: 1,
            interval: 1,
        };
        let put = |lane: &Lane, at| {
            lane.put_sampled(by, &sampled(at, lane.new_id()), EndedSample::NONE, |_| {})
        };
        let mut merge = Merge::new(0);
        let is = |merge: &Merge<'_>| (merge.known_lanes(), merge.is_empty(), merge.is_half_full());
        assert_eq!(is(&merge), (0, true, false));
        merge.look(50, lanes.iter().enumerate());
        assert_eq!((is(&merge), merge.looked_at()), ((2, true, false), 50));
        // A new event and a leftover one each count, before a look and after it.
        assert!(put(&lanes[1], 10));
        assert_eq!(is(&merge), (2, false, false));
        merge.look(60, lanes.iter().enumerate());
        assert_eq!(is(&merge), (2, false, false));
        assert_eq!(deliver(&mut merge, u64::MAX, usize::MAX).len(), 1);
        assert_eq!(is(&merge), (2, true, false));
        // Several times the contents of a lane, if taken room is given back.
        let mut at = 60;
        for round in 0..10 {
            let mut all = 0;
            while !lanes[0].is_half_full() {
                assert!(!merge.is_half_full());
                at += 1;
                assert!(put(&lanes[0], at));
                all += 1;
            }
            assert_eq!(is(&merge), (2, false, true), "round {round}");
            merge.look(at + 1, lanes.iter().enumerate());
            assert_eq!(deliver(&mut merge, u64::MAX, usize::MAX).len(), all);
            assert_eq!(is(&merge), (2, true, false), "round {round}");
        }
    }

    /// More events than are wanted: a free that waited and is ready is not forgotten.
    #[test]
    fn a_free_that_is_ready_is_something_that_waits() {
        let lanes = lanes(2);
        let by = Origin {
            thread: 1,
            interval: 1,
        };
        let id = lanes[0].new_id();
        assert!(lanes[0].put_sampled(by, &sampled(10, id), EndedSample::NONE, |_| {}));
        assert!(lanes[1].put_freed(1, &Freed { at: 5, id }, |_| {}));
        let mut merge = Merge::new(0);
        merge.look(u64::MAX, lanes.iter().enumerate());
        assert!(matches!(merge.next(), Some((_, Event::Sampled(_)))));
        assert!(!merge.is_empty());
        assert!(matches!(merge.next(), Some((_, Event::Freed(_)))));
        assert!(merge.is_empty());
    }
}
