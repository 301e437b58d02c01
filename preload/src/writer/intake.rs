//! Intake: turns events into records of the log and entries of the ledger.

use std::ffi::CString;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use heapprof_core::{
    Freed, LastSample, NextSample, NumberMap, Origin, Sampled, Scale, SentStack, Sink, UsualSink,
};
use heapprof_format::{
    Alloc, FileStamp, Free, Module, Record, Stack, TIME_UNIT_NS, Thread as ThreadRecord, WalkEnd,
};

use super::Writer;
use super::memory_readings::Cause;
use crate::os::{procfs, sys};
use crate::recording::events::{NoteKind, SideEvent};
use crate::recording::session::Session;
use crate::recording::{byte_count, labels};
use crate::unwind::module_events::{self, ModuleEvent};
use crate::writer::event_source::{Event, EventSink, EventSource};
use crate::writer::kept_stacks::KeptStack;
use crate::writer::process_context::ReadContext;

/// The writer as an event sink. `JUST_LOG`: it has no ledger, no budget and no bound, so it does
/// not check for them at each event.
struct Intake<'a, const JUST_LOG: bool>(&'a mut Writer);

impl<const JUST_LOG: bool> Intake<'_, JUST_LOG> {
    /// Ends each event: breaks off if the log has a full frame.
    #[inline(always)]
    fn end_event(&mut self) -> ControlFlow<()> {
        if !JUST_LOG && self.0.has_full_frame() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl<const JUST_LOG: bool> Sink for Intake<'_, JUST_LOG> {
    type UsualSink<'a>
        = UsualRecords<'a>
    where
        Self: 'a;

    #[inline(always)]
    fn usual_sink(&mut self, by: Origin, last: LastSample) -> Option<UsualRecords<'_>> {
        let writer = &mut *self.0;
        if !JUST_LOG {
            return None;
        }
        let encoder = &mut writer.output.encoder;
        let log = encoder.usual(by.thread, by.interval, last.id)?;
        if writer.last_stack.0 != last.stack {
            writer.last_stack = (last.stack, *writer.stacks.get(&last.stack)?);
        }
        Some(UsualRecords {
            log,
            scale: writer.scale,
            stack: writer.last_stack.1,
            bytes: 0,
            writer: WriterParts {
                stacks: &writer.stacks,
                last_stack: &mut writer.last_stack,
                reported: &mut writer.reported,
                allocs: &mut writer.sampled_allocs,
                frees: &mut writer.sampled_frees,
            },
        })
    }

    #[inline(always)]
    fn sampled(&mut self, by: Origin, it: &Sampled) -> ControlFlow<()> {
        let alloc = self.0.log_sampled(by, it);
        if !JUST_LOG {
            self.0.account_sampled(&alloc);
        }
        self.end_event()
    }

    #[inline(always)]
    fn freed(&mut self, by: Origin, it: &Freed) -> ControlFlow<()> {
        let free = self.0.log_freed(by.thread, it);
        if !JUST_LOG {
            self.0.account_freed(&free);
        }
        self.end_event()
    }
}

/// The writer for events that are usual for their lane and for the log.
struct UsualRecords<'a> {
    log: heapprof_format::Usual<'a>,
    scale: Scale,
    /// The number of the last stack.
    stack: u32,
    /// The bytes that threads have reported to this value.
    bytes: u64,
    writer: WriterParts<'a>,
}

/// The parts of the writer that are rarely needed meanwhile.
struct WriterParts<'a> {
    stacks: &'a NumberMap<u64, u32>,
    last_stack: &'a mut (u64, u32),
    reported: &'a mut byte_count::ReportedBytes,
    allocs: &'a mut u64,
    frees: &'a mut u64,
}

impl UsualRecords<'_> {
    /// Adds an allocation's record by `add`, which gets its size, slack and stack number, if that
    /// is known. Returns true if the record was added.
    #[inline(always)]
    fn add(
        &mut self,
        it: NextSample,
        add: impl FnOnce(&mut heapprof_format::Usual<'_>, u64, u64, u32) -> bool,
    ) -> bool {
        let number = match it.stack {
            None => self.stack,
            Some(hash) => match self.writer.stacks.get(&hash) {
                Some(&number) => number,
                None => return false,
            },
        };
        let is_added = it.counted <= MAX_REPORTED && add(&mut self.log, it.size, it.slack, number);
        if is_added {
            self.bytes += it.counted;
            if let Some(hash) = it.stack {
                self.stack = number;
                *self.writer.last_stack = (hash, number);
            }
        }
        is_added
    }

    /// Returns the log's time. A time before the log's start becomes one far ahead, which is not
    /// usual.
    #[inline(always)]
    fn time(&self, ticks: u64) -> u64 {
        self.scale.at(ticks).cast_unsigned()
    }
}

impl UsualSink for UsualRecords<'_> {
    #[inline(always)]
    fn sampled(&mut self, at: u64, it: NextSample) -> bool {
        let time = self.time(at);
        self.add(it, |log, size, slack, stack| {
            log.alloc(time, size, slack, stack)
        })
    }

    #[inline(always)]
    fn freed(&mut self, at: u64, back: u64) -> bool {
        self.log.free(self.time(at), back)
    }

    #[inline(always)]
    fn replaced(&mut self, at: u64, back: u64, it: NextSample) -> bool {
        let time = self.time(at);
        self.add(it, |log, size, slack, stack| {
            log.replace(time, back, size, slack, stack)
        })
    }

    #[inline(always)]
    fn finish(self, samples: u64, frees: u64) {
        self.log.finish(samples);
        self.writer.reported.add(self.bytes);
        *self.writer.allocs += samples;
        *self.writer.frees += frees;
    }
}

/// More bytes than any thread allocates between two samples. The sum over all events of one poll
/// fits a word.
const MAX_REPORTED: u64 = 1 << 48;

impl<const JUST_LOG: bool> EventSink for Intake<'_, JUST_LOG> {
    fn other(&mut self, event: Event) -> ControlFlow<()> {
        self.0.event(event);
        self.end_event()
    }
}

impl Writer {
    /// Takes up to `limit` events: those left from the last poll, then those that are there now.
    /// Returns how many there were.
    pub(super) fn drain(&mut self, session: &Session, limit: usize) -> usize {
        let taken = self.take(session, limit); // left from the last poll
        if taken == limit {
            return taken;
        }
        self.poll(session);
        taken + self.take(session, limit - taken)
    }

    fn poll(&mut self, session: &Session) {
        self.poll_early_mappings();
        self.source.poll(session);
        self.waiting_mappings.clear();
        self.waiting_mappings.extend(self.source.mappings());
        self.advance_clock();
    }

    /// Adds what an account of the mappings has taken from the queue.
    fn poll_early_mappings(&mut self) {
        for event in self.early_mappings.drain(..) {
            self.source.add_mapping(event);
        }
    }

    pub(super) fn advance_clock(&mut self) {
        self.clock.advance(); // the polled events are older
        self.scale = self.clock.scale(TIME_UNIT_NS, self.output.start_ns);
        // The log keeps times in microseconds.
        self.source
            .set_tolerance(self.clock.ticks_in_a_microsecond());
    }

    /// Takes up to `limit` of the events of the last poll.
    fn take(&mut self, session: &Session, limit: usize) -> usize {
        let mut left = limit;
        loop {
            // Outside of the writer, so that the writer can be the sink.
            let mut source = std::mem::take(&mut self.source);
            let flow = if self.only_logs() {
                self.deliver::<true>(&mut source, &mut left)
            } else {
                self.deliver::<false>(&mut source, &mut left)
            };
            self.source = source;
            self.rotate_if_due(session);
            if flow.is_continue() || left == 0 {
                break;
            }
        }
        session
            .taken
            .fetch_add((limit - left) as u64, Ordering::Relaxed);
        limit - left
    }

    fn only_logs(&self) -> bool {
        self.ledger.is_none() && self.budget.is_none() && self.rotation.is_none()
    }

    #[inline(never)]
    fn deliver<const JUST_LOG: bool>(
        &mut self,
        source: &mut EventSource,
        left: &mut usize,
    ) -> ControlFlow<()> {
        source.deliver(left, &mut Intake::<JUST_LOG>(self))
    }

    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Sampled(by, sampled) => {
                let alloc = self.log_sampled(by, &sampled);
                self.account_sampled(&alloc);
            }
            Event::Freed(thread, freed) => {
                let free = self.log_freed(thread, &freed);
                self.account_freed(&free);
            }
            Event::Stack(sent) if sent.is_code() => self.new_code(&sent),
            Event::Stack(stack) => self.new_stack(stack),
            Event::SideEvent(event) => self.side_event(event),
        }
    }

    /// Logs a function of an interpreter, which a checkpoint must repeat.
    fn new_code(&mut self, sent: &SentStack) {
        if let Some(code) = self.codes.take(sent) {
            self.log_module_record(&Record::Code(code));
        }
    }

    pub(super) fn new_stack(&mut self, mut new: SentStack) {
        self.log_modules();
        if self.stacks.contains_key(&new.hash) {
            return; // two threads sent it at once
        }
        let number = self.stack_number(new.hash);
        self.frames_walked += new.frames.len() as u64;
        self.codes.replace_addresses(&mut new.frames);
        let labels = self.labels_of(&new.labels);
        if let Some(rotation) = &mut self.rotation {
            rotation.checkpoint_state.stack(new.frames.len(), &labels);
        }
        // it was made from a `WalkEnd`
        let end = WalkEnd::from_u8(new.end).unwrap_or(WalkEnd::Busy);
        if self.ledger.is_some() {
            self.store_stack(
                number,
                KeptStack {
                    frames: new.frames.as_slice().into(),
                    interrupted: new.interrupted.as_slice().into(),
                    end,
                    labels: labels.as_slice().into(),
                },
            );
        }
        self.output.encoder.record(&Record::Stack(Stack {
            number,
            end,
            frames: new.frames,
            interrupted: new.interrupted,
            labels,
        }));
    }

    /// Returns the labels of a stack. The first ones, and a key that is not known, let the writer
    /// read what the program says of itself.
    fn labels_of(&mut self, words: &[u64]) -> Vec<(String, String)> {
        if words.is_empty() {
            return Vec::new();
        }
        let (context, output) = (&mut self.process_context, &mut self.output);
        let mut refresh = |context: &mut ReadContext| {
            if let Some(resource) = context.refresh() {
                output.log_resource(resource);
            }
        };
        if context.is_unread() {
            refresh(context);
        }
        labels::from_words(words, |index| {
            if context.key(index).is_none() {
                refresh(context);
            }
            context.key(index).map(str::to_owned)
        })
    }

    fn side_event(&mut self, event: SideEvent) {
        match event {
            SideEvent::Note(note) => {
                self.is_provisional = false;
                let time_ns = self.clock.ns(note.at);
                self.note(time_ns, note.kind);
            }
            SideEvent::Thread { number, tid, name } => {
                // Many threads name themselves just after their start: the present name is the
                // better one.
                let name = procfs::thread_name(tid).unwrap_or_else(|| trimmed(&name));
                let thread = ThreadRecord { number, tid, name };
                if let Some(rotation) = &mut self.rotation {
                    rotation.checkpoint_state.thread(thread.clone());
                }
                self.output.encoder.record(&Record::Thread(thread));
            }
        }
    }

    #[inline(always)]
    fn log_sampled(&mut self, Origin { thread, interval }: Origin, it: &Sampled) -> Alloc {
        self.reported.add(it.counted);
        if self.last_stack.0 != it.stack {
            self.last_stack = (it.stack, self.stack_number(it.stack));
        }
        self.sampled_allocs += 1;
        let alloc = Alloc {
            time_ns: self.time_ns(it.at),
            thread,
            id: it.id,
            size: it.size,
            slack: it.slack.into(),
            stack: self.last_stack.1,
            interval,
        };
        self.output.encoder.alloc(&alloc);
        alloc
    }

    /// Returns nanoseconds since the log's start, in whole units of the log.
    #[inline(always)]
    fn time_ns(&self, ticks: u64) -> u64 {
        let units = self.scale.at(ticks).max(0).cast_unsigned();
        units.saturating_mul(TIME_UNIT_NS)
    }

    fn account_sampled(&mut self, alloc: &Alloc) {
        if let Some(budget) = &mut self.budget
            && (self.settings.record_over == 0 || alloc.size < self.settings.record_over)
        {
            budget.sampled(alloc.interval);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.alloc(alloc.id, alloc.stack, alloc.size, alloc.interval);
            if let Some(rotation) = &mut self.rotation {
                rotation.checkpoint_state.alloc(alloc, ledger);
            }
            self.dump_if_due();
        }
    }

    #[inline(always)]
    fn log_freed(&mut self, thread: u32, it: &Freed) -> Free {
        self.sampled_frees += 1;
        let free = Free {
            time_ns: self.time_ns(it.at),
            thread,
            id: it.id,
        };
        self.output.encoder.free(&free);
        free
    }

    fn account_freed(&mut self, free: &Free) {
        if let Some(rotation) = &mut self.rotation {
            rotation.checkpoint_state.free(free);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.free(free.id);
            self.dump_if_due();
        }
    }

    pub(super) fn stack_number(&mut self, hash: u64) -> u32 {
        let next = self.stacks.len() as u32;
        *self.stacks.entry(hash).or_insert(next)
    }

    /// Logs the modules that were loaded and unloaded after the last call, oldest first.
    pub(super) fn log_modules(&mut self) {
        let newest = module_events::newest();
        let mut unread = Vec::new();
        let mut at = newest;
        while !at.is_null() && at != self.last_module_event {
            // SAFETY: nodes of module events are never freed.
            let node = unsafe { &*at };
            unread.push(node);
            at = node.older;
        }
        self.last_module_event = newest;
        for node in unread.into_iter().rev() {
            let time_ns = self.since_start(node.time_ns);
            match &node.event {
                ModuleEvent::Loaded {
                    number,
                    path,
                    build_id,
                    bias,
                    segments,
                } => {
                    let module = Module {
                        number: *number,
                        time_ns,
                        path: String::from_utf8_lossy(path).into_owned(),
                        build_id: build_id.clone(),
                        stamp: build_id.is_empty().then(|| stamp_of(path)).flatten(),
                        bias: *bias,
                        segments: segments.clone(),
                    };
                    self.log_module_record(&Record::Module(module.clone()));
                    self.modules.push(module);
                }
                ModuleEvent::Unloaded { number } => {
                    self.log_module_record(&Record::ModuleGone {
                        module: *number,
                        time_ns,
                    });
                    let (gone, there): (Vec<Module>, Vec<Module>) =
                        std::mem::take(&mut self.modules)
                            .into_iter()
                            .partition(|module| module.number == *number);
                    self.modules = there;
                    let is_known = self.unloaded.iter().any(|it| it.number == *number);
                    if self.ledger.is_some() && !is_known {
                        self.unloaded.extend(gone);
                    }
                }
            }
        }
    }

    /// Logs a record that a checkpoint must repeat.
    pub(super) fn log_module_record(&mut self, module: &Record) {
        self.output.encoder.record(module);
        if let Some(rotation) = &mut self.rotation {
            rotation.checkpoint_state.module(module);
        }
    }

    /// Takes all events that are there now, but not those that threads add meanwhile.
    pub(super) fn drain_all(&mut self, session: &Session) {
        self.take(session, usize::MAX); // left from the last poll
        self.poll(session);
        self.take(session, usize::MAX);
    }

    /// Takes all events when the log ends: none stays.
    pub(super) fn drain_last(&mut self, session: &Session) {
        self.drain_all(session);
        self.poll_early_mappings();
        self.source.poll_last(session);
        self.advance_clock();
        self.take(session, usize::MAX);
    }

    pub(super) fn note(&mut self, time_ns: u64, kind: NoteKind) {
        let time_ns = self.since_start(time_ns);
        match kind {
            NoteKind::Marker(name) => {
                let record = Record::Marker { time_ns, name };
                self.output.encoder.record(&record);
                self.log_memory(Cause::Frequent);
                self.want_page_reading();
            }
            NoteKind::Mapping(event) => self.mapping_changed(time_ns, &event),
            NoteKind::Regime(interval) => self.log_regime(time_ns, interval, false),
        }
    }

    /// Logs that another interval is in force, from that time of the log on.
    pub(super) fn log_regime(&mut self, time_ns: u64, interval: u64, by_budget: bool) {
        if let Some(rotation) = &mut self.rotation {
            rotation.checkpoint_state.regime(time_ns, interval);
        }
        self.output.encoder.record(&Record::Regime {
            time_ns,
            interval,
            by_budget,
        });
    }

    /// Stores the frames of a stack for dumps and checkpoints.
    pub(super) fn store_stack(&mut self, number: u32, stack: KeptStack) {
        let index = number as usize;
        if self.kept_stacks.len() <= index {
            self.kept_stacks.resize_with(index + 1, || None);
        }
        self.kept_stacks[index] = Some(stack);
    }
}

/// Returns what tells the file at a path from others. `None`: there is none, as for the vDSO.
fn stamp_of(path: &[u8]) -> Option<FileStamp> {
    let stat = sys::stat_of_target(&CString::new(path).ok()?).ok()?;
    Some(FileStamp {
        inode: stat.inode,
        size: stat.size,
        modified_ns: stat.modified_ns,
    })
}

/// Returns the text up to a closing zero or line end.
fn trimmed(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0 || byte == b'\n');
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}
