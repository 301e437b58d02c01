//! The writer: one thread of ours that turns events into the log and the dumps.
//!
//! ```text
//!  session ──> writer ──> log (every 50 ms at the latest)
//!                 └─ ledger ──> dumps, when HEAPPROFILE is set
//! ```
//!
//! It drains what is there, dozes a few milliseconds, and after a tenth of a second without events sleeps until an
//! event wakes it: a process that samples nothing is not woken. It takes no lock that the program could
//! hold, no signal, and is inside our code for life, so nothing it does is profiled.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapprof_core::{Budget, Ledger, NumberMap};
use heapprof_format::{
    Alloc, Counter, EndReason, Free, Module, Record, Stack, Thread as ThreadRecord,
};

use crate::clock::Clock;
use crate::counters;
use crate::dumps::{Context, Dumps, KeptStack};
use crate::hook::{self, Phase};
use crate::inheritance::{self, Inheritance, Inherited};
use crate::modules::{self, Notice, NoticeNode};
use crate::output::Output;
use crate::rotation::Rotation;
use crate::session::{self, ASLEEP, AWAKE, DOZING, Event, FreeEvent, Noted, Session};
use crate::settings::Settings;
use crate::{
    clock, control, files, health, hold, main_thread, own_alloc, signal, sys, tls, walkers,
};

mod commands;

/// The log is at most that old: SIGKILL loses no more (with the time of one append).
const FLUSH_NS: u64 = 50_000_000;
/// A frame is at most about that long.
const FLUSH_BYTES: usize = 256 << 10;
/// Between two looks at the queue while there are events; a queue that is half full ends it.
const DOZE_NS: u64 = 20_000_000;
/// Without events for that long, the writer sleeps until it is woken.
const IDLE_NS: u64 = 100_000_000;
/// Events between two looks at the clock.
const BATCH: usize = 1024;
/// Running totals are written this often.
const COUNTERS_NS: u64 = 1_000_000_000;
/// Bytes of the writer's stack: its own frames are small, formatting and sorting a dump included.
const STACK_BYTES: usize = 512 << 10;

/// The writer's state.
pub(crate) struct Writer {
    output: Output,
    settings: Settings,
    /// Number of each stack, by its hash.
    stacks: NumberMap<u64, u32>,
    /// Their frames, for dumps and checkpoints; empty without those.
    kept: Vec<Option<KeptStack>>,
    modules: Vec<Module>,
    /// Modules that were unloaded: stacks may still name them.
    gone: Vec<Module>,
    last_notice: *const NoticeNode,
    /// Kept up when dumps may be asked for, or the log rotates.
    ledger: Option<Ledger>,
    /// What this process had in use when it was forked. Empty without dumps.
    inheritance: Inheritance,
    dumps: Option<Dumps>,
    /// Samples a second that the interval is to keep to.
    budget: Option<Budget>,
    /// When the log is to keep within a bound.
    rotation: Option<Rotation>,
    /// The allocator's own count of bytes that threads allocated up to their last samples, and how many threads
    /// these are.
    counted_bytes: u64,
    counted_threads: u64,
    sampled_allocs: u64,
    sampled_frees: u64,
    frames_walked: u64,
    /// Frees that found the queue full, until the events before them are through.
    overflowed: Vec<FreeEvent>,
    /// When the events were.
    clock: Clock,
}

// SAFETY: `last_notice` points into a list that is never freed; everything else is owned. The
// writer is made in one thread and handed over to another.
unsafe impl Send for Writer {}

impl Writer {
    pub(crate) fn new(output: Output, settings: &Settings) -> Writer {
        let with_dumps = settings.prefix.is_some();
        let budget = (settings.max_samples_per_sec > 0).then(|| {
            Budget::new(
                settings.max_samples_per_sec,
                control::asked(),
                clock::now_ns(),
            )
        });
        let mut writer = Writer {
            budget,
            dumps: with_dumps.then(|| Dumps::new(&output.base, settings, clock::now_ns())),
            ledger: (with_dumps || settings.max_log > 0).then(Ledger::new),
            rotation: (settings.max_log > 0).then(|| Rotation::new(settings.max_log, &output)),
            inheritance: Inheritance::default(),
            output,
            settings: settings.clone(),
            stacks: NumberMap::default(),
            kept: Vec::new(),
            modules: Vec::new(),
            gone: Vec::new(),
            last_notice: std::ptr::null(),
            counted_bytes: 0,
            counted_threads: 0,
            sampled_allocs: 0,
            sampled_frees: 0,
            frames_walked: 0,
            overflowed: Vec::new(),
            clock: Clock::new(),
        };
        if control::in_force() != settings.interval {
            // Stopped from the start, or changed by the process that this one is a copy of.
            let start_ns = writer.output.start_ns;
            writer.note(start_ns, Noted::Regime(control::in_force()));
        }
        writer
    }

    /// Takes what it had from its parent, if this process was forked and dumps are wanted.
    fn inherit(&mut self) {
        let Some(dumps) = &mut self.dumps else {
            return;
        };
        self.inheritance = inheritance::take();
        dumps.begin_with(self.inheritance.in_use_bytes());
        self.gone.append(&mut self.inheritance.gone);
    }

    /// In a forked child, of its parent's writer: everything that the child goes on from.
    pub(crate) fn bequeath(&mut self) -> Inheritance {
        let mut all = std::mem::take(&mut self.inheritance);
        all.gone = std::mem::take(&mut self.gone);
        all.ledgers
            .extend(self.ledger.take().map(|ledger| Inherited {
                ledger,
                stacks: std::mem::take(&mut self.kept),
            }));
        all
    }

    /// Nanoseconds since the log's start.
    fn since_start(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.output.start_ns)
    }

    /// Takes up to `limit` events. Returns how many there were.
    fn drain(&mut self, session: &Session, limit: usize) -> usize {
        self.clock.advance();
        // Frees that went the other way belong behind the events that are queued now, among which
        // their allocations are.
        while let Some(free) = session.next_overflowed() {
            self.overflowed.push(free);
        }
        let limit = if self.overflowed.is_empty() {
            limit
        } else {
            session.waiting().max(limit)
        };
        let mut count = 0;
        while count < limit
            && let Some(event) = session.next()
        {
            self.event(event);
            count += 1;
            if self.rotation.is_some() {
                self.rotate_if_due(session);
            }
        }
        session.taken.fetch_add(count as u64, Ordering::Relaxed);
        let frees = std::mem::take(&mut self.overflowed);
        for free in &frees {
            self.free(free);
        }
        count + frees.len()
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Alloc {
                at,
                id,
                stack,
                size,
                slack,
                thread,
                interval,
                counted,
            } => {
                self.counted_bytes += counted & !health::NEW;
                self.counted_threads += u64::from(counted & health::NEW != 0);
                let stack = self.stack_number(stack);
                self.sampled_allocs += 1;
                if let Some(budget) = &mut self.budget
                    && (self.settings.record_over == 0 || size < self.settings.record_over)
                {
                    budget.sampled(interval);
                }
                let alloc = Alloc {
                    time_ns: self.since_start(self.clock.ns(at)),
                    thread,
                    id,
                    size,
                    slack: slack.into(),
                    stack,
                    interval,
                };
                self.output.encoder.alloc(&alloc);
                if let Some(ledger) = &mut self.ledger {
                    ledger.alloc(id, stack, size, interval);
                    if let Some(rotation) = &mut self.rotation {
                        rotation.keeping.alloc(&alloc, ledger);
                    }
                    self.dump_if_due();
                }
            }
            Event::Free(free) => self.free(&free),
            Event::Note(note) => {
                let time_ns = self.clock.ns(note.at);
                self.note(time_ns, note.what);
            }
            Event::Stack(new) => {
                self.tell_modules();
                if self.stacks.contains_key(&new.hash) {
                    return; // two threads shipped it at once
                }
                let number = self.stack_number(new.hash);
                self.frames_walked += new.frames.len() as u64;
                if let Some(rotation) = &mut self.rotation {
                    rotation.keeping.stack(new.frames.len());
                }
                if self.ledger.is_some() {
                    self.keep(
                        number,
                        KeptStack {
                            frames: new.frames.clone(),
                            interrupted: new.interrupted.clone(),
                            end: new.end,
                        },
                    );
                }
                self.output.encoder.record(&Record::Stack(Stack {
                    number,
                    end: new.end,
                    frames: new.frames.into_vec(),
                    interrupted: new.interrupted.into_vec(),
                }));
            }
            Event::Thread { number, tid, name } => {
                // Many name themselves just after they began: its name by now is the better one.
                let name = thread_name(tid).unwrap_or_else(|| trimmed(&name));
                let thread = ThreadRecord { number, tid, name };
                if let Some(rotation) = &mut self.rotation {
                    rotation.keeping.thread(thread.clone());
                }
                self.output.encoder.record(&Record::Thread(thread));
            }
        }
    }

    fn free(&mut self, free: &FreeEvent) {
        self.sampled_frees += 1;
        let record = Free {
            time_ns: self.since_start(self.clock.ns(free.at)),
            thread: free.thread,
            id: free.id,
        };
        self.output.encoder.free(&record);
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.free(&record);
        }
        if let Some(ledger) = &mut self.ledger {
            if ledger.free(free.id).is_none() {
                self.inheritance.free(free.id);
            }
            self.dump_if_due();
        }
    }

    fn stack_number(&mut self, hash: u64) -> u32 {
        let next = self.stacks.len() as u32;
        *self.stacks.entry(hash).or_insert(next)
    }

    /// Writes what became known about modules since the last time, oldest first.
    fn tell_modules(&mut self) {
        let newest = modules::newest_notice();
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
    fn tell(&mut self, module: &Record) {
        self.output.encoder.record(module);
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.module(module);
        }
    }

    /// Appends what there is to the log, within its bound.
    fn flush(&mut self) {
        match (&mut self.rotation, &self.ledger) {
            (Some(rotation), Some(ledger)) => {
                rotation.make_room(&self.output, ledger);
                self.output.flush(|| rotation.segments.drop_oldest());
            }
            _ => self.output.flush(|| false),
        }
    }

    /// The same, now or never.
    fn flush_last(&mut self) {
        match (&mut self.rotation, &self.ledger) {
            (Some(rotation), Some(ledger)) => {
                rotation.make_room(&self.output, ledger);
                self.output.flush_last(|| rotation.segments.drop_oldest());
            }
            _ => self.output.flush_last(|| false),
        }
    }

    /// Appends frames of the size that suits the bound, and begins a new segment when this one is full.
    fn rotate_if_due(&mut self, session: &Session) {
        let Some(rotation) = &self.rotation else {
            return;
        };
        if self.output.encoder.pending() >= rotation.segments.frame_bytes() {
            self.flush();
            self.rotate_if_full(session);
        }
    }

    fn rotate_if_full(&mut self, session: &Session) {
        let (Some(rotation), Some(ledger)) = (&mut self.rotation, &self.ledger) else {
            return;
        };
        if !rotation.is_due(&self.output, ledger) {
            return;
        }
        self.tell_modules();
        self.flush();
        let counters = self.totals();
        let time_ns = self.since_start(clock::now_ns());
        if let (Some(rotation), Some(ledger)) = (&mut self.rotation, &self.ledger) {
            let output = &mut self.output;
            rotation.rotate(output, ledger, &self.kept, &counters, session, time_ns);
        }
        if control::in_force() != self.settings.interval {
            // The segment's first record tells the interval of the settings.
            self.output.encoder.record(&Record::Regime {
                time_ns,
                interval: control::in_force(),
                by_budget: self.budget.is_some(),
            });
        }
        while let Some(event) = self
            .rotation
            .as_mut()
            .and_then(|rotation| rotation.next_set_aside(session))
        {
            self.event(event);
            if self.output.encoder.pending() >= FLUSH_BYTES {
                self.flush();
            }
        }
    }

    fn totals(&self) -> Vec<(Counter, u64)> {
        let mut totals = vec![
            (Counter::SampledAllocs, self.sampled_allocs),
            (Counter::SampledFrees, self.sampled_frees),
            (Counter::CountedBytes, self.counted_bytes),
            (Counter::CountedThreads, self.counted_threads),
        ];
        totals.extend(counters::all().filter(|&(_, value)| value > 0));
        totals
    }

    fn tell_counters(&mut self, now_ns: u64) {
        let values = self.totals();
        let time_ns = self.since_start(now_ns);
        self.output
            .encoder
            .record(&Record::Counters { time_ns, values });
    }

    #[inline]
    fn dump_if_due(&mut self) {
        if let (Some(dumps), Some(ledger)) = (&self.dumps, &self.ledger)
            && let Some(why) = dumps.due(ledger, self.inheritance.in_use_bytes())
        {
            let _ = self.dump(&why); // what went wrong has been said
        }
    }

    /// Writes a dump. Returns its path, or why there is none.
    #[cold]
    fn dump(&mut self, why: &str) -> Result<String, String> {
        self.tell_modules();
        self.inheritance.settle();
        let comments = self.dump_comments();
        let now_ns = clock::now_ns();
        let (Some(dumps), Some(ledger)) = (&mut self.dumps, &self.ledger) else {
            return Err("no dumps are kept".into());
        };
        let context = Context {
            stacks: &self.kept,
            inheritance: &self.inheritance,
            modules: &self.modules,
            gone: &self.gone,
            comments,
        };
        let written = dumps.write(why, ledger, context, now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::Marker {
            time_ns,
            name: format!("dump: {why}"),
        });
        written
    }

    fn dump_comments(&self) -> Vec<String> {
        let interval = self.settings.interval;
        let mut comments = vec![
            format!("program: {}", self.output.program),
            format!("command: {}", self.output.args.join(" ")),
            format!("pid: {}", sys::getpid()),
            format!("interval: {interval}"),
            match interval {
                1 => "estimator: none, every allocation was recorded".to_owned(),
                _ => "estimator: each sample of s bytes counts 1/p objects and s/p bytes, \
                      p = 1 - exp(-s/interval)"
                    .to_owned(),
            },
        ];
        if self.inheritance.incomplete {
            comments.push(
                "inherited: what was in use at the fork is missing here, because the parent was busy; \
                 it is in the log"
                    .to_owned(),
            );
        } else if !self.inheritance.ledgers.is_empty() {
            comments.push("inherited: what was in use at the fork counts as allocated".to_owned());
        }
        if let Some(ledger) = &self.ledger {
            let mut total = *ledger.total();
            total.merge(&self.inheritance.total());
            comments.push(format!(
                "standard error: in use {:.0} objects, {:.0} bytes; allocated {:.0} objects, {:.0} bytes",
                total.in_use.objects_error(),
                total.in_use.bytes_error(),
                total.allocated.objects_error(),
                total.allocated.bytes_error(),
            ));
        }
        let losses: Vec<String> = self
            .totals()
            .iter()
            .map(|(counter, value)| format!("{}: {value}", counter.describe()))
            .collect();
        comments.push(format!("account: {}", losses.join(", ")));
        let cut = self
            .kept
            .iter()
            .flatten()
            .filter(|stack| stack.end != heapprof_format::WalkEnd::Root)
            .count();
        comments.push(format!(
            "stacks: {}, of which cut short: {cut}",
            self.stacks.len()
        ));
        comments
    }

    /// Everything that is left, the last dump, and the log's end.
    pub(crate) fn finish(&mut self, session: Option<&Session>, reason: EndReason) {
        if let Some(session) = session {
            self.drain_all(session);
        }
        signal::look();
        self.tell_modules();
        if self.dumps.as_ref().is_some_and(|dumps| dumps.at_exit) {
            let own = self.ledger.as_ref().map_or(0, |l| l.total().in_use.bytes());
            let in_use = own + self.inheritance.in_use_bytes();
            let _ = self.dump(&format!("Exiting, {} bytes in use", in_use));
        }
        self.end_log(None, reason);
        if self.settings.verbose {
            self.say_summary();
        }
    }

    /// Everything that is left, without a dump, and the log's end.
    pub(crate) fn end_log(&mut self, session: Option<&Session>, reason: EndReason) {
        if let Some(session) = session {
            self.drain_all(session);
        }
        let now_ns = clock::now_ns();
        self.tell_counters(now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::End { time_ns, reason });
        self.flush_last();
    }

    /// Takes all events that are there now. What the program's threads still add meanwhile is theirs to add.
    fn drain_all(&mut self, session: &Session) {
        let mut left = session.waiting();
        while left > 0 {
            let taken = self.drain(session, left.min(BATCH));
            left = left.saturating_sub(taken.max(1));
        }
        self.drain(session, 0);
    }

    /// The process is about to become another program: writes all there is. If that fails and it goes on,
    /// so does the log.
    fn flush_for_exec(&mut self, session: &Session) {
        self.drain_all(session);
        self.tell_modules();
        let now_ns = clock::now_ns();
        self.tell_counters(now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::End {
            time_ns,
            reason: EndReason::Exec,
        });
        self.flush();
        session.flushed.fetch_add(1, Ordering::AcqRel);
        sys::futex_wake(&session.flushed);
    }

    fn say_summary(&self) {
        let lost: u64 = counters::all()
            .filter(|(counter, _)| counter.is_loss() && *counter != Counter::LostLogBytes)
            .map(|(_, value)| value)
            .sum();
        let dumps = counters::DUMPS_WRITTEN.get();
        let base = String::from_utf8_lossy(&self.output.base);
        let dumps = match dumps {
            0 => String::new(),
            n => format!(", {n} dumps ({base}.0001.heap …)"),
        };
        crate::say::say!(
            "{} samples, {} of them freed, {} losses; {}{}{dumps}",
            self.sampled_allocs,
            self.sampled_frees,
            lost,
            self.output.log_path(),
            if self.output.log_is_whole() {
                ""
            } else {
                " (incomplete)"
            },
        );
    }

    /// The life of the thread.
    fn run(&mut self, session: &Session) {
        let start = clock::now_ns();
        let (mut last_event, mut last_flush, mut last_counters) = (start, start, start);
        let mut last_tended = 0;
        self.tell_modules();
        while session.finish.load(Ordering::Acquire) == 0 {
            if own_alloc::is_short() {
                return;
            }
            if hold::is_asked() {
                self.drain_all(session);
                hold::stand_still();
            }
            let drained = self.drain(session, BATCH);
            let now = clock::now_ns();
            if drained > 0 {
                last_event = now;
            }
            if session.flush_asked.swap(0, Ordering::AcqRel) > 0 {
                self.flush_for_exec(session);
            }
            if session.dumps_asked.swap(0, Ordering::AcqRel) > 0 {
                let _ = self.dump("signal");
            }
            self.serve(session);
            self.keep_to_budget(now);
            if self
                .dumps
                .as_ref()
                .is_some_and(|dumps| now >= dumps.next_ns())
            {
                let _ = self.dump("time interval");
            }
            let pending = self.output.pending();
            if pending >= FLUSH_BYTES || pending > 0 && now.saturating_sub(last_flush) >= FLUSH_NS {
                if now.saturating_sub(last_counters) >= COUNTERS_NS {
                    self.tell_counters(now);
                    last_counters = now;
                }
                self.flush();
                self.rotate_if_full(session);
                last_flush = now;
            }
            if now.saturating_sub(last_tended) >= DOZE_NS {
                walkers::tend();
                modules::free_retired(walkers::holds);
                signal::look();
                last_tended = now;
            }
            if drained == BATCH {
                continue; // there is more
            }
            if drained == 0 && main_thread::all_have_left() {
                return;
            }
            let idle = now.saturating_sub(last_event) >= IDLE_NS && self.output.pending() == 0;
            self.rest(session, now, idle);
        }
    }

    /// Has the interval follow the load.
    #[inline]
    fn keep_to_budget(&mut self, now_ns: u64) {
        let Some(budget) = &mut self.budget else {
            return;
        };
        let before = budget.interval();
        budget.ask(control::asked(), now_ns);
        if control::is_running() {
            budget.adapt(now_ns);
        } else {
            budget.rest(now_ns);
        }
        let interval = budget.interval();
        if interval != before {
            let was_in_force = control::in_force();
            control::raise(interval);
            if control::in_force() != was_in_force {
                let time_ns = self.since_start(now_ns);
                self.output.encoder.record(&Record::Regime {
                    time_ns,
                    interval: control::in_force(),
                    by_budget: true,
                });
            }
        }
    }

    fn note(&mut self, time_ns: u64, what: Noted) {
        let time_ns = self.since_start(time_ns);
        let record = match what {
            Noted::Marker(name) => Record::Marker { time_ns, name },
            Noted::Regime(interval) => Record::Regime {
                time_ns,
                interval,
                by_budget: false,
            },
        };
        self.output.encoder.record(&record);
    }

    /// For the dumps.
    fn keep(&mut self, number: u32, stack: KeptStack) {
        let place = number as usize;
        if self.kept.len() <= place {
            self.kept.resize_with(place + 1, || None);
        }
        self.kept[place] = Some(stack);
    }

    /// Waits for events: a moment, or when idle until one comes or a dump is due.
    fn rest(&self, session: &Session, now_ns: u64, idle: bool) {
        let (state, timeout) = if idle && main_thread::may_leave() {
            (ASLEEP, Some(IDLE_NS))
        } else if idle {
            let dump = self.dumps.as_ref().map_or(u64::MAX, Dumps::next_ns);
            let budget = self.budget.as_ref().filter(|_| control::is_running());
            let budget = budget.and_then(Budget::due_ns);
            let due = dump.min(budget.unwrap_or(u64::MAX));
            (
                ASLEEP,
                (due != u64::MAX).then(|| due.saturating_sub(now_ns).max(1)),
            )
        } else {
            (DOZING, Some(DOZE_NS))
        };
        session.writer.store(state, Ordering::SeqCst);
        // Whoever sent before it could see the state did not wake us.
        let something_came = idle && !session.is_empty()
            || session.finish.load(Ordering::SeqCst) != 0
            || session.flush_asked.load(Ordering::SeqCst) != 0
            || session.page.is_asked()
            || !session.requests.1.is_empty()
            || session.dumps_asked.load(Ordering::SeqCst) != 0
            || hold::is_asked();
        if !something_came {
            sys::futex_wait_shared(session.writer, state, timeout);
        }
        session.writer.store(AWAKE, Ordering::SeqCst);
    }
}

/// What the thread is given, until it has taken it.
struct Handover {
    writer: Box<Writer>,
    session: &'static Session,
}

/// The writer of the session, while it is not the thread's: see `exit.rs`.
static HANDOVER: AtomicPtr<Handover> = AtomicPtr::new(std::ptr::null_mut());

/// Whether this process's writer runs and keeps a ledger: a fork then waits for it. See `hold.rs`.
static KEEPS_LEDGER: AtomicBool = AtomicBool::new(false);

/// See [`KEEPS_LEDGER`].
pub(crate) fn keeps_ledger() -> bool {
    KEEPS_LEDGER.load(Ordering::Acquire)
}

/// In a forked child: its writer is not there yet.
pub(crate) fn after_fork() {
    KEEPS_LEDGER.store(false, Ordering::Release);
    THREAD.store(0, Ordering::Relaxed);
    RUNS.store(0, Ordering::Relaxed);
}

/// Set when the thread has begun. libc's own steps before that end the process if a seccomp filter forbids them.
static RUNS: AtomicU32 = AtomicU32::new(0);
/// How long a program's first sample waits for the thread to run.
const START_PATIENCE_NS: u64 = 100_000_000;

/// A program that fences itself in right after its first sample shall find the thread complete.
fn wait_until_it_runs() {
    let deadline = clock::now_ns() + START_PATIENCE_NS;
    while RUNS.load(Ordering::Acquire) == 0 {
        let now = clock::now_ns();
        if now >= deadline {
            return;
        }
        sys::futex_wait(&RUNS, 0, Some(deadline - now));
    }
}

/// Starts the thread. On failure the writer is given back.
pub(crate) fn start(writer: Box<Writer>, session: &'static Session) -> Result<(), Box<Writer>> {
    HANDOVER.store(
        Box::into_raw(Box::new(Handover { writer, session })),
        Ordering::Release,
    );
    // The new thread inherits a mask that blocks everything: no signal meant for the program is ever
    // handled there.
    let mask = sys::block_signals();
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut id = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes are initialised before use and destroyed after; `main` matches the type
    // that pthread_create wants.
    let error = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let error = libc::pthread_create(
            id.as_mut_ptr(),
            attributes.as_ptr(),
            main,
            std::ptr::null_mut(),
        );
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    sys::restore_signals(mask);
    if error == 0 {
        wait_until_it_runs();
        return Ok(());
    }
    let back = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: made above; no thread was started that could have taken it.
    Err(unsafe { Box::from_raw(back) }.writer)
}

/// The writer's thread, by the kernel's number; 0: there is none.
static THREAD: AtomicU32 = AtomicU32::new(0);

/// There is no memory for what this thread wants. The writer stands still then, for good; a thread of the program's
/// returns from here.
pub(crate) fn stop_if_it_is_me() {
    if THREAD.load(Ordering::Relaxed) != sys::gettid() {
        return;
    }
    KEEPS_LEDGER.store(false, Ordering::Release);
    if let Some(session) = session::current() {
        session.finished.store(1, Ordering::Release);
        sys::futex_wake(&session.finished);
    }
    loop {
        sys::sleep_ns(u64::MAX >> 1);
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    tls::current().enter_for_life();
    THREAD.store(sys::gettid(), Ordering::Relaxed);
    sys::name_thread(c"heapprof");
    RUNS.store(1, Ordering::Release);
    sys::futex_wake(&RUNS);
    let handover = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if handover.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: made by `start`; the swap made it ours.
    let Handover { writer, session } = *unsafe { Box::from_raw(handover) };
    // Leaked: a forked child looks at it where it is, and dropping millions of entries would delay the end.
    let place = Box::into_raw(writer);
    // SAFETY: made from a box just now, and never freed. In this process nobody else uses the address.
    let writer = unsafe { &mut *place };
    writer.inherit();
    inheritance::remember(place);
    KEEPS_LEDGER.store(writer.ledger.is_some(), Ordering::Release);
    let work = std::panic::AssertUnwindSafe(|| {
        writer.run(session);
        if own_alloc::is_short() {
            KEEPS_LEDGER.store(false, Ordering::Release);
            writer.end_log(Some(session), EndReason::GaveUp);
        } else {
            writer.finish(Some(session), EndReason::Exit);
        }
    });
    if std::panic::catch_unwind(work).is_err() {
        hook::give_up("the writer");
    }
    session.finished.store(1, Ordering::Release);
    sys::futex_wake(&session.finished);
    if session.finish.load(Ordering::Acquire) == 0 && main_thread::all_have_left() {
        // Nobody asked for the end: the program's last thread has left.
        hook::set_phase(Phase::Off);
        main_thread::exit_for_the_last();
    }
    std::ptr::null_mut()
}

/// The name of a thread of this process, if it still lives.
fn thread_name(tid: u32) -> Option<String> {
    let path = format!("/proc/{}/task/{tid}/comm", sys::getpid());
    files::read(path.as_bytes()).ok().map(|name| trimmed(&name))
}

/// The text up to a closing zero or line end.
fn trimmed(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0 || byte == b'\n');
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}
