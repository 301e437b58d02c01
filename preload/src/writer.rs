//! Writer: the one thread of ours, which turns events into the log and the dumps.
//!
//! ```text
//!  session ──> writer ──> log (at the latest every FLUSH_NS)
//!                 └─ ledger ──> dumps, checkpoints, readings of pages, if they are wanted
//! ```
//!
//! The writer drains the lanes, then waits for up to [`DOZE_NS`]. A half-full lane ends the wait.
//! After [`IDLE_NS`] without an event it sleeps until an event or a request wakes it, or until work
//! is due, such as a dump by the clock or the idle purge. So an idle process without such work is
//! not woken. The writer takes no signal, and no lock that the program could hold. It counts as
//! inside our code for life, so nothing it does is profiled.
//!
//! | concept | file |
//! | --- | --- |
//! | the thread, and its start with the first sample | `thread.rs`, `session_start.rs` |
//! | events in one order, and their records | `event_source.rs`, `intake.rs` |
//! | the log and the dumps | `log/`, `dump/`, `codes.rs`, `kept_stacks.rs`, `totals.rs` |
//! | the program's mappings | `mapped_memory.rs` |
//! | readings of the process's memory | `memory_readings.rs`, `memory_detail.rs`, `heap_pages.rs` |
//! | the memory limit that is used most | `limit_watch.rs` |
//! | readings of the pages of sampled blocks | `page_readings.rs` |
//! | requests to the writer | `commands.rs`, `dump_signal.rs`, `adopt_credentials.rs` |
//! | what was written, read again; a disk that stays full | `replay.rs`, `log_gap.rs` |
//! | attributes that the program publishes | `process_context.rs` |
//! | work while the program is idle, or has ended | `idle_purge.rs`, `last_thread.rs` |
//!
//! May import: os, state, allocator, unwind, recording.
//!
//! Not here: the hooks, and the decision that a block is sampled.

use std::sync::atomic::Ordering;

use heapprof_core::{Budget, Ledger, NumberMap, RateLimit, Scale};
use heapprof_format::{EndReason, Module, Record};

use crate::allocator;
use crate::os::clock::{self, Clock};
use crate::os::{fd_table, sys};
#[cfg(feature = "attach")]
use crate::recording::attach_block;
use crate::recording::events::{MappingEvent, NoteKind};
use crate::recording::request_word::{
    self, DUMP, END, END_FLUSH, EXEC_FLUSH, FINISH, Rendezvous, SEATS, THREAD_STOP,
};
use crate::recording::session::{ASLEEP, AWAKE, DOZING, Session};
use crate::recording::{byte_count, seats};
#[cfg(feature = "attach")]
use crate::state::phase;
use crate::state::settings::Settings;
use crate::state::{interval, process, shutdown};
use crate::unwind::module_events::ModuleEventNode;
use crate::unwind::{jit_ranges, modules};
use crate::writer::dump::dumps::Dumps;
use crate::writer::event_source::EventSource;
use crate::writer::kept_stacks::KeptStack;
use crate::writer::log::cut_mark;
use crate::writer::log::output::Output;
use crate::writer::log::rotation::Rotation;
use crate::writer::process_context::ReadContext;

pub(crate) mod adopt_credentials;
mod codes;
mod commands;
pub(crate) mod dump;
pub(crate) mod dump_signal;
pub(crate) mod event_source;
mod heap_pages;
mod idle_purge;
mod intake;
pub(crate) mod kept_stacks;
pub(crate) mod last_thread;
mod limit_watch;
pub(crate) mod log;
mod log_gap;
mod mapped_memory;
mod memory_detail;
mod memory_readings;
mod page_readings;
pub(crate) mod process_context;
mod replay;
pub(crate) mod session_start;
mod thread;
mod totals;

use codes::Codes;
use idle_purge::IdlePurge;
use mapped_memory::RecordedMappings;
use memory_readings::{Cause, MemoryReadings};
use page_readings::PageReadings;

pub(crate) use thread::{
    after_fork, end_recording, prepare, progress, restart_thread, share_descriptors, start,
    stop_if_writer, stop_thread, tid,
};
#[cfg(feature = "attach")]
pub(crate) use thread::{renew, set_before_end};

/// The most that the log is behind: SIGKILL loses no more (with the time of one append).
const FLUSH_NS: u64 = 50_000_000;
/// The approximate length of the longest frame.
const FLUSH_BYTES: usize = 256 << 10;
/// The time between two polls while there are events; a half-full queue ends it. A shorter time is
/// of no use: a program with few samples pays most for the polls.
const DOZE_NS: u64 = FLUSH_NS;
/// Without events for that long, the writer sleeps until it is woken.
const IDLE_NS: u64 = 100_000_000;
/// The length of an idle writer's first sleep: see `wait`.
const SETTLE_NS: u64 = 20_000_000;
/// Events between two looks at the clock.
const BATCH: usize = 1024;
/// How often running totals are written. A process that is killed has no newer ones.
const COUNTERS_NS: u64 = 1_000_000_000;

/// The writer's state.
pub(crate) struct Writer {
    output: Output,
    settings: Settings,
    /// The number of each stack, by its hash.
    stacks: NumberMap<u64, u32>,
    /// The hash and number of the last stack, which is often the next one, too.
    last_stack: (u64, u32),
    /// The frames of the stacks, for dumps and checkpoints; empty without those.
    kept_stacks: Vec<Option<KeptStack>>,
    modules: Vec<Module>,
    codes: Codes,
    /// Modules that were unloaded. Stacks may still name them.
    unloaded: Vec<Module>,
    last_module_event: *const ModuleEventNode,
    /// Kept if dumps or regular readings of pages are wanted, or the log rotates, or after the
    /// first request that needs it.
    ledger: Option<Ledger>,
    dumps: Option<Dumps>,
    /// How many dumps other processes may request now.
    dump_limit: RateLimit,
    /// The limit of samples a second that the interval follows.
    budget: Option<Budget>,
    /// Present if the log has a bound, or had a gap.
    rotation: Option<Rotation>,
    /// The bytes that threads reported.
    reported: byte_count::ReportedBytes,
    sampled_allocs: u64,
    sampled_frees: u64,
    /// True if the log was made before there was a sample (before a drop of privileges, or to
    /// listen), and no request has come. Such a log is deleted if there is no sample.
    pub(crate) is_provisional: bool,
    /// True while the process is about to become another program, or to end.
    is_ending: bool,
    frames_walked: u64,
    /// The program's own description, as read last.
    process_context: ReadContext,
    /// The most resident bytes that the counters had.
    most_resident: u64,
    memory: MemoryReadings,
    pages: PageReadings,
    mappings: RecordedMappings,
    /// Changes of the mappings that are polled and may not be delivered yet.
    waiting_mappings: Vec<MappingEvent>,
    /// Changes of the mappings that an account has taken from the queue, for the next poll.
    early_mappings: Vec<MappingEvent>,
    /// The source of events.
    source: EventSource,
    /// Converts ticks of events into times, and into the log's unit.
    clock: Clock,
    scale: Scale,
}

// SAFETY: `last_module_event` points into a list that is never freed; everything else is owned. The
// writer is made in one thread and handed over to another.
unsafe impl Send for Writer {}

impl Writer {
    pub(crate) fn new(output: Output, settings: &Settings) -> Writer {
        let with_dumps = settings.prefix.is_some();
        let budget = (settings.max_samples_per_sec > 0).then(|| {
            Budget::new(
                settings.max_samples_per_sec,
                interval::requested(),
                clock::now_ns(),
            )
        });
        let mut writer = Writer {
            budget,
            dump_limit: commands::dump_limit(),
            dumps: with_dumps.then(|| Dumps::new(&output.base, settings, clock::now_ns())),
            ledger: settings.needs_ledger().then(Ledger::new),
            rotation: (settings.max_log > 0).then(|| Rotation::new(settings, &output)),
            output,
            settings: settings.clone(),
            stacks: NumberMap::default(),
            last_stack: (0, 0),
            kept_stacks: Vec::new(),
            modules: Vec::new(),
            codes: Codes::default(),
            unloaded: Vec::new(),
            last_module_event: std::ptr::null(),
            reported: byte_count::ReportedBytes::default(),
            sampled_allocs: 0,
            sampled_frees: 0,
            is_provisional: false,
            is_ending: false,
            frames_walked: 0,
            process_context: ReadContext::default(),
            most_resident: 0,
            memory: MemoryReadings::new(settings.memory_interval_ms, clock::now_ns()),
            pages: PageReadings::new(settings, clock::now_ns()),
            mappings: RecordedMappings::default(),
            waiting_mappings: Vec::new(),
            early_mappings: Vec::new(),
            source: EventSource::default(),
            clock: Clock::new(),
            scale: Scale::default(),
        };
        if interval::in_force() != settings.interval {
            // Stopped from the start, or changed by the process that this one is a copy of.
            let start_ns = writer.output.start_ns;
            writer.note(start_ns, NoteKind::Regime(interval::in_force()));
        }
        writer
    }

    /// Holds the log open, if our thread has a descriptor table of its own. Called in its thread.
    fn hold_log(&mut self) {
        if fd_table::is_separate() {
            self.output.log_mut().hold();
        }
    }

    /// Returns nanoseconds since the log's start.
    fn since_start(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.output.start_ns)
    }

    /// Appends what is pending to the log, within its bound.
    fn flush(&mut self) {
        match (&mut self.rotation, &self.ledger) {
            (Some(rotation), Some(ledger)) => {
                rotation.make_room(&self.output, ledger);
                self.output.flush(|| rotation.segments.drop_oldest());
            }
            _ => self.output.flush(|| false),
        }
    }

    /// Appends what is pending, and gives up the log if that fails.
    fn flush_last(&mut self) {
        match (&mut self.rotation, &self.ledger) {
            (Some(rotation), Some(ledger)) => {
                rotation.make_room(&self.output, ledger);
                self.output.flush_last(|| rotation.segments.drop_oldest());
            }
            _ => self.output.flush_last(|| false),
        }
    }

    /// Appends frames of the size that suits the bound, and begins a new segment if this one is
    /// full.
    fn rotate_if_due(&mut self, session: &Session) {
        if self.has_full_frame() {
            self.flush();
            self.rotate_if_full(session);
        }
    }

    /// Returns true if the log has a bound, and a frame of the size that suits it is full.
    #[inline]
    fn has_full_frame(&self) -> bool {
        let full = |rotation: &Rotation| rotation.segments.frame_bytes();
        let full = self.rotation.as_ref().map(full);
        full.is_some_and(|full| self.output.encoder.pending() >= full)
    }

    fn rotate_if_full(&mut self, session: &Session) {
        if self.is_ending {
            return; // the process may be another program before a checkpoint is written
        }
        let (Some(rotation), Some(ledger)) = (&mut self.rotation, &self.ledger) else {
            return;
        };
        let is_due = rotation.is_due(&self.output, ledger);
        if !is_due || rotation.is_late(ledger) {
            return;
        }
        self.log_modules();
        self.flush();
        let counters = self.totals();
        let segment = rotation_number(&self.rotation);
        let mut time_ns = 0;
        if let (Some(rotation), Some(ledger)) = (&mut self.rotation, &self.ledger) {
            // As of the newest logged event. Later events may have happened long before now, and
            // have their own times.
            time_ns = rotation.checkpoint_state.reached_ns;
            let output = &mut self.output;
            let events = (&mut self.source, session);
            rotation.rotate(
                output,
                ledger,
                &self.kept_stacks,
                &counters,
                events,
                time_ns,
            );
        }
        if rotation_number(&self.rotation) != segment {
            self.log_all_mappings(time_ns);
        }
        if interval::in_force() != self.settings.interval {
            // The segment's first record has the interval of the settings.
            self.output.encoder.record(&Record::Regime {
                time_ns,
                interval: interval::in_force(),
                by_budget: interval::is_raised(),
            });
        }
        self.replay_deferred(session);
    }

    /// Adds to the coarse history of a log that rotates, if that is due.
    fn add_to_history(&mut self, session: &Session) {
        if let (Some(rotation), Some(ledger)) = (&mut self.rotation, &self.ledger) {
            rotation.add_to_history(ledger, (&mut self.source, session));
            self.replay_deferred(session);
        }
    }

    /// Logs the events that were deferred.
    fn replay_deferred(&mut self, session: &Session) {
        while let Some(event) = self
            .rotation
            .as_mut()
            .and_then(|rotation| rotation.next_deferred(&mut self.source, session))
        {
            self.event(event);
            if self.output.encoder.pending() >= FLUSH_BYTES {
                self.flush();
            }
        }
    }

    /// Writes the remaining events, the last dump, and the log's end.
    pub(crate) fn finish(&mut self, session: Option<&Session>, reason: EndReason) {
        shutdown::ensure_begun();
        if let Some(session) = session {
            self.drain_last(session);
            self.end_gap_now(session);
        }
        dump_signal::check_disposition();
        if self.is_provisional
            && self.sampled_allocs + self.sampled_frees == 0
            && !process::has_forked()
        {
            if !self.output.delete_unused_log() {
                self.end_log(None, reason);
            }
            return;
        }
        self.log_modules();
        self.finish_page_reading();
        if self.dumps.as_ref().is_some_and(|dumps| dumps.at_exit) {
            // The log comes first, because it is quick: it is whole even if there is no time for
            // the dump.
            self.end_log(None, reason);
            let _ = self.finish_dump();
            self.last_dump();
        }
        self.end_log(None, reason);
        if self.settings.verbose {
            self.report_summary();
        }
    }

    /// Writes the remaining events and the log's end, without a dump.
    pub(crate) fn end_log(&mut self, session: Option<&Session>, reason: EndReason) {
        if let Some(dumps) = self.dumps.as_mut().filter(|_| reason == EndReason::GaveUp) {
            dumps.abandon();
        }
        if let Some(session) = session {
            self.drain_last(session);
        }
        self.output.log_notices();
        self.log_pending_mappings();
        self.log_last_memory();
        let now_ns = clock::now_ns();
        self.log_counters(now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::End { time_ns, reason });
        self.flush_last();
        if self.output.is_log_whole() {
            cut_mark::is_not_needed();
        }
    }

    /// Ends the log of a process that is about to become another program, or to end, but may go on.
    pub(crate) fn end_log_provisionally(&mut self, reason: EndReason) {
        self.output.log_notices();
        self.log_pending_mappings();
        self.log_last_memory();
        let now_ns = clock::now_ns();
        self.log_counters(now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::End { time_ns, reason });
        self.flush();
    }

    /// Writes all pending events, because the process is about to become another program, or to
    /// end. If that fails and the process goes on, the log goes on, too.
    fn flush_before(&mut self, session: &Session, reason: EndReason, request: &Rendezvous) {
        if !request.take() {
            return;
        }
        self.is_ending = true;
        self.drain_last(session);
        self.is_ending = false;
        self.log_modules();
        self.end_log_provisionally(reason);
        request.tell_served();
    }

    /// Runs the writer until the end. Returns true if the thread must only end until
    /// [`restart_thread`].
    fn run(&mut self, session: &Session) -> bool {
        let start = clock::now_ns();
        let (mut last_event, mut last_flush, mut last_counters) = (start, start, start);
        let mut logged_count = 0;
        let mut last_maintenance = 0;
        let mut jit_range_scans = jit_ranges::ScanSchedule::new();
        let mut idle_purge = IdlePurge::Inactive;
        self.log_modules();
        while !request_word::is_asked(FINISH | END) {
            if allocator::is_short() {
                return false;
            }
            #[cfg(feature = "attach")]
            if attach_block::is_end_asked() {
                phase::end();
                session.page.close(); // a process that asks from here on gets an answer at once
                request_word::post(END);
                continue;
            }
            if THREAD_STOP.is_asked() {
                self.drain_all(session);
                self.log_modules();
                self.flush();
                return true;
            }
            adopt_credentials::adopt_if_asked();
            let drained = self.drain(session, BATCH);
            let now = clock::now_ns();
            if drained > 0 {
                last_event = now;
                idle_purge = IdlePurge::Inactive;
            }
            self.flush_before(session, EndReason::Exec, &EXEC_FLUSH);
            self.flush_before(session, EndReason::Exit, &END_FLUSH);
            if request_word::take(DUMP) {
                self.drain_all(session); // the dump includes what was allocated before the request
                self.begin_dump("signal", Cause::Dump);
            }
            self.handle_requests(session);
            self.adapt_interval(now);
            if self
                .dumps
                .as_ref()
                .is_some_and(|dumps| now >= dumps.next_ns())
            {
                self.drain_all(session);
                self.begin_dump("time interval", Cause::Frequent);
            }
            let pending = self.output.pending();
            let mut counters_due = match self.total_count() == logged_count {
                true => u64::MAX,
                false => last_counters + COUNTERS_NS,
            };
            let something = pending > 0 || now >= counters_due;
            if pending >= FLUSH_BYTES || something && now.saturating_sub(last_flush) >= FLUSH_NS {
                if now >= counters_due {
                    logged_count = self.total_count();
                    self.log_counters(now);
                    last_counters = now;
                    counters_due = u64::MAX;
                }
                if self.memory.is_due(now) {
                    self.log_regular_memory(session);
                }
                if self.pages.is_due(now) {
                    self.pages.want_within_share(now);
                }
                self.flush();
                self.add_to_history(session);
                self.rotate_if_full(session);
                last_flush = now;
            }
            self.begin_gap_if_overfull(session);
            if request_word::take(SEATS) {
                seats::handle_requests();
            }
            if now.saturating_sub(last_maintenance) >= DOZE_NS {
                seats::maintain();
                modules::free_retired(seats::may_be_reading);
                dump_signal::check_disposition();
                last_maintenance = now;
            }
            let is_scanning = jit_range_scans.scan_if_due(now);
            if self.read_pages(session) {
                continue;
            }
            if self.is_dumping() {
                let _ = self.write_dump_chunk(); // the failure has been reported
                continue;
            }
            if drained == BATCH || is_scanning {
                continue; // there is more
            }
            if drained == 0 && last_thread::is_program_gone() {
                return false;
            }
            let idle = now.saturating_sub(last_event) >= IDLE_NS && self.output.pending() == 0;
            if idle && idle_purge.run_if_due(now) {
                self.log_memory(Cause::Regular);
                self.flush();
            }
            let next_due_ns = match idle {
                true => counters_due.min(idle_purge.due_ns()),
                // If idle, it waits for the next walk, whose sample wakes the writer like any
                // other.
                false => jit_range_scans.due_ns(),
            };
            self.wait(session, now, idle, next_due_ns);
        }
        false
    }

    /// Makes the interval follow the load.
    #[inline]
    fn adapt_interval(&mut self, now_ns: u64) {
        let Some(budget) = &mut self.budget else {
            return;
        };
        let before = budget.interval();
        budget.ask(interval::requested(), now_ns);
        if interval::is_running() {
            budget.adapt(now_ns);
        } else {
            budget.rest(now_ns);
        }
        let interval = budget.interval();
        if interval != before {
            let was_in_force = interval::in_force();
            interval::raise(if interval > interval::requested() {
                interval
            } else {
                0
            });
            if interval::in_force() != was_in_force {
                let time_ns = self.since_start(now_ns);
                self.log_regime(time_ns, interval::in_force(), true);
            }
        }
    }

    /// Waits for events for a moment. If idle, it waits until one comes, or until work is due.
    fn wait(&self, session: &Session, now_ns: u64, idle: bool, next_due_ns: u64) {
        let (state, timeout) = if idle && last_thread::main_may_have_ended() {
            (ASLEEP, Some(IDLE_NS))
        } else if idle {
            let dump = self.dumps.as_ref().map_or(u64::MAX, Dumps::next_ns);
            let budget = self.budget.as_ref().filter(|_| interval::is_running());
            let budget = budget.and_then(Budget::due_ns);
            let due = dump.min(budget.unwrap_or(u64::MAX)).min(next_due_ns);
            (
                ASLEEP,
                (due != u64::MAX).then(|| due.saturating_sub(now_ns).max(1)),
            )
        } else {
            let due = next_due_ns.saturating_sub(now_ns).max(1);
            (DOZING, Some(due.min(DOZE_NS)))
        };
        // A thread that sent an event before it could see the state did not wake us.
        let has_work = || {
            request_word::is_any_asked()
                || session.page.is_asked()
                || idle && !self.source.is_empty(session)
        };
        session.writer.store(state, Ordering::SeqCst);
        // A hook puts an event into its lane and then reads the state, with no barrier between,
        // which would cost more than the rest of sending. So it may see the writer awake while its
        // event is still on the way to this processor. That takes less than a microsecond (a
        // processor's stores wait for its cache, and for nothing else). So the first sleep is a
        // short one, and finds every event that was on the way before it.
        let short = timeout.map_or(SETTLE_NS, |timeout| timeout.min(SETTLE_NS));
        if state == ASLEEP && !has_work() {
            sys::futex_wait_shared(session.writer, state, Some(short));
        }
        if !has_work() {
            let timeout = match state {
                ASLEEP => timeout.map(|timeout| timeout - short),
                _ => timeout,
            };
            // Returns at once if the state has changed meanwhile.
            sys::futex_wait_shared(session.writer, state, timeout);
        }
        session.writer.store(AWAKE, Ordering::SeqCst);
    }
}

/// Returns the number of the newest segment, if the log has a bound.
fn rotation_number(rotation: &Option<Rotation>) -> Option<u32> {
    rotation.as_ref().map(|rotation| rotation.segments.number)
}
