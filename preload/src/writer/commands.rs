//! Commands: requests to the writer, by `heapprof ctl` on the control page, and by the C API.
//!
//! A dump and a reading of pages need the account of the blocks in use. If nothing needed it
//! before, the first such request makes it from the log (`replay.rs`).

use heapprof_core::RateLimit;

use super::Writer;
use crate::os::{clock, files, sys};
use crate::recording::events::{self, NoteKind};
use crate::recording::request_word::{self, QUEUED_REQUEST};
use crate::recording::requests::{Request, RequestKind};
use crate::recording::session::Session;
use crate::state::settings::MAX_INTERVAL;
use crate::state::{counters, interval, shutdown};
use crate::writer::dump::dumps::Dumps;
use crate::writer::dump::snapshot::{DumpInputs, DumpSnapshot};
use crate::writer::memory_readings::Cause;

/// Dumps that other processes may request at once. Each is a file, and interrupts the writer:
/// beyond these, one is written in each [`DUMP_PERIOD_NS`].
const DUMPS_AT_ONCE: u32 = 5;
const DUMP_PERIOD_NS: u64 = 1_000_000_000;

/// The limit of dumps that other processes may request.
pub(super) fn dump_limit() -> RateLimit {
    RateLimit::new(DUMPS_AT_ONCE, DUMP_PERIOD_NS, clock::now_ns())
}

impl Writer {
    /// Answers all requests.
    #[inline]
    pub(super) fn handle_requests(&mut self, session: &Session) {
        // Before the queue is read: a later request sets it again.
        request_word::take(QUEUED_REQUEST);
        while let Ok(request) = session.requests.1.try_recv() {
            self.drain_all(session); // the answer includes what was allocated before the request
            self.answer(session, request);
        }
        if let Some(command) = session.page.command() {
            self.drain_all(session);
            let answer = self.command(session, &command);
            session
                .page
                .answer(answer.as_deref().map_err(String::as_str));
            sys::futex_wake_shared(&session.page.answered);
        }
    }

    fn answer(&mut self, session: &Session, request: Request) {
        self.is_provisional = false;
        let answer = match &request.kind {
            RequestKind::Dump(reason) => self.dump_on_request(session, reason),
            RequestKind::Profile => self.profile_text(session),
            RequestKind::SetDumpPrefix(prefix) => self.set_dump_prefix(session, prefix),
        };
        request.answer(answer);
    }

    /// Executes `status`, `start`, `stop`, `interval BYTES`, `mark NAME`, `memory`,
    /// `pages [addresses]`, or `dump [REASON]`.
    fn command(&mut self, session: &Session, command: &str) -> Result<String, String> {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        self.is_provisional &= verb == "status";
        match (verb, rest) {
            ("status", "") => Ok(self.status()),
            ("start", "") => Ok(self.set_running(true)),
            ("stop", "") => Ok(self.set_running(false)),
            ("interval", bytes) => self.set_interval(bytes),
            ("mark", name) if name.trim().is_empty() => {
                Err("a marker needs a name, such as: mark deploy".into())
            }
            ("mark", name) => {
                let name_of_marker = events::name_of(name.as_bytes());
                self.note(clock::now_ns(), NoteKind::Marker(name_of_marker));
                self.flush(); // so that the log has it with the answer
                Ok(format!("marked as {name:?}"))
            }
            ("memory", "") => self.read_memory_on_request(session),
            ("pages", "") => self.take_page_reading(session, false),
            ("pages", "addresses") => self.take_page_reading(session, true),
            ("dump", _) if !self.dump_limit.take(clock::now_ns()) => Err(format!(
                "more than {DUMPS_AT_ONCE} dumps were requested; from now on, one a second is written: ask again then"
            )),
            ("dump", "") => self.dump_on_request(session, "asked for by heapprof ctl"),
            ("dump", reason) => self.dump_on_request(session, reason),
            _ => Err(format!(
                "this library ({}) does not know the command {command:?}",
                env!("CARGO_PKG_VERSION")
            )),
        }
    }

    /// Takes a reading of the memory, with all that was allocated before it.
    fn read_memory_on_request(&mut self, session: &Session) -> Result<String, String> {
        self.drain_all(session);
        let reading = self.log_memory(Cause::Request);
        self.flush();
        match reading {
            Some(_) => Ok("the memory was read".into()),
            None => Err("readings are off (HEAPPROF_MEMORY_INTERVAL_MS=0)".into()),
        }
    }

    fn set_running(&mut self, running: bool) -> String {
        let changed = interval::set_running(running);
        if changed {
            self.note_regime();
        }
        let already = if changed { "" } else { "was already " };
        if running {
            format!("{already}recording, {}", interval_in_words())
        } else {
            format!("{already}stopped; frees of recorded blocks are still recorded")
        }
    }

    fn set_interval(&mut self, bytes: &str) -> Result<String, String> {
        let before = interval::in_force();
        let set = bytes.parse().is_ok_and(interval::set_interval);
        if !set {
            return Err(format!(
                "{bytes:?} is not an interval: bytes, from 1 to {}",
                MAX_INTERVAL
            ));
        }
        if interval::in_force() != before {
            self.note_regime();
        }
        Ok(match interval::is_running() {
            true => interval_in_words(),
            false => format!("{}, when it is started", interval_in_words()),
        })
    }

    fn note_regime(&mut self) {
        self.note(clock::now_ns(), NoteKind::Regime(interval::in_force()));
    }

    /// Returns the state as `key: value` lines.
    fn status(&self) -> String {
        let lost = counters::losses();
        let state = match interval::is_running() {
            true => "recording",
            false => "stopped",
        };
        let seconds = self.since_start(clock::now_ns()) as f64 / 1e9;
        let mut lines = vec![
            format!("program: {}", self.output.program),
            format!("state: {state}, {}", interval_in_words()),
        ];
        if self.settings.max_samples_per_sec > 0 {
            lines.push(format!(
                "budget: {} samples a second",
                self.settings.max_samples_per_sec
            ));
        }
        if self.settings.record_over > 0 {
            lines.push(format!(
                "all blocks of at least: {} bytes",
                self.settings.record_over
            ));
        }
        lines.extend([
            format!("running for: {seconds:.1} s"),
            format!(
                "samples: {}, {} of them freed, {lost} losses",
                self.sampled_allocs, self.sampled_frees
            ),
            format!("dumps: {}", counters::DUMPS_WRITTEN.get()),
            format!(
                "log: {}{}",
                self.output.log_path(),
                if self.output.is_log_whole() {
                    ""
                } else {
                    " (incomplete: it could not be written)"
                }
            ),
        ]);
        lines.join("\n")
    }

    fn dump_on_request(&mut self, session: &Session, reason: &str) -> Result<String, String> {
        self.ensure_account(session)?;
        if self.dumps.is_none() {
            self.dumps = Some(Dumps::on_request(&self.output.base));
        }
        let dumped = self.dump_at_once(reason);
        // The answer waits for the pages, too, so that they are those of the dump's moment.
        while self.read_pages(session) {}
        dumped
    }

    fn profile_text(&mut self, session: &Session) -> Result<String, String> {
        self.ensure_account(session)?;
        self.log_modules();
        let comments = self.dump_comments();
        let ledger = self.ledger.as_ref().ok_or("there is no account")?;
        let stacks = &self.kept_stacks[..];
        let inputs = DumpInputs {
            ledger,
            stacks,
            modules: &self.modules,
            unloaded: &self.unloaded,
            comments,
        };
        let taken = DumpSnapshot::take("GetHeapProfile", inputs, || !shutdown::is_too_late_for(0));
        let mut snapshot = taken.ok_or("the program is ending")?;
        let mut text = Vec::new();
        while let Some(chunk) = snapshot.next_chunk(stacks) {
            text.extend_from_slice(chunk);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Writes dumps to that prefix, unless a prefix was set before: by the environment, or by the
    /// program, which has not stopped recording meanwhile.
    fn set_dump_prefix(&mut self, session: &Session, prefix: &[u8]) -> Result<String, String> {
        let said = self.dumps.as_ref().is_some_and(|dumps| dumps.at_exit);
        if self.settings.prefix.is_some() || said && interval::is_running() {
            return Ok(String::new());
        }
        self.ensure_account(session)?;
        let _ = self.finish_dump(); // it goes where it was begun
        let mut base = files::folder_or_prefix(prefix);
        if base.ends_with(b"/") {
            // In a folder, dumps have the name of the log.
            let name = self.output.base.rsplit(|&byte| byte == b'/').next();
            base.extend_from_slice(name.unwrap_or_default());
        }
        self.dumps = Some(Dumps::new(&base, &self.settings, clock::now_ns()));
        Ok(String::new())
    }
}

/// Describes the interval in force or, while recording is stopped, the interval that was asked for.
fn interval_in_words() -> String {
    match (interval::in_force(), interval::requested()) {
        (force, asked) if force == 0 || force == asked => interval::describe(asked),
        (force, asked) => format!(
            "{}, which keeps to the budget ({asked} bytes were asked for)",
            interval::describe(force)
        ),
    }
}
