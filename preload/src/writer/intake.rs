//! Intake: events become records, and entries of the ledger.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use heapprof_core::{By, Freed, Last, Next, NumberMap, Sampled, Scale, SentStack, Sink, Usual};
use heapprof_format::{
    Alloc, Free, Module, Record, Stack, TIME_UNIT_NS, Thread as ThreadRecord, WalkEnd,
};

use super::Writer;
use crate::os::procfs;
use crate::recording::byte_count;
use crate::recording::session::{NoteKind, Session, SideEvent};
use crate::unwind::module_events::{self, Notice};
use crate::writer::event_source::{Event, Inlet, Taker};
use crate::writer::kept_stacks::KeptStack;

/// The writer, taking events. `JUST_LOG`: it keeps neither a ledger nor a budget nor a bound, and asks for none of
/// them at each event.
struct Intake<'a, const JUST_LOG: bool>(&'a mut Writer);

impl<const JUST_LOG: bool> Intake<'_, JUST_LOG> {
    /// After each event.
    #[inline(always)]
    fn goes_on(&mut self) -> ControlFlow<()> {
        if !JUST_LOG && self.0.has_full_frame() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl<const JUST_LOG: bool> Sink for Intake<'_, JUST_LOG> {
    type Usual<'a>
        = UsualRecords<'a>
    where
        Self: 'a;

    #[inline(always)]
    fn usual(&mut self, by: By, last: Last) -> Option<UsualRecords<'_>> {
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
            writer: Rest {
                stacks: &writer.stacks,
                last_stack: &mut writer.last_stack,
                told: &mut writer.told,
                allocs: &mut writer.sampled_allocs,
                frees: &mut writer.sampled_frees,
            },
        })
    }

    #[inline(always)]
    fn sampled(&mut self, by: By, it: &Sampled) -> ControlFlow<()> {
        let alloc = self.0.log_sampled(by, it);
        if !JUST_LOG {
            self.0.account_sampled(&alloc);
        }
        self.goes_on()
    }

    #[inline(always)]
    fn freed(&mut self, by: By, it: &Freed) -> ControlFlow<()> {
        let free = self.0.log_freed(by.thread, it);
        if !JUST_LOG {
            self.0.account_freed(&free);
        }
        self.goes_on()
    }
}

/// What becomes of events that are usual for the lane and for the log.
struct UsualRecords<'a> {
    log: heapprof_format::Usual<'a>,
    scale: Scale,
    /// The number of the last stack.
    stack: u32,
    /// Bytes that threads told since this was made.
    bytes: u64,
    writer: Rest<'a>,
}

/// What is seldom needed of the writer meanwhile.
struct Rest<'a> {
    stacks: &'a NumberMap<u64, u32>,
    last_stack: &'a mut (u64, u32),
    told: &'a mut byte_count::ReportedBytes,
    allocs: &'a mut u64,
    frees: &'a mut u64,
}

impl UsualRecords<'_> {
    /// Has `add` add an allocation's record, given its size, slack and number of the stack, if that is known. Returns whether it did.
    #[inline(always)]
    fn add(
        &mut self,
        it: Next,
        add: impl FnOnce(&mut heapprof_format::Usual<'_>, u64, u64, u32) -> bool,
    ) -> bool {
        let number = match it.stack {
            None => self.stack,
            Some(hash) => match self.writer.stacks.get(&hash) {
                Some(&number) => number,
                None => return false,
            },
        };
        let is_added = it.counted <= MOST_TOLD && add(&mut self.log, it.size, it.slack, number);
        if is_added {
            self.bytes += it.counted;
            if let Some(hash) = it.stack {
                self.stack = number;
                *self.writer.last_stack = (hash, number);
            }
        }
        is_added
    }

    /// Before the start: far ahead, which is not usual.
    #[inline(always)]
    fn time(&self, ticks: u64) -> u64 {
        self.scale.at(ticks).cast_unsigned()
    }
}

impl Usual for UsualRecords<'_> {
    #[inline(always)]
    fn sampled(&mut self, at: u64, it: Next) -> bool {
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
    fn replaced(&mut self, at: u64, back: u64, it: Next) -> bool {
        let time = self.time(at);
        self.add(it, |log, size, slack, stack| {
            log.replace(time, back, size, slack, stack)
        })
    }

    #[inline(always)]
    fn finish(self, samples: u64, frees: u64) {
        self.log.finish(samples);
        self.writer.told.add(self.bytes);
        *self.writer.allocs += samples;
        *self.writer.frees += frees;
    }
}

/// More than any thread allocates between two samples; the sum of as many as one look shows has room in a word.
const MOST_TOLD: u64 = 1 << 48;

impl<const JUST_LOG: bool> Taker for Intake<'_, JUST_LOG> {
    fn other(&mut self, event: Event) -> ControlFlow<()> {
        self.0.event(event);
        self.goes_on()
    }
}

impl Writer {
    /// Takes up to `limit` of the events that are there now, or are left from last time. Returns how many there were.
    pub(super) fn drain(&mut self, session: &Session, limit: usize) -> usize {
        let taken = self.take(session, limit); // what is left of the last look
        if taken == limit {
            return taken;
        }
        self.look(session);
        taken + self.take(session, limit - taken)
    }

    fn look(&mut self, session: &Session) {
        self.inlet.look(session);
        self.has_looked();
    }

    fn has_looked(&mut self) {
        self.clock.advance(); // the events are older than that
        self.scale = self.clock.scale(TIME_UNIT_NS, self.output.start_ns);
        // The log keeps times in microseconds.
        self.inlet.set_slack(self.clock.ticks_in_a_microsecond());
    }

    /// Takes up to `limit` of the events that the last look showed.
    fn take(&mut self, session: &Session, limit: usize) -> usize {
        let mut left = limit;
        loop {
            // Out of the writer's hands, so that it can be given what comes out.
            let mut inlet = std::mem::take(&mut self.inlet);
            let flow = if self.keeps_just_the_log() {
                self.pour::<true>(&mut inlet, &mut left)
            } else {
                self.pour::<false>(&mut inlet, &mut left)
            };
            self.inlet = inlet;
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

    fn keeps_just_the_log(&self) -> bool {
        self.ledger.is_none() && self.budget.is_none() && self.rotation.is_none()
    }

    #[inline(never)]
    fn pour<const JUST_LOG: bool>(
        &mut self,
        inlet: &mut Inlet,
        left: &mut usize,
    ) -> ControlFlow<()> {
        inlet.pour(left, &mut Intake::<JUST_LOG>(self))
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
            Event::Stack(stack) => self.new_stack(stack),
            Event::SideEvent(rare) => self.rare(rare),
        }
    }

    fn new_stack(&mut self, new: SentStack) {
        self.tell_modules();
        if self.stacks.contains_key(&new.hash) {
            return; // two threads sent it at once
        }
        let number = self.stack_number(new.hash);
        self.frames_walked += new.frames.len() as u64;
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.stack(new.frames.len());
        }
        let end = WalkEnd::from_u8(new.end).unwrap_or(WalkEnd::Busy); // it was made of one
        if self.ledger.is_some() {
            self.keep(
                number,
                KeptStack {
                    frames: new.frames.as_slice().into(),
                    interrupted: new.interrupted.as_slice().into(),
                    end,
                },
            );
        }
        self.output.encoder.record(&Record::Stack(Stack {
            number,
            end,
            frames: new.frames,
            interrupted: new.interrupted,
        }));
    }

    fn rare(&mut self, rare: SideEvent) {
        match rare {
            SideEvent::Note(note) => {
                self.is_ahead = false;
                let time_ns = self.clock.ns(note.at);
                self.note(time_ns, note.kind);
            }
            SideEvent::Thread { number, tid, name } => {
                // Many name themselves just after they began: its name by now is the better one.
                let name = procfs::thread_name(tid).unwrap_or_else(|| trimmed(&name));
                let thread = ThreadRecord { number, tid, name };
                if let Some(rotation) = &mut self.rotation {
                    rotation.keeping.thread(thread.clone());
                }
                self.output.encoder.record(&Record::Thread(thread));
            }
        }
    }

    #[inline(always)]
    fn log_sampled(&mut self, By { thread, interval }: By, it: &Sampled) -> Alloc {
        self.told.add(it.counted);
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

    /// Nanoseconds since the log's start, in whole units of the log.
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
                rotation.keeping.alloc(alloc, ledger);
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
            rotation.keeping.free(free);
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

    /// Writes what became known about modules since the last time, oldest first.
    pub(super) fn tell_modules(&mut self) {
        let newest = module_events::newest();
        let mut unread = Vec::new();
        let mut at = newest;
        while !at.is_null() && at != self.last_notice {
            // SAFETY: notices are never freed.
            let node = unsafe { &*at };
            unread.push(node);
            at = node.older;
        }
        self.last_notice = newest;
        for node in unread.into_iter().rev() {
            let time_ns = self.since_start(node.time_ns);
            match &node.notice {
                Notice::Loaded {
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
                        bias: *bias,
                        segments: segments.clone(),
                    };
                    self.tell(&Record::Module(module.clone()));
                    self.modules.push(module);
                }
                Notice::Gone { number } => {
                    self.tell(&Record::ModuleGone {
                        module: *number,
                        time_ns,
                    });
                    let (gone, there): (Vec<Module>, Vec<Module>) =
                        std::mem::take(&mut self.modules)
                            .into_iter()
                            .partition(|module| module.number == *number);
                    self.modules = there;
                    if self.ledger.is_some() {
                        self.gone.extend(gone);
                    }
                }
            }
        }
    }

    /// Writes what a checkpoint must repeat.
    pub(super) fn tell(&mut self, module: &Record) {
        self.output.encoder.record(module);
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.module(module);
        }
    }

    /// Takes all events that are there now. What the program's threads still add meanwhile is theirs to add.
    pub(super) fn drain_all(&mut self, session: &Session) {
        self.take(session, usize::MAX); // what is left of the last look
        self.look(session);
        self.take(session, usize::MAX);
    }

    /// The same, when the log ends: nothing stays behind.
    pub(super) fn drain_last(&mut self, session: &Session) {
        self.drain_all(session);
        self.inlet.look_last(session);
        self.has_looked();
        self.take(session, usize::MAX);
    }

    pub(super) fn note(&mut self, time_ns: u64, kind: NoteKind) {
        let time_ns = self.since_start(time_ns);
        match kind {
            NoteKind::Marker(name) => {
                let record = Record::Marker { time_ns, name };
                self.output.encoder.record(&record);
            }
            NoteKind::Regime(interval) => self.tell_regime(time_ns, interval, false),
        }
    }

    /// Another interval is in force, from that time of the log on.
    pub(super) fn tell_regime(&mut self, time_ns: u64, interval: u64, by_budget: bool) {
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.regime(time_ns, interval);
        }
        self.output.encoder.record(&Record::Regime {
            time_ns,
            interval,
            by_budget,
        });
    }

    /// For the dumps.
    pub(super) fn keep(&mut self, number: u32, stack: KeptStack) {
        let place = number as usize;
        if self.kept.len() <= place {
            self.kept.resize_with(place + 1, || None);
        }
        self.kept[place] = Some(stack);
    }
}

/// The text up to a closing zero or line end.
fn trimmed(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0 || byte == b'\n');
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}
