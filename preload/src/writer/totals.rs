//! Totals: the writer's running totals, the dumps, and the summary at the end.

use std::sync::atomic::Ordering;

use heapprof_core::Ledger;
use heapprof_format::{Counter, MemoryField, MemoryReading, Record};

use super::Writer;
use super::memory_readings::Cause;
use crate::allocator;
use crate::os::{clock, procfs, sys};
use crate::recording::events::NoteKind;
use crate::recording::session::{self, Session};
use crate::state::{counters, shutdown};
use crate::writer::dump::dumps::Dumps;
use crate::writer::dump::snapshot::{self, DumpInputs};
use crate::writer::mapped_memory::ranges_of;

impl Writer {
    pub(super) fn totals(&mut self) -> Vec<(Counter, u64)> {
        let resident = procfs::resident_bytes().unwrap_or(0);
        let highest = resident.max(self.memory.most_resident());
        self.most_resident = self.most_resident.max(highest);
        let mut totals = vec![
            (Counter::SampledAllocs, self.sampled_allocs),
            (Counter::SampledFrees, self.sampled_frees),
            (Counter::CountedBytes, self.reported.bytes()),
            (Counter::CountedThreads, self.reported.threads()),
        ];
        if resident > 0 {
            totals.push((Counter::ResidentBytes, resident));
            totals.push((Counter::MostResidentBytes, self.most_resident));
        }
        totals.extend(counters::all().filter(|&(_, value)| value > 0));
        totals
    }

    /// Returns a number that grows with each total of the writer, and with each loss.
    pub(super) fn total_count(&self) -> u64 {
        self.sampled_allocs + self.sampled_frees + counters::losses()
    }

    pub(super) fn log_counters(&mut self, now_ns: u64) {
        self.output.log_title();
        let values = self.totals();
        let time_ns = self.since_start(now_ns);
        self.output
            .encoder
            .record(&Record::Counters { time_ns, values });
    }

    /// Logs a reading of the process's memory.
    pub(super) fn log_memory(&mut self, cause: Cause) -> Option<MemoryReading> {
        let start_ns = self.output.start_ns;
        let (memory, modules) = (&mut self.memory, &self.modules);
        // The source may be delivering, so the queue is taken beside it.
        let early = &mut self.early_mappings;
        let mut waiting = || {
            if let Some(session) = session::current() {
                early.extend(std::iter::from_fn(|| session.next_mapping()));
            }
            ranges_of(self.waiting_mappings.iter().chain(early.iter()))
        };
        let recorded = &self.mappings;
        let (reading, mapped) = memory.take(cause, modules, recorded, &mut waiting, start_ns)?;
        let record = Record::Memory(Box::new(reading));
        self.output.encoder.record(&record);
        if let (Some(rotation), Some(resident)) =
            (&mut self.rotation, reading.get(MemoryField::Resident))
        {
            rotation.checkpoint_state.history.resident(resident);
        }
        if let Some(mapped) = mapped {
            self.log_mapped_memory(reading.time_ns, mapped);
        }
        Some(reading)
    }

    /// Logs a regular reading. If a share of a memory limit is crossed, logs a marker, and begins a
    /// dump if dumps are wanted.
    pub(super) fn log_regular_memory(&mut self, session: &Session) {
        // The mappings that the log knows are as new as the kernel's numbers.
        self.drain_all(session);
        let reading = self.log_memory(Cause::Regular);
        let mut alarms = reading.map_or_else(Vec::new, |it| self.memory.limits.alarms(&it));
        let Some(alarm) = alarms.pop() else {
            return;
        };
        for passed in alarms {
            self.note(clock::now_ns(), NoteKind::Marker(passed));
        }
        if self.dumps.is_some() && self.ledger.is_some() {
            self.drain_all(session); // the dump includes what was allocated before the alarm
            self.begin_dump(&alarm, Cause::Dump);
        } else {
            self.note(clock::now_ns(), NoteKind::Marker(alarm));
        }
    }

    /// Logs the reading at the end, with a marker for each share of a limit that growth has passed
    /// since the last reading.
    pub(super) fn log_last_memory(&mut self) {
        let cause = match (self.is_forked_child(), self.sampled_allocs) {
            (true, _) => Cause::EndOfChild,
            (false, 0) => Cause::EndWithoutSamples,
            (false, _) => Cause::End,
        };
        let Some(reading) = self.log_memory(cause) else {
            return;
        };
        let time_ns = reading.time_ns;
        for name in self.memory.limits.alarms(&reading) {
            let marker = Record::Marker { time_ns, name };
            self.output.encoder.record(&marker);
        }
    }

    /// Returns true if the process is a forked child that has executed no program.
    fn is_forked_child(&self) -> bool {
        self.output.start.forked_from != 0
    }

    #[inline]
    pub(super) fn dump_if_due(&mut self) {
        if let (Some(dumps), Some(ledger)) = (&self.dumps, &self.ledger)
            && let Some(why) = dumps.due(ledger)
        {
            self.begin_dump(&why, Cause::Frequent);
        }
    }

    /// Begins a dump, which is written while the writer goes on:
    /// [`write_dump_chunk`](Self::write_dump_chunk). `cause` is that of its reading of the memory.
    #[cold]
    pub(super) fn begin_dump(&mut self, why: &str, cause: Cause) {
        let _ = self.take_dump(why, cause, false); // the failure has been reported
    }

    /// Writes a whole dump. Returns its path, or why there is none.
    #[cold]
    pub(super) fn dump(&mut self, why: &str, is_last: bool) -> Result<String, String> {
        let cause = match is_last && self.is_forked_child() {
            true => Cause::LastDumpOfChild,
            false => Cause::Dump,
        };
        self.take_dump(why, cause, is_last)?;
        self.finish_dump()
    }

    /// Writes a whole dump on request, and first the log's pending records. (They come behind the
    /// dump's marker, whose time is now. A frame that began with the marker could not hold older
    /// events.)
    pub(super) fn dump_at_once(&mut self, why: &str) -> Result<String, String> {
        self.take_dump(why, Cause::Dump, false)?;
        self.flush();
        self.finish_dump()
    }

    /// Takes the snapshot for a dump of this moment.
    #[cold]
    fn take_dump(&mut self, why: &str, cause: Cause, is_last: bool) -> Result<(), String> {
        // two dumps that are due at once are written one after the other
        let _ = self.finish_dump();
        self.log_modules();
        let comments = self.dump_comments();
        let now_ns = clock::now_ns();
        let (Some(dumps), Some(ledger)) = (&mut self.dumps, &self.ledger) else {
            return Err("no dumps are kept".into());
        };
        let lines = ledger.rows().len();
        let bytes = snapshot::expected_bytes(lines, self.stacks.len(), self.frames_walked);
        let inputs = DumpInputs {
            ledger,
            stacks: &self.kept_stacks,
            modules: &self.modules,
            unloaded: &self.unloaded,
            comments,
        };
        let begun = dumps.begin(why, bytes, inputs, now_ns, is_last);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::Marker {
            time_ns,
            name: format!("dump: {why}"),
        });
        self.log_memory(cause);
        self.want_page_reading_of_dump();
        begun
    }

    /// Writes the dump at the end, if there is time for it.
    pub(super) fn last_dump(&mut self) {
        let in_use = self.ledger.as_ref().map_or(0, |l| l.total().in_use.bytes());
        let written = self.dump(&format!("Exiting, {in_use} bytes in use"), true);
        if written.is_ok() || !self.dumps.as_ref().is_some_and(Dumps::has_missed_last) {
            return;
        }
        let instead = if self.output.is_log_whole() {
            format!(
                "; `heapprof export --format gperftools {}` makes it",
                self.output.log_path()
            )
        } else {
            String::new()
        };
        crate::os::diagnostics::notice!(
            "the last dump is skipped: it would delay the program's end by more than {} ms \
             (HEAPPROF_EXIT_WAIT_MS){instead}",
            shutdown::exit_wait_ns() / 1_000_000
        );
    }

    /// Returns true if a dump is being written.
    pub(super) fn is_dumping(&self) -> bool {
        self.dumps.as_ref().is_some_and(Dumps::is_writing)
    }

    /// Writes the next chunk of the dump. After the last chunk it returns the path, or why there is
    /// none.
    pub(super) fn write_dump_chunk(&mut self) -> Option<Result<String, String>> {
        self.dumps.as_mut()?.write_chunk(&self.kept_stacks)
    }

    /// Writes the rest of the dump.
    pub(super) fn finish_dump(&mut self) -> Result<String, String> {
        while self.is_dumping() {
            // No events are taken meanwhile: a waiting hook must see that the writer makes
            // progress.
            if let Some(session) = session::current() {
                session.taken.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(written) = self.write_dump_chunk() {
                return written;
            }
        }
        Err("no dump was begun".into())
    }

    pub(super) fn dump_comments(&mut self) -> Vec<String> {
        // The longest interval: estimates from shorter ones are no less exact.
        let interval = self.ledger.as_ref().and_then(Ledger::longest_interval);
        let interval = interval.unwrap_or(self.settings.interval);
        let mut comments = vec![format!("program: {}", self.output.program)];
        if let Some(name) = &self.output.executed_as {
            comments.push(format!("executed as: {name}"));
        }
        if let Some(library) = allocator::next_library() {
            comments.push(format!("allocator: {}", library.to_string_lossy()));
        }
        if self.settings.is_attached {
            comments.push("attached: blocks from before are not known".to_owned());
        }
        comments.extend([
            format!("command: {}", self.output.args.join(" ")),
            format!("pid: {}", sys::getpid()),
            format!("interval: {interval}"),
            match interval {
                1 => "estimator: none, every allocation was recorded".to_owned(),
                _ => "estimator: each sample of s bytes counts 1/p objects and s/p bytes, \
                      p = 1 - exp(-s/interval)"
                    .to_owned(),
            },
        ]);
        if session::inherited_ids() > 0 {
            comments.push(
                "inherited: what was in use at the fork is missing here; \
                 `heapprof export --format gperftools` of the log has it"
                    .to_owned(),
            );
        }
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
            .kept_stacks
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

    pub(super) fn report_summary(&self) {
        let lost = counters::losses();
        let dumps = counters::DUMPS_WRITTEN.get();
        let dumps_at = self.dumps.as_ref().map(|dumps| &dumps.base);
        let base = String::from_utf8_lossy(dumps_at.unwrap_or(&self.output.base));
        let dumps = match dumps {
            0 => String::new(),
            n => format!(", {n} dumps ({base}.0001.heap …)"),
        };
        crate::os::diagnostics::say!(
            "{} samples, {} of them freed, {} losses; {}{}{dumps}",
            self.sampled_allocs,
            self.sampled_frees,
            lost,
            self.output.log_path(),
            if self.output.is_log_whole() {
                ""
            } else {
                " (incomplete)"
            },
        );
    }
}
