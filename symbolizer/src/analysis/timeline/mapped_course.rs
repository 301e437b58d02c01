//! Mapped course: the program's mappings at each moment of a timeline, by stack, and without a
//! stack by name.
//!
//! The changes of mappings may come in front of events that are older. So a change waits until the
//! moment that it belongs to is reached.

use std::collections::{BTreeMap, HashMap, VecDeque};

use heapprof_format::{MappedMemory, MappingChange, Record};

use crate::analysis::timeline::companion::Companion;
use crate::model::mapped_memory::{MappedLine, Mappings};
use crate::read::fold::Fold;
use crate::read::fold::mapped::MappedFold;

/// The mappings of one stack, or without a stack those of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MappedSeries {
    /// Index of the stack.
    pub stack: Option<u32>,
    /// The name, as it was last read.
    pub name: String,
    /// Changes, in order: the number of a moment, the mapped bytes, and the resident bytes of
    /// these at the last reading.
    pub changes: Vec<(usize, [u64; 2])>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct MappedCourse {
    fold: MappedFold,
    waiting: VecDeque<Waiting>,
    series: Vec<MappedSeries>,
    of_key: HashMap<Key, usize>,
    /// The number of steps.
    steps: usize,
    /// The bytes of each series at moments within steps.
    within: BTreeMap<usize, HashMap<usize, [u64; 2]>>,
    /// The first reading, by series, and the number of the first moment behind it.
    first: Option<(usize, HashMap<usize, [u64; 2]>)>,
}

/// The identity of a series: its stack, or its name.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Stack(u32),
    Name(String),
}

#[derive(Debug)]
enum Waiting {
    Change(MappingChange),
    Reading(MappedMemory),
}

impl Waiting {
    fn time_ns(&self) -> u64 {
        match self {
            Waiting::Change(change) => change.time_ns,
            Waiting::Reading(reading) => reading.time_ns,
        }
    }
}

impl MappedCourse {
    /// The course over so many steps.
    pub(crate) fn over(steps: usize) -> MappedCourse {
        MappedCourse {
            steps,
            ..MappedCourse::default()
        }
    }

    /// Returns the series, in the order in which they began.
    pub(crate) fn finish(mut self) -> Vec<MappedSeries> {
        if let Some((moments, read)) = self.first.take() {
            for (index, series) in self.series.iter_mut().enumerate() {
                series.read_before(moments, read.get(&index).copied().unwrap_or_default());
            }
        }
        for (number, bytes) in std::mem::take(&mut self.within) {
            for (index, series) in self.series.iter_mut().enumerate() {
                series.set(number, bytes.get(&index).copied().unwrap_or_default());
            }
        }
        self.series.retain(|series| !series.changes.is_empty());
        self.series
    }

    fn apply_up_to(&mut self, number: usize, time_ns: u64, fold: &Fold) {
        let is_due = |waiting: Option<&Waiting>| waiting.is_some_and(|it| it.time_ns() <= time_ns);
        while is_due(self.waiting.front()) {
            match self.waiting.pop_front() {
                Some(Waiting::Change(change)) => {
                    let index = |number: u32| fold.stack_numbers().get(&number).copied();
                    self.fold.change(&change, change.stack.and_then(index));
                }
                Some(Waiting::Reading(reading)) => {
                    if self.first.is_none() && number <= self.steps {
                        self.first = Some((number, self.read(&reading, fold)));
                    }
                    self.fold.moment(reading, u64::MAX); // the last one so far
                }
                None => {}
            }
        }
    }

    /// The mapped and resident bytes of a reading, by series.
    fn read(&mut self, reading: &MappedMemory, fold: &Fold) -> HashMap<usize, [u64; 2]> {
        let mut of_reading = Mappings::default();
        for part in &reading.parts {
            let index = |number: u32| fold.stack_numbers().get(&number).copied();
            let stack = part.stack.and_then(index);
            of_reading.add_read(stack, part.name.clone(), part.mapped, part.resident);
        }
        let lines = of_reading.lines.iter();
        lines
            .map(|line| (self.number(line), [line.mapped, line.resident]))
            .collect()
    }

    fn number(&mut self, line: &MappedLine) -> usize {
        let key = match line.stack {
            Some(stack) => Key::Stack(stack),
            None => Key::Name(line.name.clone()),
        };
        let series = &mut self.series;
        let number = *self.of_key.entry(key).or_insert_with(|| {
            series.push(MappedSeries {
                stack: line.stack,
                ..MappedSeries::default()
            });
            series.len() - 1
        });
        series[number].name.clone_from(&line.name);
        number
    }
}

impl MappedSeries {
    /// Returns the mapped and the resident bytes at a moment.
    pub fn at(&self, moment: usize) -> [u64; 2] {
        let after = self
            .changes
            .partition_point(|(number, _)| *number <= moment);
        let last = after.checked_sub(1).map(|before| self.changes[before].1);
        last.unwrap_or_default()
    }

    /// Gives moments before the first reading what that reading tells: it is the nearest one.
    fn read_before(&mut self, moments: usize, read: [u64; 2]) {
        let after = self
            .changes
            .partition_point(|(number, _)| *number < moments);
        let later = self.changes.split_off(after);
        let known = std::mem::take(self);
        *self = MappedSeries {
            changes: Vec::new(),
            ..known.clone()
        };
        for number in 0..moments {
            let [mapped, _] = known.at(number);
            self.set(
                number,
                match self.stack {
                    Some(_) => [mapped, read[1].min(mapped)],
                    None => read,
                },
            );
        }
        for (number, bytes) in later {
            self.set(number, bytes);
        }
    }

    fn set(&mut self, number: usize, bytes: [u64; 2]) {
        let before = self.changes.last().map_or([0; 2], |(_, bytes)| *bytes);
        if bytes != before {
            self.changes.push((number, bytes));
        }
    }
}

impl Companion for MappedCourse {
    fn record(&mut self, record: &Record) {
        match record {
            Record::MappingChange(change) => {
                self.waiting.push_back(Waiting::Change(*change));
            }
            Record::MappedMemory(reading) => {
                self.waiting.push_back(Waiting::Reading(reading.clone()));
            }
            _ => {}
        }
    }

    fn moment(&mut self, number: usize, time_ns: u64, fold: &Fold) {
        self.apply_up_to(number, time_ns, fold);
        let mut now: HashMap<usize, [u64; 2]> = HashMap::new();
        for line in self.fold.current_mappings(fold.stack_numbers()).lines {
            now.insert(self.number(&line), [line.mapped, line.resident]);
        }
        if number > self.steps {
            self.within.insert(number, now);
            return;
        }
        for (index, series) in self.series.iter_mut().enumerate() {
            series.set(number, now.get(&index).copied().unwrap_or_default());
        }
    }
}
