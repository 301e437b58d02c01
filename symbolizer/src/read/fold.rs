//! Fold: the records of a log, one after another, into a profile.
//!
//! Memory is needed for live blocks, stacks and rows, not for events. The numbers come from
//! `heapprof_core`'s ledger, which the writer inside the process runs, too.

pub(crate) mod averages;
mod coarse;
mod codes;
pub(crate) mod extras;
mod followed;
mod kept_readings;
pub(crate) mod last_samples;
pub(crate) mod mapped;
mod memory;
pub(crate) mod pages;
pub(crate) mod resume;
pub(crate) mod room;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use crate::history::curve::Curve;
use crate::history::pages::PagesOfBlock;
use crate::history::past_numbers::PastNumbers;
use crate::history::spikes::Point;
use crate::history::temporary::Temporary;
use crate::history::{Allocation, End, History};
use heapprof_core::{Estimate, Fixed, Ledger, NumberMap, SizeClass, counted_bytes};
use heapprof_format::{
    Alloc, Counter, Event, Free, MappingChange, Module, PageReading, Record, Stack, TAPPED_LATER,
    Thread,
};

use crate::model::extras::WantedExtras;
use crate::model::labels::Labels;
use crate::model::loaded_module::LoadedModule;
use crate::model::page_reading::PagesRead;
use crate::model::part::Part;
use crate::model::peak::Peak;
use crate::model::profile::{CallStack, Profile};
use crate::model::run::{Ending, Marker, Notice, Regime, Run};
use crate::model::span::Cut;
use crate::model::span::Span;
use crate::model::special_threads::WITH_ITS_PROCESS;
use crate::model::special_threads::{BEFORE_THE_FORK, is_inherited};
use crate::read::fold::averages::Averages;
use crate::read::fold::extras::Keeper;
use crate::read::fold::kept_readings::KeptReadings;
use crate::read::fold::last_samples::LastSamples;
use crate::read::fold::mapped::MappedFold;
use crate::read::fold::pages::PagesFold;
use crate::read::fold::room::Room;
use crate::read::paired_difference::PairedDifference;

/// Most notices of the library that are kept. It makes few; a joined log has those of all
/// processes.
const MAX_NOTICES: usize = 64;

/// No block is larger: the user's half of a 64-bit address space.
pub(crate) const LARGEST_BLOCK: u64 = 1 << 47;
/// No interval is longer, and the library takes none that is: a terabyte between samples.
pub const LARGEST_INTERVAL: u64 = 1 << 40;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub struct Fold {
    /// The events that count; `None` for all.
    span: Option<Span>,
    /// Records so far.
    records: u64,
    peak: Peak,
    history: Option<History>,
    curve: Option<Curve>,
    paired: Option<PairedDifference>,
    profile: Profile,
    ledger: Ledger,
    /// Number in the log -> index in the profile.
    stack_of: NumberMap<u32, u32>,
    /// The stack's number in the log and a size class -> row of the ledger, and index of the stack.
    row_of: NumberMap<(u32, u8), (u32, u32)>,
    module_of: NumberMap<u32, usize>,
    /// The first addresses of all functions of interpreters so far.
    codes: HashSet<u64>,
    thread_of: NumberMap<u32, usize>,
    /// All label sets so far.
    labels: HashSet<Labels>,
    counters: HashMap<Counter, u64>,
    /// By stack: nothing was allocated by it so far.
    unused: Vec<bool>,
    keeper: Keeper,
    last_samples: LastSamples,
    /// The readings of the memory that may stand for the end of the span.
    readings: KeptReadings,
    mapped: MappedFold,
    pages: PagesFold,
    /// In the checkpoint that the log begins with.
    resuming: bool,
    /// True if samples from before a fork are left out, and those that were.
    without_inherited: bool,
    left_out: HashSet<u64>,
    /// True if the log says what there was before the fork.
    has_inherited: bool,
    /// Bytes from before a fork that were in use at the checkpoint.
    inherited: Fixed,
    averages: Option<Averages>,
    /// The bound on what is kept; `None`: there is none.
    room: Option<Room>,
    /// Bytes of rows, intervals and threads that the room knows of.
    made: u64,
    /// The stack of blocks whose own was left out.
    stack_without_room: Option<u32>,
}

impl Fold {
    /// Nothing folded yet.
    pub fn new() -> Self {
        Fold::default()
    }

    /// Nothing folded yet; will keep those extras.
    pub fn keeping(extras: WantedExtras) -> Self {
        Fold {
            keeper: Keeper::of(extras),
            ..Fold::default()
        }
    }

    /// Counts only the allocations and frees of the span.
    pub fn within(mut self, span: Option<Span>) -> Self {
        self.span = span;
        self
    }

    /// Ends at that time, which no event so far is behind, and keeps no extras from now on.
    pub(crate) fn end_at(&mut self, end_ns: u64) {
        self.span = Some(Span::between(Cut::Nothing, Cut::Time(end_ns)));
        self.keeper = Keeper::default();
    }

    /// Leaves out what a forked process had from its parent.
    pub fn without_inherited(mut self, without: bool) -> Self {
        self.without_inherited = without;
        self
    }

    /// Keeps pasts as well, of the span if there is one.
    pub fn with_pasts(mut self, temporary: Temporary) -> Self {
        self.profile.temporary = Some(temporary);
        let from_ns = self.span.map_or(0, |span| span.from.time_ns());
        self.history = Some(History::since(from_ns, temporary));
        self
    }

    /// Keeps these numbers of the pasts alone.
    pub(crate) fn with_numbers(mut self, numbers: PastNumbers) -> Self {
        if let Some(history) = &mut self.history {
            history.keep(numbers);
        }
        self
    }

    /// Keeps the courses of all stacks beside the pasts.
    pub(crate) fn with_courses(mut self) -> Self {
        if let Some(history) = &mut self.history {
            history.keep_courses();
        }
        self
    }

    /// Adds up the pages of a reading, for which pasts are kept.
    pub(crate) fn with_pages(mut self, reading: PagesRead) -> Self {
        self.pages.wanted = Some(reading);
        self.profile.pages = Some(reading);
        self
    }

    /// Keeps the curve of bytes in use as well.
    pub(crate) fn with_curve(mut self) -> Self {
        self.curve = Some(Curve::default());
        self
    }

    /// The curve so far, if it is kept.
    pub(crate) fn curve(&self) -> Option<&Curve> {
        self.curve.as_ref()
    }

    /// Draws the curve on, behind an event. The blocks of a checkpoint are left out: these were in
    /// use together. If the curve begins, the block was in use before.
    #[inline]
    fn draw_on(&mut self, time_ns: u64, begins: bool) {
        if self.resuming {
            return;
        }
        let bytes = self.ledger.bytes_in_use();
        if let Some(curve) = &mut self.curve {
            curve.at(time_ns, bytes.to_f64());
        }
        if self.keeper.has_spike_at(begins, bytes) {
            self.keeper.in_use(begins, self.point(time_ns));
        }
    }

    /// Returns what is in use behind the last record, which is of that time.
    fn point(&self, time_ns: u64) -> Point {
        Point {
            record: self.records,
            time_ns,
            bytes: self.ledger.bytes_in_use(),
            variance: self.ledger.bytes_in_use_variance(),
        }
    }

    /// Keeps a difference of two views as well.
    pub(crate) fn with_paired_difference(mut self, paired: PairedDifference) -> Self {
        self.paired = Some(paired);
        self
    }

    /// Returns true if what comes is still part of the checkpoint that the log begins with.
    pub(crate) fn is_resuming(&self) -> bool {
        self.resuming
    }

    /// Returns the profile's index of each stack, by its number in the log.
    pub(crate) fn stack_numbers(&self) -> &NumberMap<u32, u32> {
        &self.stack_of
    }

    /// Returns the number of stacks so far.
    pub(crate) fn stacks(&self) -> u32 {
        self.profile.stacks.len() as u32
    }

    /// Records taken so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// The account of allocations and frees so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The same, with each row divided by thread; empty where these extras are not kept.
    pub(crate) fn ledger_by_thread(&self) -> &Ledger {
        self.keeper.ledger()
    }

    /// The profile as it stands, to be read while folding goes on. `reason` says what for.
    pub fn snapshot(&self, reason: &str) -> Profile {
        let mut profile = self.profile.clone();
        profile.rows = self.ledger.rows().collect();
        profile.run.reason = reason.into();
        profile
    }

    /// The profile of all that was folded so far, with losses and peak, and with pasts if they are
    /// kept, while folding goes on.
    pub(crate) fn current_profile(&self) -> Profile {
        let mut profile = self.snapshot("");
        profile.account.counters = self.counters();
        profile.account.inherited_elsewhere += u64::from(self.without_inherited);
        profile.account.without_room = self.left_out();
        profile.peak = Some(self.peak);
        if let Some(history) = self.history.clone() {
            let end_ns = profile.run.duration_ns;
            (profile.pasts, profile.lifetimes) = history.finish(&self.ledger, end_ns);
        }
        profile
    }

    /// By row, what is in use of blocks that were allocated after that time; nothing without pasts.
    pub(crate) fn in_use_since(&self, time_ns: u64) -> Vec<Estimate> {
        let history = self.history.as_ref();
        history.map_or_else(Vec::new, |history| {
            history.in_use_since(&self.ledger, time_ns)
        })
    }

    /// The run so far: what ran, and how it ended if it did.
    pub(crate) fn run(&self) -> &Run {
        &self.profile.run
    }

    /// The profiler's own counters so far, in their order.
    pub(crate) fn counters(&self) -> Vec<(Counter, u64)> {
        let mut counters: Vec<_> = self.counters.iter().map(|(&c, &n)| (c, n)).collect();
        counters.sort_by_key(|(counter, _)| counter.number());
        counters
    }

    /// Takes the next record, which is one of these.
    #[inline]
    pub fn event(&mut self, event: Event) {
        if self.resuming {
            return self.record(event.into());
        }
        self.records += 1;
        match event {
            Event::Alloc(alloc) => self.take_allocation(&alloc),
            Event::Free(free) => self.take_free(&free),
        }
    }

    fn take_allocation(&mut self, alloc: &Alloc) {
        self.alloc(alloc);
        self.draw_on(alloc.time_ns, is_inherited(alloc));
    }

    fn take_free(&mut self, free: &Free) {
        self.free(free);
        self.draw_on(free.time_ns, false);
    }

    fn free(&mut self, free: &Free) {
        self.passed(free.time_ns);
        if self.resuming {
            self.resume_free(free);
            return;
        }
        if let Some(paired) = &mut self.paired {
            paired.free(free.id, self.records, free.time_ns);
        }
        let is_after = |span: Span| !span.to.includes(self.records, free.time_ns);
        if self.span.is_some_and(is_after) {
            return;
        }
        let end = match free.thread {
            WITH_ITS_PROCESS => End::Left,
            _ => End::Freed,
        };
        self.end_block(free, end);
    }

    /// Takes a block out of what is in use.
    fn end_block(&mut self, free: &Free, end: End) {
        self.average_free(free);
        let (id, time_ns) = (free.id, free.time_ns);
        let known = match &mut self.history {
            Some(history) => history.block_ended(&mut self.ledger, id, time_ns, end),
            None => self.ledger.free(id),
        };
        match known {
            Some(live) => {
                self.gives_back_block();
                self.keeper.free(free, live, &self.ledger);
            }
            None => self.free_of_unknown(id),
        }
    }

    /// The end of a block that did not come in this log, or is left out.
    fn free_of_unknown(&mut self, id: u64) {
        // Whether it came before the fork can only be told where the log says what did.
        let may_be_inherited = self.without_inherited && !self.has_inherited;
        if !self.left_out.remove(&id) && !may_be_inherited {
            self.profile.account.unknown_frees += 1;
        }
    }

    /// Takes the next record.
    pub fn record(&mut self, record: Record) {
        self.records += 1;
        if self.resuming {
            self.end_checkpoint_before(&record);
        }
        if !self.has_room_for(&record) {
            return;
        }
        match record {
            Record::Alloc(alloc) => self.take_allocation(&alloc),
            Record::Free(free) => self.take_free(&free),
            Record::Stack(stack) => self.stack(stack),
            Record::Module(module) => self.module(module),
            Record::Code(code) => self.code(code),
            Record::ModuleGone { module, time_ns } => {
                self.passed(time_ns);
                if let Some(&index) = self.module_of.get(&module) {
                    self.profile.modules[index].unloaded_ns = Some(time_ns);
                }
            }
            Record::Thread(thread) => self.thread(thread),
            Record::Start(start) => {
                self.profile.run.begin(start);
                self.profile.account.empty_logs = self.profile.run.take_empty_logs();
            }
            Record::Process(process) => {
                self.profile.run.is_joined = true;
                self.profile.account.inherited_elsewhere += u64::from(process.without_inherited);
                self.profile.parts.push(Part::joined(process));
            }
            Record::Counters { time_ns, values } => {
                self.passed(time_ns);
                let longest = self.profile.run.intervals_seen.map_or(0, |(_, most)| most);
                let samples = self.profile.requested;
                let counted = self.last_samples.counted(&values, samples, longest);
                self.profile.counted = counted.or(self.profile.counted);
                self.counters.extend(values);
            }
            Record::Checkpoint(checkpoint) => self.resume(checkpoint),
            Record::Passed(passed) => self.resume_row(&passed),
            Record::CoarseMoment(moment) => self.coarse(moment),
            Record::CheckpointEnd { .. } => self.resumed(),
            Record::Marker { time_ns, name } => {
                self.passed(time_ns);
                self.profile.run.markers.push(Marker {
                    time_ns,
                    record: self.records,
                    name,
                });
            }
            Record::Notice { time_ns, text } => {
                self.passed(time_ns);
                self.notice(time_ns, text);
            }
            Record::Regime {
                time_ns,
                interval,
                by_budget,
            } => {
                self.passed(time_ns);
                let regimes = &mut self.profile.run.regimes;
                // Each segment of a log that rotates repeats what is in force.
                if regimes.last().is_none_or(|last| last.interval != interval) {
                    regimes.push(Regime {
                        time_ns,
                        interval,
                        by_budget,
                    });
                }
            }
            Record::Memory(reading) => {
                self.passed(reading.time_ns);
                self.memory(*reading);
            }
            Record::MappingChange(change) => self.mapping_changed(&change),
            Record::MappedMemory(moment) => {
                self.passed(moment.time_ns);
                self.mapped.moment(moment, self.end_ns());
            }
            Record::Title { time_ns, text } => {
                self.passed(time_ns);
                self.profile.run.title = text;
            }
            Record::Pages(part) => {
                self.passed(part.time_ns);
                self.page_part(&part);
            }
            Record::Resource {
                time_ns,
                attributes,
            } => {
                self.passed(time_ns);
                self.profile.run.resource = attributes;
            }
            Record::End { time_ns, reason } => {
                self.passed(time_ns);
                self.profile.run.ending = Ending::Said(reason);
                self.process_ended(time_ns);
            }
        }
    }

    /// The profile of all that was folded.
    pub fn finish(mut self) -> Profile {
        let mut counters: Vec<_> = self.counters.into_iter().collect();
        counters.sort_by_key(|(counter, _)| counter.number());
        self.profile.account.counters = counters;
        self.profile.account.inherited_elsewhere += u64::from(self.without_inherited);
        self.profile.rows = self.ledger.rows().collect();
        self.profile.mappings = self.mapped.current_mappings(&self.stack_of);
        self.profile.extras = self.keeper.finish();
        self.profile.run.span = self.span;
        self.profile.peak = Some(self.peak);
        if self.resuming {
            let remark =
                "the checkpoint that the log begins with is not complete: blocks are missing";
            self.profile.account.remarks.push(remark.into());
        }
        if let Some(paired) = self.paired {
            self.profile.changes = paired.finish();
        }
        if let Some(mut history) = self.history {
            let end_ns = self
                .span
                .map_or(self.profile.run.duration_ns, |span| span.to.time_ns());
            let courses = history.take_courses(&self.ledger, end_ns);
            self.profile.courses = courses.unwrap_or_default();
            (self.profile.pasts, self.profile.lifetimes) = history.finish(&self.ledger, end_ns);
        }
        let survived = self.span.and_then(|span| span.survived_ns);
        if survived.is_some() {
            self.profile.keep_survivors();
        }
        self.profile
    }

    /// The profile's parts so far, for the reader of the log to note what it met.
    pub(crate) fn profile(&mut self) -> &mut Profile {
        &mut self.profile
    }

    fn page_part(&mut self, part: &PageReading) {
        if let Some(history) = &mut self.history
            && self.pages.counts(part, self.records)
        {
            for block in &part.blocks {
                history.pages(&mut self.ledger, block.id, |size| PagesOfBlock {
                    touched: block.touch.bytes(size),
                    slab: block.slab.map(|slab| (slab.free, slab.live)),
                });
            }
        }
        if let Some(reading) = self.pages.part(part, self.records) {
            pages::keep(&mut self.profile.run.page_readings, reading);
        }
    }

    fn mapping_changed(&mut self, change: &MappingChange) {
        self.passed(change.time_ns);
        if self.is_within(change.time_ns) {
            let stack = change.stack;
            let stack = stack.map(|number| self.stack_in_use(number, change.time_ns));
            self.mapped.change(change, stack);
        }
    }

    /// Returns true if the record that has come is not behind the span.
    fn is_within(&self, time_ns: u64) -> bool {
        self.span
            .is_none_or(|span| span.to.includes(self.records, time_ns))
    }

    fn passed(&mut self, time_ns: u64) {
        let run = &mut self.profile.run;
        run.duration_ns = run.duration_ns.max(time_ns);
    }

    fn alloc(&mut self, alloc: &Alloc) {
        self.passed(alloc.time_ns);
        if !self.has_room_for_block() {
            return;
        }
        if self.without_inherited && is_inherited(alloc) {
            self.left_out.insert(alloc.id);
            return;
        }
        let mut is_before = false;
        if self.resuming {
            // In use at the checkpoint, and so before any window there can be.
            is_before = !self.counts_what_was_before();
            if is_before && self.history.is_none() {
                return;
            }
        } else if let Some(span) = self.span {
            let includes = |cut: Cut| cut.includes(self.records, alloc.time_ns);
            // A process that begins within a window did not allocate in it what it had from its
            // parent.
            let is_of_a_window = span.from != Cut::Nothing;
            is_before = includes(span.from) || is_of_a_window && is_inherited(alloc);
            // Only growth needs the blocks from before the window.
            if is_before && self.history.is_none() || !includes(span.to) {
                return;
            }
        }
        if self
            .span
            .is_some_and(|span| !span.is_old_enough(alloc.time_ns))
        {
            return;
        }
        if alloc.size > LARGEST_BLOCK || alloc.interval > LARGEST_INTERVAL {
            self.profile.account.implausible += 1;
            return;
        }
        let (row, index) = self.row(alloc);
        let allocation = Allocation {
            id: alloc.id,
            stack: index,
            thread: alloc.thread,
            size: alloc.size,
            slack: alloc.slack.min(LARGEST_BLOCK),
            interval: alloc.interval,
            time_ns: alloc.time_ns,
            inherited: is_inherited(alloc),
        };
        if is_before {
            if let Some(history) = &mut self.history {
                let live = self.ledger.sample(row, alloc.size, alloc.interval);
                history.alloc_before(&allocation, live);
            }
            return;
        }
        let seen = &mut self.profile.run.intervals_seen;
        let (least, most) = seen.unwrap_or((alloc.interval, alloc.interval));
        *seen = Some((least.min(alloc.interval), most.max(alloc.interval)));
        let weight = match &mut self.history {
            // It remembers the block for the ledger, too.
            Some(history) => {
                let live = self.ledger.sample(row, alloc.size, alloc.interval);
                history.alloc(&mut self.ledger, &allocation, live)
            }
            None => {
                let ledger = &mut self.ledger;
                ledger.alloc_in(row, alloc.id, alloc.size, alloc.interval)
            }
        };
        self.average_alloc(index, &weight, alloc.time_ns);
        if !is_inherited(alloc) && !self.resuming {
            let weight = weight.of_counted_bytes(alloc.size);
            self.profile.requested.add(&weight);
            let bytes = counted_bytes(alloc.size);
            self.last_samples.sampled(alloc.thread, weight, bytes);
        }
        let in_use = self.ledger.bytes_in_use();
        if in_use > self.peak.bytes && !self.resuming {
            self.peak = Peak {
                record: self.records,
                time_ns: alloc.time_ns,
                bytes: in_use,
                bytes_variance: Some(self.ledger.total().in_use.bytes_variance_fixed()),
                is_gone: false,
            };
        }
        if let Some(paired) = &mut self.paired {
            paired.alloc(&allocation, self.records);
        }
        self.keeper.alloc(alloc, index, row);
    }

    fn stack(&mut self, mut stack: Stack) {
        // Two threads may ship the same stack at once.
        if !self.stack_of.contains_key(&stack.number) {
            self.leave_interpreter_out(&mut stack);
            let mut interrupted = stack.interrupted;
            interrupted.sort_unstable();
            let labels = self.shared(stack.labels);
            let made = CallStack {
                frames: stack.frames,
                interrupted,
                end: Some(stack.end),
                time_ns: 0,
                begins_with_ours: true,
                labels,
            };
            self.new_stack(stack.number, made);
        }
    }

    /// The labels, in the memory of equal ones before.
    fn shared(&mut self, labels: Vec<(String, String)>) -> Labels {
        if labels.is_empty() {
            return Labels::NONE;
        }
        let labels = Labels::new(labels);
        match self.labels.get(&labels) {
            Some(known) => known.clone(),
            None => {
                self.labels.insert(labels.clone());
                labels
            }
        }
    }

    /// The row of a block that came, and the index of its stack.
    #[inline]
    fn row(&mut self, alloc: &Alloc) -> (u32, u32) {
        let class = SizeClass::of(alloc.size);
        match self.row_of.get(&(alloc.stack, class.0)) {
            Some(&known) => known,
            None => self.new_row(alloc, class),
        }
    }

    #[inline(never)]
    fn new_row(&mut self, alloc: &Alloc, class: SizeClass) -> (u32, u32) {
        let index = self.stack_in_use(alloc.stack, alloc.time_ns);
        let row = self.ledger.row(index, class);
        // Blocks of a stack for which there is no room are counted one by one.
        if self.stack_of.contains_key(&alloc.stack) {
            self.row_of.insert((alloc.stack, class.0), (row, index));
        }
        (row, index)
    }

    /// The index of a stack, by its number in the log, that something was allocated by at that
    /// time.
    fn stack_in_use(&mut self, number: u32, time_ns: u64) -> u32 {
        let index = match self.stack_of.get(&number) {
            Some(&index) => index,
            None => {
                self.profile.account.unknown_stacks += 1;
                self.unknown_stack(number)
            }
        };
        if std::mem::take(&mut self.unused[index as usize]) {
            self.profile.stacks[index as usize].time_ns = time_ns;
        }
        index
    }

    fn new_stack(&mut self, number: u32, stack: CallStack) -> u32 {
        let index = self.profile.stacks.len() as u32;
        self.profile.stacks.push(stack);
        self.unused.push(true);
        self.stack_of.insert(number, index);
        index
    }

    /// Takes a notice. Each segment of a log that rotates repeats those before it.
    fn notice(&mut self, time_ns: u64, text: String) {
        let run = &mut self.profile.run;
        if let Some(what) = text.strip_prefix(TAPPED_LATER) {
            // A library may be opened again and again.
            let is_known = run.tapped.iter().any(|it| it.starts_with(what));
            if run.tapped.len() < MAX_NOTICES && !is_known {
                let from = time_ns as f64 / 1e9;
                run.tapped.push(format!("{what}, from {from:.3} s on"));
            }
        } else if run.notices.len() < MAX_NOTICES && run.notices.iter().all(|it| it.text != text) {
            run.notices.push(Notice { time_ns, text });
        }
    }

    fn module(&mut self, module: Module) {
        self.passed(module.time_ns);
        let mut segments = module.segments;
        segments.sort_by_key(|segment| segment.start);
        self.module_of
            .insert(module.number, self.profile.modules.len());
        self.profile.modules.push(LoadedModule {
            path: module.path,
            build_id: module.build_id,
            stamp: module.stamp,
            bias: Some(module.bias),
            segments,
            loaded_ns: module.time_ns,
            unloaded_ns: None,
            code: None,
        });
    }

    fn thread(&mut self, thread: Thread) {
        self.has_inherited |= thread.number == BEFORE_THE_FORK;
        let threads = &mut self.profile.threads;
        match self.thread_of.get(&thread.number) {
            // Its name changed; one that is gone has none to tell any more.
            Some(&index) if !thread.name.is_empty() => threads[index] = thread,
            Some(_) => {}
            None => {
                self.thread_of.insert(thread.number, threads.len());
                threads.push(thread);
            }
        }
    }
}
