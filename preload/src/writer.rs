//! The writer: one thread of ours that turns events into the log and the dumps.
//!
//! ```text
//!  session ──> writer ──> log (every 50 ms at the latest)
//!                 └─ ledger ──> dumps, when HEAPPROFILE is set; what a bounded log goes on from
//! ```
//!
//! It drains what is there, dozes twenty milliseconds, and after a tenth of a second without events sleeps until an
//! event wakes it: a process that samples nothing is not woken. It takes no lock that the program could
//! hold, no signal, and is inside our code for life, so nothing it does is profiled.

use std::sync::atomic::Ordering;

use heapprof_core::{Budget, Ledger, NumberMap, Scale};
use heapprof_format::{EndReason, Module, Record};

use crate::allocator;
use crate::os::clock::{self, Clock};
use crate::os::{fd_table, sys};
use crate::recording::request_word::{
    self, DUMP, END, END_FLUSH, EXEC_FLUSH, FINISH, LEAVING, Rendezvous, SEATS,
};
use crate::recording::session::{ASLEEP, AWAKE, DOZING, NoteKind, Session};
use crate::recording::{byte_count, seats};
use crate::state::settings::Settings;
use crate::state::{interval, process, shutdown};
use crate::unwind::module_events::NoticeNode;
use crate::unwind::{jit_ranges, modules};
use crate::writer::dump::dumps::Dumps;
use crate::writer::event_source::Inlet;
use crate::writer::kept_stacks::KeptStack;
use crate::writer::log::output::Output;
use crate::writer::log::rotation::Rotation;

pub(crate) mod adopt_credentials;
mod commands;
pub(crate) mod dump;
pub(crate) mod dump_signal;
pub(crate) mod event_source;
mod idle_purge;
mod intake;
pub(crate) mod kept_stacks;
pub(crate) mod last_thread;
pub(crate) mod log;
pub(crate) mod session_start;
mod thread;
mod totals;

use idle_purge::Leisure;

pub(crate) use thread::{
    after_fork, come_back, end, leave, prepare, share_descriptors, start, stop_if_it_is_me, tid,
};

/// The log is at most that old: SIGKILL loses no more (with the time of one append).
const FLUSH_NS: u64 = 50_000_000;
/// A frame is at most about that long.
const FLUSH_BYTES: usize = 256 << 10;
/// Between two looks at the queue while there are events; a queue that is half full ends it. No shorter than what the log may be behind: a look is some tens
/// of microseconds, and in a program that samples seldom it is most of what sampling costs.
const DOZE_NS: u64 = FLUSH_NS;
/// Without events for that long, the writer sleeps until it is woken.
const IDLE_NS: u64 = 100_000_000;
/// The first of an idle writer's sleeps: see `rest`.
const SETTLE_NS: u64 = 20_000_000;
/// Events between two looks at the clock.
const BATCH: usize = 1024;
/// Running totals are written this often, and last that long after what they count: a process that is killed has no others.
const COUNTERS_NS: u64 = 1_000_000_000;

/// The writer's state.
pub(crate) struct Writer {
    output: Output,
    settings: Settings,
    /// Number of each stack, by its hash.
    stacks: NumberMap<u64, u32>,
    /// The hash and number of the last: often the next one's, too.
    last_stack: (u64, u32),
    /// Their frames, for dumps and checkpoints; empty without those.
    kept: Vec<Option<KeptStack>>,
    modules: Vec<Module>,
    /// Modules that were unloaded: stacks may still name them.
    gone: Vec<Module>,
    last_notice: *const NoticeNode,
    /// Kept up when dumps may be asked for, or the log rotates.
    ledger: Option<Ledger>,
    dumps: Option<Dumps>,
    /// Samples a second that the interval is to keep to.
    budget: Option<Budget>,
    /// When the log is to keep within a bound.
    rotation: Option<Rotation>,
    /// What threads counted.
    told: byte_count::ReportedBytes,
    sampled_allocs: u64,
    sampled_frees: u64,
    /// Whether the log was made before there was a sample (`host/privilege_drop.rs`, or to listen), and nobody asked for anything since.
    pub(crate) is_ahead: bool,
    /// The process is about to become another program.
    is_leaving: bool,
    frames_walked: u64,
    /// Where the events come from.
    inlet: Inlet,
    /// When the events were, and the same in the log's unit.
    clock: Clock,
    scale: Scale,
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
                interval::asked(),
                clock::now_ns(),
            )
        });
        let mut writer = Writer {
            budget,
            dumps: with_dumps.then(|| Dumps::new(&output.base, settings, clock::now_ns())),
            ledger: (with_dumps || settings.max_log > 0).then(Ledger::new),
            rotation: (settings.max_log > 0).then(|| Rotation::new(settings.max_log, &output)),
            output,
            settings: settings.clone(),
            stacks: NumberMap::default(),
            last_stack: (0, 0),
            kept: Vec::new(),
            modules: Vec::new(),
            gone: Vec::new(),
            last_notice: std::ptr::null(),
            told: byte_count::ReportedBytes::default(),
            sampled_allocs: 0,
            sampled_frees: 0,
            is_ahead: false,
            is_leaving: false,
            frames_walked: 0,
            inlet: Inlet::default(),
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

    /// In its thread: holds the log open, if that is in nobody's way.
    fn hold_log(&mut self) {
        if fd_table::are_own() {
            self.output.log_mut().hold();
        }
    }

    /// Nanoseconds since the log's start.
    fn since_start(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.output.start_ns)
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
        if self.has_full_frame() {
            self.flush();
            self.rotate_if_full(session);
        }
    }

    /// Whether the log has a bound, and a frame of the size that suits it is full.
    #[inline]
    fn has_full_frame(&self) -> bool {
        let full = |rotation: &Rotation| rotation.segments.frame_bytes();
        let full = self.rotation.as_ref().map(full);
        full.is_some_and(|full| self.output.encoder.pending() >= full)
    }

    fn rotate_if_full(&mut self, session: &Session) {
        if self.is_leaving {
            return; // the process may be another program before a checkpoint is written
        }
        let (Some(rotation), Some(ledger)) = (&mut self.rotation, &self.ledger) else {
            return;
        };
        let is_due = rotation.is_due(&self.output, ledger);
        if !is_due || rotation.is_late(ledger) {
            return;
        }
        self.tell_modules();
        self.flush();
        let counters = self.totals();
        let mut time_ns = 0;
        if let (Some(rotation), Some(ledger)) = (&mut self.rotation, &self.ledger) {
            // As of the newest event that is in it: what follows may have happened long before now, and has its own time.
            time_ns = rotation.keeping.reached_ns;
            let output = &mut self.output;
            let events = (&mut self.inlet, session);
            rotation.rotate(output, ledger, &self.kept, &counters, events, time_ns);
        }
        if interval::in_force() != self.settings.interval {
            // The segment's first record tells the interval of the settings.
            self.output.encoder.record(&Record::Regime {
                time_ns,
                interval: interval::in_force(),
                by_budget: interval::is_raised(),
            });
        }
        while let Some(event) = self
            .rotation
            .as_mut()
            .and_then(|rotation| rotation.next_set_aside(&mut self.inlet, session))
        {
            self.event(event);
            if self.output.encoder.pending() >= FLUSH_BYTES {
                self.flush();
            }
        }
    }

    /// Everything that is left, the last dump, and the log's end.
    pub(crate) fn finish(&mut self, session: Option<&Session>, reason: EndReason) {
        shutdown::begin_unless_begun();
        if let Some(session) = session {
            self.drain_last(session);
        }
        dump_signal::look();
        if self.is_ahead && self.sampled_allocs + self.sampled_frees == 0 && !process::has_forked()
        {
            if !self.output.take_back() {
                self.end_log(None, reason);
            }
            return;
        }
        self.tell_modules();
        if self.dumps.as_ref().is_some_and(|dumps| dumps.at_exit) {
            // First what is quick: whatever becomes of the dump, the log is whole.
            self.end_log(None, reason);
            let _ = self.finish_dump();
            self.last_dump();
        }
        self.end_log(None, reason);
        if self.settings.verbose {
            self.say_summary();
        }
    }

    /// Everything that is left, without a dump, and the log's end.
    pub(crate) fn end_log(&mut self, session: Option<&Session>, reason: EndReason) {
        if let Some(dumps) = self.dumps.as_mut().filter(|_| reason == EndReason::GaveUp) {
            dumps.give_way();
        }
        if let Some(session) = session {
            self.drain_last(session);
        }
        let now_ns = clock::now_ns();
        self.tell_counters(now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::End { time_ns, reason });
        self.flush_last();
    }

    /// The last words of a process that is about to become another program, or to end, and may go on.
    pub(crate) fn say_goodbye(&mut self, reason: EndReason) {
        let now_ns = clock::now_ns();
        self.tell_counters(now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::End { time_ns, reason });
        self.flush();
    }

    /// The process is about to become another program, or to end: writes all there is. If that fails and it goes on,
    /// so does the log.
    fn flush_before(&mut self, session: &Session, reason: EndReason, request: &Rendezvous) {
        if !request.take() {
            return;
        }
        self.is_leaving = true;
        self.drain_last(session);
        self.is_leaving = false;
        self.tell_modules();
        self.say_goodbye(reason);
        request.tell_served();
    }

    /// The life of the thread. True: only until [`come_back`].
    fn run(&mut self, session: &Session) -> bool {
        let start = clock::now_ns();
        let (mut last_event, mut last_flush, mut last_counters) = (start, start, start);
        let mut told = 0;
        let mut last_tended = 0;
        let mut made_code = jit_ranges::Looked::not_yet();
        let mut leisure = Leisure::Busy;
        self.tell_modules();
        while !request_word::is_asked(FINISH | END) {
            if allocator::is_short() {
                return false;
            }
            if LEAVING.is_asked() {
                self.drain_all(session);
                self.tell_modules();
                self.flush();
                return true;
            }
            adopt_credentials::serve();
            let drained = self.drain(session, BATCH);
            let now = clock::now_ns();
            if drained > 0 {
                last_event = now;
                leisure = Leisure::Busy;
            }
            self.flush_before(session, EndReason::Exec, &EXEC_FLUSH);
            self.flush_before(session, EndReason::Exit, &END_FLUSH);
            if request_word::take(DUMP) {
                self.drain_all(session); // what was allocated before it was asked belongs into the dump
                self.begin_dump("signal");
            }
            self.serve(session);
            self.keep_to_budget(now);
            if self
                .dumps
                .as_ref()
                .is_some_and(|dumps| now >= dumps.next_ns())
            {
                self.drain_all(session);
                self.begin_dump("time interval");
            }
            let pending = self.output.pending();
            let mut counters_due = match self.counted() == told {
                true => u64::MAX,
                false => last_counters + COUNTERS_NS,
            };
            let something = pending > 0 || now >= counters_due;
            if pending >= FLUSH_BYTES || something && now.saturating_sub(last_flush) >= FLUSH_NS {
                if now >= counters_due {
                    told = self.counted();
                    self.tell_counters(now);
                    last_counters = now;
                    counters_due = u64::MAX;
                }
                self.flush();
                self.rotate_if_full(session);
                last_flush = now;
            }
            if request_word::take(SEATS) {
                seats::handle_requests();
            }
            if now.saturating_sub(last_tended) >= DOZE_NS {
                seats::maintain();
                modules::free_retired(seats::may_be_reading);
                dump_signal::look();
                last_tended = now;
            }
            let is_reading = made_code.tend(now);
            if self.is_dumping() {
                let _ = self.go_on_with_dump(); // what went wrong has been said
                continue;
            }
            if drained == BATCH || is_reading {
                continue; // there is more
            }
            if drained == 0 && last_thread::all_have_left() {
                return false;
            }
            let idle = now.saturating_sub(last_event) >= IDLE_NS && self.output.pending() == 0;
            if idle {
                leisure.tend(now);
            }
            let something_due = match idle {
                true => counters_due.min(leisure.due_ns()),
                false => made_code.due_ns(), // idle, it waits for the next walk: that wakes the writer as any sample does
            };
            self.rest(session, now, idle, something_due);
        }
        false
    }

    /// Has the interval follow the load.
    #[inline]
    fn keep_to_budget(&mut self, now_ns: u64) {
        let Some(budget) = &mut self.budget else {
            return;
        };
        let before = budget.interval();
        budget.ask(interval::asked(), now_ns);
        if interval::is_running() {
            budget.adapt(now_ns);
        } else {
            budget.rest(now_ns);
        }
        let interval = budget.interval();
        if interval != before {
            let was_in_force = interval::in_force();
            interval::raise(if interval > interval::asked() {
                interval
            } else {
                0
            });
            if interval::in_force() != was_in_force {
                let time_ns = self.since_start(now_ns);
                self.tell_regime(time_ns, interval::in_force(), true);
            }
        }
    }

    /// Waits for events: a moment, or when idle until one comes, or a dump or something else is due.
    fn rest(&self, session: &Session, now_ns: u64, idle: bool, something_due: u64) {
        let (state, timeout) = if idle && last_thread::may_leave() {
            (ASLEEP, Some(IDLE_NS))
        } else if idle {
            let dump = self.dumps.as_ref().map_or(u64::MAX, Dumps::next_ns);
            let budget = self.budget.as_ref().filter(|_| interval::is_running());
            let budget = budget.and_then(Budget::due_ns);
            let due = dump.min(budget.unwrap_or(u64::MAX)).min(something_due);
            (
                ASLEEP,
                (due != u64::MAX).then(|| due.saturating_sub(now_ns).max(1)),
            )
        } else {
            let due = something_due.saturating_sub(now_ns).max(1);
            (DOZING, Some(due.min(DOZE_NS)))
        };
        // Whoever sent something before it could see the state did not wake us.
        let something_came = || {
            request_word::is_any_asked()
                || session.page.is_asked()
                || idle && !self.inlet.is_empty(session)
        };
        session.writer.store(state, Ordering::SeqCst);
        // A hook puts an event into its lane and then looks at the state, with no barrier between, which would cost more than
        // all else that it does to send: it may have seen us awake while what it put was on its way to us. That takes less
        // than a microsecond (a processor's stores wait for its cache, not for anybody's leave). So the first sleep is a
        // short one, and whatever was on its way before it is found after it.
        let short = timeout.map_or(SETTLE_NS, |timeout| timeout.min(SETTLE_NS));
        if state == ASLEEP && !something_came() {
            sys::futex_wait_shared(session.writer, state, Some(short));
        }
        if !something_came() {
            let timeout = match state {
                ASLEEP => timeout.map(|timeout| timeout - short),
                _ => timeout,
            };
            sys::futex_wait_shared(session.writer, state, timeout); // returns at once if the state is another by now
        }
        session.writer.store(AWAKE, Ordering::SeqCst);
    }
}
