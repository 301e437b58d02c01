//! Checkpoint: the state that a rotating log keeps for the start of its next segment, and its
//! writing.
//!
//! Memory: the blocks in use, with a few words each beyond the ledger's; all stacks that were
//! sampled, with their frames; all modules that were loaded. Also the threads that live or have a
//! block in use, the stops of the recording, and the coarse history, which is bounded. There is
//! nothing for each event.

use std::collections::BTreeMap;

use heapprof_core::{CoarseEntry, CoarseHistory, Estimate, Fixed, Ledger, NumberMap, StackSums};
use heapprof_format::{
    Alloc, Checkpoint, CoarseMoment, Counter, Encoder, Free, Passed, Record, Stack, Start, Sums,
    Thread as ThreadRecord,
};

use crate::os::{clock, procfs};
use crate::writer::kept_stacks::KeptStack;
use crate::writer::log::sorted_runs::SortedRuns;

/// A step on the way to a whole checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is nothing to write, but time has passed.
    Progress,
    /// The encoder has another record; the frame may be ended.
    Record,
    /// The frame must be ended.
    EndFrame,
}

/// The properties of a block in use that the ledger does not keep.
struct Birth {
    time_ns: u64,
    slack: u32,
    thread: u32,
}

/// A change of the interval in force.
struct RegimeChange {
    time_ns: u64,
    /// 0 if recording is stopped.
    interval: u64,
}

struct KnownThread {
    record: ThreadRecord,
    /// When the thread was first found to have ended. Its last events may come afterwards.
    ended_ns: Option<u64>,
}

/// The state for the next checkpoint. Times are those of the log.
pub(crate) struct CheckpointState {
    pub(crate) start: Start,
    /// The time of the newest event.
    pub(crate) reached_ns: u64,
    births: NumberMap<u64, Birth>,
    /// When each stack was first sampled; `u64::MAX` for never.
    first_ns: Vec<u64>,
    /// The bytes that stacks and modules take in a log.
    known_bytes: u64,
    /// Modules and their unloads, in order.
    modules: Vec<Record>,
    /// With so many modules, those that no stack needs are forgotten.
    tidy_at: usize,
    /// When recording stopped and resumed, in turn. No number includes what was allocated while it
    /// was stopped.
    stops: Vec<RegimeChange>,
    /// Threads by their numbers.
    threads: BTreeMap<u32, KnownThread>,
    /// With so many threads, those that have ended are forgotten.
    tidy_threads_at: usize,
    /// Threads that had ended at the last look, and are forgotten soon.
    ending_threads: usize,
    /// Frees of blocks that a forked process inherited from its parent.
    inherited: Vec<Free>,
    peak_ns: u64,
    peak_bytes: Fixed,
    intervals: Option<(u64, u64)>,
    requested: Estimate,
    /// The bytes in use before, of this process's own blocks. A forked process's history begins
    /// with the fork.
    pub(crate) history: CoarseHistory,
}

impl CheckpointState {
    pub(crate) fn new(start: Start, history: CoarseHistory) -> CheckpointState {
        CheckpointState {
            start,
            reached_ns: 0,
            births: NumberMap::default(),
            first_ns: Vec::new(),
            known_bytes: 0,
            modules: Vec::new(),
            tidy_at: MIN_TIDY,
            stops: Vec::new(),
            threads: BTreeMap::new(),
            tidy_threads_at: MIN_TIDY,
            ending_threads: 0,
            inherited: Vec::new(),
            peak_ns: 0,
            peak_bytes: Fixed::default(),
            intervals: None,
            requested: Estimate::default(),
            history,
        }
    }

    /// Adds a record that was written before, after the ledger has it.
    pub(crate) fn replay(&mut self, record: &Record, ledger: &mut Ledger) {
        match record {
            Record::Alloc(alloc) => self.alloc(alloc, ledger),
            Record::Free(free) => self.free(free),
            Record::Stack(stack) => self.stack(stack.frames.len(), &stack.labels),
            Record::Module(_) | Record::ModuleGone { .. } | Record::Code(_) => self.module(record),
            Record::Thread(thread) => self.thread(thread.clone()),
            Record::Regime {
                time_ns, interval, ..
            } => self.regime(*time_ns, *interval),
            Record::MappingChange(change) => {
                if let Some(stack) = change.stack {
                    self.used(stack, change.time_ns);
                }
            }
            _ => {}
        }
    }

    /// Adds an allocation, after the ledger has it.
    pub(crate) fn alloc(&mut self, alloc: &Alloc, ledger: &mut Ledger) {
        self.reached_ns = self.reached_ns.max(alloc.time_ns);
        let birth = Birth {
            time_ns: alloc.time_ns,
            slack: alloc.slack as u32,
            thread: alloc.thread,
        };
        self.births.insert(alloc.id, birth);
        self.used(alloc.stack, alloc.time_ns);
        let weight = ledger.weight(alloc.size, alloc.interval);
        self.requested.add(&weight.of_counted_bytes(alloc.size));
        let (least, most) = self.intervals.unwrap_or((alloc.interval, alloc.interval));
        self.intervals = Some((least.min(alloc.interval), most.max(alloc.interval)));
        let in_use = ledger.total().in_use.bytes_fixed();
        if in_use > self.peak_bytes {
            (self.peak_bytes, self.peak_ns) = (in_use, alloc.time_ns);
        }
        self.history.in_use(in_use);
    }

    /// Notes that a block or a mapping has that stack.
    pub(crate) fn used(&mut self, stack: u32, time_ns: u64) {
        let stack = stack as usize;
        if stack >= self.first_ns.len() {
            self.first_ns.resize(stack + 1, u64::MAX);
        }
        let first = &mut self.first_ns[stack];
        *first = (*first).min(time_ns);
    }

    pub(crate) fn free(&mut self, free: &Free) {
        self.reached_ns = self.reached_ns.max(free.time_ns);
        if self.births.remove(&free.id).is_none() {
            self.inherited.push(*free);
        }
    }

    pub(crate) fn stack(&mut self, frames: usize, labels: &[(String, String)]) {
        // Addresses are deltas of two to six bytes.
        self.known_bytes += 8 + 5 * frames as u64;
        let bytes = |(key, value): &(String, String)| 4 + key.len() + value.len();
        self.known_bytes += labels.iter().map(bytes).sum::<usize>() as u64;
    }

    pub(crate) fn module(&mut self, record: &Record) {
        self.known_bytes += module_bytes(record);
        self.modules.push(record.clone());
        if self.modules.len() >= self.tidy_at {
            self.forget_visits();
            self.tidy_at = 2 * self.modules.len() + MIN_TIDY;
        }
    }

    /// Forgets when a module was loaded, if it was loaded again later and no stack is from between:
    /// a stack's addresses are looked up at the time of its first sample. So a program that loads
    /// and unloads the same modules for ever needs no more room for them than for its stacks.
    fn forget_visits(&mut self) {
        let mut firsts = self.first_ns.clone();
        firsts.sort_unstable();
        let is_any_from = |from_ns: u64, to_ns: u64| {
            let next = firsts.partition_point(|&first| first < from_ns);
            firsts.get(next).is_some_and(|&first| first <= to_ns)
        };
        let mut is_kept = vec![true; self.modules.len()];
        let mut visits: BTreeMap<u32, Visit> = BTreeMap::new();
        for (place, record) in self.modules.iter().enumerate() {
            match record {
                Record::ModuleGone { module, time_ns } => {
                    if let Some(visit) = visits.get_mut(module) {
                        visit.gone = Some((place, *time_ns));
                    }
                }
                Record::Module(module) => {
                    let visit = Visit {
                        loaded: (place, module.time_ns),
                        gone: None,
                    };
                    if let Some(earlier) = visits.insert(module.number, visit)
                        && let (loaded, Some(gone)) = (earlier.loaded, earlier.gone)
                        && gone.1 + LATE_NS < self.reached_ns
                        && !is_any_from(loaded.1, gone.1)
                    {
                        is_kept[loaded.0] = false;
                        is_kept[gone.0] = false;
                    }
                }
                _ => {}
            }
        }
        let mut is_kept = is_kept.into_iter();
        let known_bytes = &mut self.known_bytes;
        self.modules.retain(|record| {
            let is_kept = is_kept.next() == Some(true);
            if !is_kept {
                *known_bytes -= module_bytes(record);
            }
            is_kept
        });
    }

    /// Notes that another interval is in force, or none: 0.
    pub(crate) fn regime(&mut self, time_ns: u64, interval: u64) {
        let is_stopped = self.stops.last().is_some_and(|last| last.interval == 0);
        if is_stopped != (interval == 0) {
            self.stops.push(RegimeChange { time_ns, interval });
        }
    }

    pub(crate) fn thread(&mut self, record: ThreadRecord) {
        let known = KnownThread {
            record,
            ended_ns: None,
        };
        self.threads.insert(known.record.number, known);
        if self.threads.len() >= self.tidy_threads_at {
            let threads = self.births.values().map(|birth| birth.thread);
            let named = numbers(threads, &self.threads);
            self.forget_ended_threads(&named);
            let kept = self.threads.len();
            let new = MIN_TIDY.max(kept / 4) + self.births.len() / BLOCKS_PER_THREAD;
            self.tidy_threads_at = kept + new;
        }
    }

    /// Estimates the bytes of a checkpoint at this moment, mostly not too low.
    pub(crate) fn estimated_bytes(&self, ledger: &Ledger) -> u64 {
        let count = |n: usize, bytes: u64| n as u64 * bytes;
        self.known_bytes
            + count(self.births.len(), 20)
            + count(ledger.rows().len(), 64)
            + count(self.stops.len(), 16)
            + count(self.threads.len() - self.ending_threads, 32)
            + count(self.inherited.len(), 12)
            + count(self.history.entries().len() + 1, MOMENT_BYTES)
            + 2048
    }

    /// Writes the checkpoint's records to the encoder of the new segment. `write` is called at each
    /// step, and an error from it ends the writing and is returned. `checkpoint` has the fields
    /// that are known before.
    pub(crate) fn write<E>(
        &mut self,
        out: &mut Encoder,
        mut checkpoint: Checkpoint,
        ledger: &Ledger,
        stacks: &[Option<KeptStack>],
        counters: Vec<(Counter, u64)>,
        mut write: impl FnMut(&mut Encoder, Step) -> Result<(), E>,
    ) -> Result<(), E> {
        // The start alone, as in a first segment.
        out.record(&Record::Start(self.start.clone()));
        write(out, Step::EndFrame)?;
        let time_ns = checkpoint.time_ns;
        checkpoint.peak_ns = self.peak_ns;
        checkpoint.peak_bytes = self.peak_bytes.to_bits();
        checkpoint.intervals = self.intervals.unwrap_or_default();
        checkpoint.requested = sums(&self.requested);
        out.record(&Record::Checkpoint(checkpoint));
        for &RegimeChange { time_ns, interval } in &self.stops {
            out.record(&Record::Regime {
                time_ns,
                interval,
                by_budget: false,
            });
            write(out, Step::Record)?;
        }
        for module in &self.modules {
            out.record(module);
            write(out, Step::Record)?;
        }
        let blocks = self.blocks(ledger, || write(out, Step::Progress))?;
        let named = numbers(blocks.iter().map(|block| block.thread), &self.threads);
        self.forget_ended_threads(&named);
        for thread in self.threads.values() {
            out.record(&Record::Thread(thread.record.clone()));
            write(out, Step::Record)?;
        }
        for (number, stack) in stacks.iter().enumerate() {
            let Some(stack) = stack else { continue };
            out.record(&Record::Stack(Stack {
                number: number as u32,
                end: stack.end,
                frames: stack.frames.to_vec(),
                interrupted: stack.interrupted.to_vec(),
                labels: stack.labels.to_vec(),
            }));
            write(out, Step::Record)?;
        }
        let last = self.history_entry(ledger, || write(out, Step::Progress))?;
        for entry in self.history.entries() {
            out.record(&moment(entry));
            write(out, Step::Record)?;
        }
        out.record(&moment(&last));
        // A frame begins at the time of its first record, so records without a time end a frame of
        // their own.
        write(out, Step::EndFrame)?;
        for row in ledger.rows() {
            let first = self.first_ns.get(row.stack as usize).copied();
            out.record(&Record::Passed(Passed {
                stack: row.stack,
                class: row.class.0,
                first_ns: first.unwrap_or(0),
                sums: sums(&row.totals.allocated.without(&row.totals.in_use)),
            }));
            write(out, Step::Record)?;
        }
        for alloc in blocks.in_order() {
            out.alloc(&alloc);
            write(out, Step::Record)?;
        }
        // Inherited frees may be older than the blocks in use, and need a frame of their own to
        // keep their times.
        write(out, Step::EndFrame)?;
        for free in &self.inherited {
            out.free(free);
            write(out, Step::Record)?;
        }
        out.record(&Record::Counters {
            time_ns,
            values: counters,
        });
        out.record(&Record::CheckpointEnd { time_ns });
        write(out, Step::EndFrame)
    }

    /// Returns the state of this moment for the coarse history. `step` is called for each row.
    pub(crate) fn history_entry<E>(
        &self,
        ledger: &Ledger,
        mut step: impl FnMut() -> Result<(), E>,
    ) -> Result<CoarseEntry, E> {
        let mut sums = StackSums::default();
        for row in ledger.rows() {
            step()?;
            sums.add(row.stack, row.totals.in_use.bytes_fixed());
        }
        let in_use = ledger.total().in_use;
        Ok(self.history.entry(self.reached_ns, &in_use, sums.largest()))
    }

    /// Collects the blocks in use, in runs that are each sorted by time. `step` is called for each
    /// block. Between two calls, one run is sorted at most.
    fn blocks<E>(
        &self,
        ledger: &Ledger,
        mut step: impl FnMut() -> Result<(), E>,
    ) -> Result<SortedRuns, E> {
        let mut runs = SortedRuns::default();
        for (&id, birth) in &self.births {
            step()?;
            let Some(block) = ledger.block(id) else {
                continue;
            };
            runs.push(Alloc {
                time_ns: birth.time_ns,
                thread: birth.thread,
                id,
                size: block.size,
                slack: birth.slack.into(),
                stack: block.stack,
                interval: block.interval,
            });
        }
        Ok(runs)
    }

    /// Forgets threads that have ended and have no block in use: `named` tells by the thread's
    /// number. All events from before a thread's end must have come.
    fn forget_ended_threads(&mut self, named: &[bool]) {
        let now_ns = clock::now_ns().saturating_sub(self.start.monotonic_ns);
        let reached_ns = self.reached_ns;
        let mut ending = 0;
        self.threads.retain(|&number, thread| {
            if procfs::lives(thread.record.tid) {
                thread.ended_ns = None;
                return true;
            }
            let ended_ns = *thread.ended_ns.get_or_insert(now_ns);
            let is_ending = reached_ns < ended_ns + LATE_NS && !named[number as usize];
            ending += usize::from(is_ending);
            named[number as usize] || is_ending
        });
        self.ending_threads = ending;
    }
}

/// Tells by a thread's number whether it is among `named`.
fn numbers(named: impl Iterator<Item = u32>, threads: &BTreeMap<u32, KnownThread>) -> Vec<bool> {
    let last = threads.last_key_value();
    let mut is_named = vec![false; last.map_or(0, |(&last, _)| last as usize + 1)];
    for number in named {
        if let Some(is_named) = is_named.get_mut(number as usize) {
            *is_named = true;
        }
    }
    is_named
}

fn sums(estimate: &Estimate) -> Sums {
    Sums {
        samples: estimate.samples,
        fixed: estimate.to_bits(),
    }
}

fn moment(entry: &CoarseEntry) -> Record {
    Record::CoarseMoment(CoarseMoment {
        time_ns: entry.time_ns,
        bytes: entry.bytes,
        bytes_error: entry.bytes_error,
        objects: entry.objects,
        highest: entry.highest,
        resident: entry.resident,
        largest: entry.largest.iter().collect(),
    })
}

/// Records that a module was loaded, and that it was gone: their places, and when.
struct Visit {
    loaded: (usize, u64),
    gone: Option<(usize, u64)>,
}

/// The bytes that a module takes in a log.
fn module_bytes(record: &Record) -> u64 {
    match record {
        Record::Module(module) => 48 + module.path.len() as u64 + 25 * module.segments.len() as u64,
        Record::Code(code) => {
            (32 + code.name.len() + code.file.len() + code.line_table.len()) as u64
        }
        _ => 0,
    }
}

/// The bytes of a coarse moment in a log, mostly not too low.
pub(crate) const MOMENT_BYTES: u64 = 96;
/// The least number of records of modules, and of threads, that are kept.
const MIN_TIDY: usize = 256;
/// Blocks in use that are looked at for each new thread.
const BLOCKS_PER_THREAD: usize = 64;
/// The largest disorder of the times of events.
const LATE_NS: u64 = 10_000_000;
