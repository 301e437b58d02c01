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
use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_core::{Ledger, NumberMap};
use heapprof_format::{
    Alloc, Counter, EndReason, Free, Module, Record, Stack, Thread as ThreadRecord,
};

use crate::clock::Timeline;
use crate::counters;
use crate::dumps::{Context, Dumps, KeptStack};
use crate::hook::{self, Phase};
use crate::modules::{self, Notice, NoticeNode};
use crate::output::Output;
use crate::rotation::Rotation;
use crate::session::{ASLEEP, AWAKE, DOZING, Event, FreeEvent, Session};
use crate::settings::Settings;
use crate::{clock, files, health, main_thread, sys, tls, walkers};

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
    dumps: Option<Dumps>,
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
    timeline: Timeline,
}

// SAFETY: `last_notice` points into a list that is never freed; everything else is owned. The
// writer is made in one thread and handed over to another.
unsafe impl Send for Writer {}

impl Writer {
    pub(crate) fn new(output: Output, settings: &Settings) -> Writer {
        let with_dumps = settings.prefix.is_some();
        Writer {
            dumps: with_dumps.then(|| Dumps::new(&output.base, settings, clock::now_ns())),
            ledger: (with_dumps || settings.max_log > 0).then(Ledger::new),
            rotation: (settings.max_log > 0).then(|| Rotation::new(settings.max_log, &output)),
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
            timeline: Timeline::new(),
        }
    }

    /// Nanoseconds since the log's start.
    fn since_start(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.output.start_ns)
    }

    /// Takes up to `limit` events. Returns how many there were.
    fn drain(&mut self, session: &Session, limit: usize) -> usize {
        self.timeline.advance();
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
                let alloc = Alloc {
                    time_ns: self.since_start(self.timeline.ns(at)),
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
                    self.kept.resize_with(number as usize + 1, || None);
                    self.kept[number as usize] = Some(KeptStack {
                        frames: new.frames.clone(),
                        interrupted: new.interrupted.clone(),
                        end: new.end,
                    });
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
            time_ns: self.since_start(self.timeline.ns(free.at)),
            thread: free.thread,
            id: free.id,
        };
        self.output.encoder.free(&record);
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.free(&record);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.free(free.id);
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
                    if self.dumps.is_some() {
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
        while let Some(event) = self
            .rotation
            .as_mut()
            .and_then(|rotation| rotation.set_aside.pop_front())
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
            && let Some(why) = dumps.due(ledger)
        {
            self.dump(&why);
        }
    }

    #[cold]
    fn dump(&mut self, why: &str) {
        self.tell_modules();
        let comments = self.dump_comments();
        let now_ns = clock::now_ns();
        let (Some(dumps), Some(ledger)) = (&mut self.dumps, &self.ledger) else {
            return;
        };
        let context = Context {
            stacks: &self.kept,
            modules: &self.modules,
            gone: &self.gone,
            comments,
        };
        dumps.write(why, ledger, context, now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::Marker {
            time_ns,
            name: format!("dump: {why}"),
        });
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
        if let Some(ledger) = &self.ledger {
            let total = ledger.total();
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
        self.tell_modules();
        if self.dumps.is_some() {
            let in_use = self.ledger.as_ref().map_or(0, |l| l.total().in_use.bytes());
            self.dump(&format!("Exiting, {} bytes in use", in_use));
        }
        let now_ns = clock::now_ns();
        self.tell_counters(now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::End { time_ns, reason });
        self.flush();
        if self.settings.verbose {
            self.say_summary();
        }
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
            if main_thread::has_left() && main_thread::nobody_is_left() {
                return;
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
                self.dump("signal");
            }
            if self
                .dumps
                .as_ref()
                .is_some_and(|dumps| now >= dumps.next_ns())
            {
                self.dump("time interval");
            }
            let pending = self.output.encoder.pending();
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
                last_tended = now;
            }
            if drained == BATCH {
                continue; // there is more
            }
            let idle =
                now.saturating_sub(last_event) >= IDLE_NS && self.output.encoder.pending() == 0;
            self.rest(session, now, idle);
        }
    }

    /// Waits for events: a moment, or when idle until one comes or a dump is due.
    fn rest(&self, session: &Session, now_ns: u64, idle: bool) {
        let (state, timeout) = if idle {
            let due = self.dumps.as_ref().map_or(u64::MAX, Dumps::next_ns);
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
            || session.dumps_asked.load(Ordering::SeqCst) != 0;
        if !something_came {
            sys::futex_wait(&session.writer, state, timeout);
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
        return Ok(());
    }
    let back = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: made above; no thread was started that could have taken it.
    Err(unsafe { Box::from_raw(back) }.writer)
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    tls::current().enter_for_life();
    sys::name_thread(c"heapprof");
    let handover = HANDOVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if handover.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: made by `start`; the swap made it ours.
    let Handover {
        mut writer,
        session,
    } = *unsafe { Box::from_raw(handover) };
    let work = std::panic::AssertUnwindSafe(|| {
        writer.run(session);
        writer.finish(Some(session), EndReason::Exit);
    });
    if std::panic::catch_unwind(work).is_err() {
        hook::give_up("the writer");
    }
    session.finished.store(1, Ordering::Release);
    sys::futex_wake(&session.finished);
    if session.finish.load(Ordering::Acquire) == 0 && main_thread::has_left() {
        // Nobody asked for the end: the program's last thread has left.
        hook::set_phase(Phase::Off);
        main_thread::exit_for_the_last();
    }
    // The writer's memory goes with the process; dropping millions of entries would delay its end.
    std::mem::forget(writer);
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
