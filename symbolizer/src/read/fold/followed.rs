//! Followed logs: what the fold of a log that grows does beside: it keeps averages, and it stays
//! within its room.

use heapprof_core::Weight;
use heapprof_format::{Free, Record};

use super::Fold;
use crate::model::profile::CallStack;
use crate::read::fold::averages::Averages;
use crate::read::fold::room::Room;

/// Bytes of a block in use: its entry in the ledger's table, which is at most half empty.
const BLOCK: u64 = 64;
/// Bytes of a row: its sums, and its entries in the tables of rows.
const ROW: u64 = 304;
/// Bytes of an interval or a counter, in a table.
const INTERVAL: u64 = 32;
/// Bytes of anything else, beside the lengths of its parts.
const THING: u64 = 160;
/// Remarks that are kept.
const MOST_REMARKS: usize = 16;

impl Fold {
    /// Keeps averages from that time on, if there is one.
    pub(crate) fn with_averages_since(mut self, since_ns: Option<u64>) -> Self {
        self.averages = since_ns.map(Averages::since);
        self
    }

    /// Returns the averages up to now, if any were kept, and keeps others from that time on; none
    /// from the start of the process on.
    pub(crate) fn take_averages(&mut self, since_ns: u64) -> Averages {
        let next = Some(since_ns).filter(|&since_ns| since_ns > 0);
        std::mem::replace(&mut self.averages, next.map(Averages::since)).unwrap_or_default()
    }

    pub(super) fn average_alloc(&mut self, stack: u32, weight: &Weight, time_ns: u64) {
        if let Some(averages) = &mut self.averages {
            averages.change(stack, weight, 1.0, time_ns);
        }
    }

    /// To be called before the free is taken.
    pub(super) fn average_free(&mut self, free: &Free) {
        if let Some(averages) = &mut self.averages
            && let Some(block) = match &self.history {
                Some(history) => history
                    .sample(free.id)
                    .map(|live| self.ledger.block_of(live)),
                None => self.ledger.block(free.id),
            }
        {
            let weight = self.ledger.weight(block.size, block.interval);
            averages.change(block.stack, &weight, -1.0, free.time_ns);
        }
    }
}

impl Fold {
    /// Leaves out what has no room there.
    pub(crate) fn with_room(mut self, room: Option<Room>) -> Self {
        self.room = room;
        self
    }

    /// Returns about how many bytes it has in memory, if it has a room.
    pub(crate) fn bytes(&self) -> u64 {
        self.room.as_ref().map_or(0, Room::taken)
    }

    /// Returns how many records were left out because there was no room.
    pub(crate) fn left_out(&self) -> u64 {
        self.room.as_ref().map_or(0, |room| room.left_out)
    }

    /// Takes room for a record that is not of an allocation or a free.
    pub(super) fn has_room_for(&mut self, record: &Record) -> bool {
        if self.room.is_none() {
            return true;
        }
        let bytes = match record {
            Record::Alloc(_) | Record::Free(_) | Record::CheckpointEnd { .. } => return true,
            Record::End { .. } | Record::ModuleGone { .. } => return true,
            // It takes the place of the one before.
            Record::Start(_) | Record::Resource { .. } | Record::Memory(_) => return true,
            Record::Title { .. } => return true,
            // The number of ranges has a bound of its own, and a moment that of its record.
            Record::MappingChange(_) | Record::MappedMemory(_) => return true,
            // The number of readings has a bound of its own, and their blocks are not kept.
            Record::Pages(_) => return true,
            Record::Checkpoint(_) => return self.profile.account.remarks.len() < MOST_REMARKS,
            Record::Counters { values, .. } => {
                let is_new = |(counter, _): &&(_, _)| !self.counters.contains_key(counter);
                match values.iter().filter(is_new).count() {
                    0 => return true,
                    new => new as u64 * INTERVAL,
                }
            }
            Record::Stack(stack) => {
                if self.stack_of.contains_key(&stack.number) {
                    return true;
                }
                let labels = stack.labels.iter();
                let texts = labels.map(|(key, value)| (key.len() + value.len()) as u64 + THING);
                let addresses = 8 * stack.frames.len() as u64;
                addresses + 4 * stack.interrupted.len() as u64 + texts.sum::<u64>()
            }
            Record::Module(module) => {
                let texts = module.path.len() + 2 * module.build_id.len();
                texts as u64 + 64 * module.segments.len() as u64
            }
            Record::Code(code) if self.codes.contains(&code.start) => return true,
            Record::Code(code) => {
                let texts = code.name.len() + 2 * code.file.len() + code.line_table.len();
                texts as u64 + 64
            }
            Record::Thread(thread) => thread.name.len() as u64,
            Record::Marker { name, .. } => name.len() as u64,
            Record::Notice { text, .. } => text.len() as u64,
            Record::Regime { .. } => 0,
            Record::Passed(_) => return self.has_room(0),
            Record::CoarseMoment(moment) => 64 + 16 * moment.largest.len() as u64,
            Record::Process(process) => {
                let start = &process.start;
                let texts = start.args.iter().map(String::len).sum::<usize>();
                (texts + start.program.len()) as u64
            }
        };
        self.has_room(THING + bytes)
    }

    /// Takes room for a block.
    pub(super) fn has_room_for_block(&mut self) -> bool {
        self.has_room(BLOCK)
    }

    /// The stack of a number that no record explains. Each takes a place of its own if there is
    /// room; else all have one.
    pub(super) fn unknown_stack(&mut self, number: u32) -> u32 {
        if self.has_room(THING) {
            return self.new_stack(number, CallStack::default());
        }
        match self.stack_without_room {
            Some(index) => index,
            None => {
                let index = self.new_stack(number, CallStack::default());
                self.stack_without_room = Some(index);
                index
            }
        }
    }

    /// Takes room for so much, and for what was made with the records before.
    fn has_room(&mut self, bytes: u64) -> bool {
        let Some(room) = &mut self.room else {
            return true;
        };
        let made = self.ledger.rows().len() as u64 * ROW
            + self.ledger.intervals() as u64 * INTERVAL
            + self.last_samples.threads() as u64 * THING;
        room.take_anyway(made.saturating_sub(self.made));
        self.made = made;
        room.take(bytes)
    }

    /// Gives the room of a block back.
    pub(super) fn gives_back_block(&mut self) {
        if let Some(room) = &mut self.room {
            room.give_back(BLOCK);
        }
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::{Alloc, Stack, Thread, WalkEnd};
    use proptest::prelude::*;

    use super::*;
    use crate::read::fold::room::SharedRoom;

    proptest! {
        /// Against the area under the curve, summed up block by block.
        #[test]
        fn averages_are_the_area_under_the_curve(
            blocks in prop::collection::vec((0u64..1000, 0u64..1000, 1u64..5000), 1..40),
            begin in 1u64..400,
            length in 1u64..400,
        ) {
            let end = begin + length;
            let mut events: Vec<(u64, Record)> = Vec::new();
            let mut area = 0.0;
            for (id, &(first, stays, size)) in (1..).zip(&blocks) {
                let last = first + stays;
                let alloc = Alloc { time_ns: first, thread: 0, id, stack: 1, size, slack: 0, interval: 1 };
                events.push((first, Record::Alloc(alloc)));
                events.push((last, Record::Free(Free { time_ns: last, thread: 0, id })));
                area += last.min(end).saturating_sub(first.max(begin)) as f64 * size as f64;
            }
            // An allocation comes before its free.
            events.sort_by_key(|(time, record)| (*time, matches!(record, Record::Free(_))));
            let mut fold = Fold::new();
            for (_, record) in events.iter().filter(|(time, _)| *time <= begin) {
                fold.record(record.clone());
            }
            fold.take_averages(begin);
            for (_, record) in events.iter().filter(|(time, _)| (begin + 1..=end).contains(time)) {
                fold.record(record.clone());
            }
            let in_use = fold.ledger().total().in_use.bytes_f64();
            let average = in_use - fold.take_averages(end).less(0, end)[1];
            prop_assert!((average - area / length as f64).abs() < 1e-6, "{average} {area} {length}");
        }
    }

    const MOST: u64 = 1 << 20;

    fn alloc(id: u64, stack: u32, interval: u64) -> Record {
        Record::Alloc(Alloc {
            time_ns: id,
            thread: id as u32,
            id,
            stack,
            size: 1,
            slack: 0,
            interval,
        })
    }

    fn stack(number: u32) -> Record {
        Record::Stack(Stack {
            number,
            frames: vec![u64::from(number); 40],
            interrupted: Vec::new(),
            end: WalkEnd::Root,
            labels: Vec::new(),
        })
    }

    /// Whatever is endless is bounded, counted, and gives its room back when the fold goes.
    #[test]
    fn endless_things_are_left_out_and_counted() {
        let shared = SharedRoom::of(2 * MOST);
        let kinds: [fn(u32) -> Record; 6] = [
            stack,
            |n| alloc(n.into(), n, 1),
            |n| alloc(n.into(), 1, n.into()),
            |n| {
                Record::Thread(Thread {
                    number: n,
                    tid: n,
                    name: "x".repeat(100),
                })
            },
            |n| Record::Marker {
                time_ns: 0,
                name: n.to_string(),
            },
            |n| Record::Regime {
                time_ns: n.into(),
                interval: n.into(),
                by_budget: true,
            },
        ];
        for (index, kind) in kinds.into_iter().enumerate() {
            let mut fold = Fold::new().with_room(Some(shared.part(MOST)));
            fold.record(stack(1));
            (2..100_000).for_each(|n| fold.record(kind(n)));
            assert!(
                fold.left_out() > 50_000,
                "kind {index}: {}",
                fold.left_out()
            );
            assert!(shared.taken() <= 2 * MOST, "kind {index}");
            assert_eq!(fold.current_profile().account.without_room, fold.left_out());
            drop(fold);
            assert_eq!(shared.taken(), 0);
        }
    }

    /// A log of any length with few blocks in use has room.
    #[test]
    fn blocks_that_are_freed_make_room() {
        let shared = SharedRoom::of(MOST);
        let mut fold = Fold::new().with_room(Some(shared.part(MOST)));
        fold.record(stack(1));
        for id in 1..200_000 {
            fold.record(Record::Alloc(Alloc {
                time_ns: id,
                thread: 1,
                id,
                stack: 1,
                size: 100,
                slack: 0,
                interval: 1,
            }));
            if id > 100 {
                fold.record(Record::Free(Free {
                    time_ns: id,
                    thread: 1,
                    id: id - 100,
                }));
            }
        }
        assert_eq!(fold.left_out(), 0);
        assert_eq!(fold.ledger().total().in_use.bytes(), 100 * 100);
    }

    #[test]
    fn one_log_leaves_room_for_others() {
        let shared = SharedRoom::of(4 * MOST);
        let mut greedy = Fold::new().with_room(Some(shared.part(MOST)));
        (1..100_000).for_each(|n| greedy.record(stack(n)));
        let mut other = Fold::new().with_room(Some(shared.part(MOST)));
        (1..100).for_each(|n| other.record(stack(n)));
        assert!(greedy.left_out() > 0);
        assert_eq!(other.left_out(), 0);
    }
}
