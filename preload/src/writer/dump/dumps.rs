//! Dumps: gperftools' heap files, written on gperftools' occasions.
//!
//! The occasions are checked after each event of the ledger, so a dump shows the heap at the very
//! event that called for it. After any dump, all occasions count anew, as in gperftools.

use heapprof_core::{Ledger, Pace};

use crate::os::clock;
use crate::os::diagnostics::notice;
use crate::os::files::UnpublishedFile;
use crate::os::sys::Errno;
use crate::state::settings::Settings;
use crate::state::{counters, shutdown};
use crate::writer::dump::snapshot::{DumpInputs, DumpSnapshot};
use crate::writer::kept_stacks::KeptStack;

/// When to write dumps, and the state of the last one.
pub(crate) struct Dumps {
    pub(crate) base: Vec<u8>,
    /// The number of the last dump.
    sequence: u32,
    every_allocated: u64,
    every_freed: u64,
    every_in_use: u64,
    every_ns: u64,
    last_allocated: u64,
    last_freed: u64,
    high_water: u64,
    /// When the next dump by the clock is due; `u64::MAX` for never.
    next_ns: u64,
    /// True if there is a dump at exit. False if dumps were only requested one by one.
    pub(crate) at_exit: bool,
    failed: bool,
    /// True if there was no time for the last dump.
    has_missed_last: bool,
    current: Option<DumpInProgress>,
}

/// A dump that is being written: a snapshot of the event that called for it, written in chunks
/// while the writer goes on.
struct DumpInProgress {
    snapshot: DumpSnapshot,
    file: UnpublishedFile,
    is_last: bool,
    since_ns: u64,
    written: u64,
}

impl DumpInProgress {
    /// Estimates how long the rest takes at least, with the next dump if this one is not the last.
    fn remaining_ns(&self) -> u64 {
        let whole = self.snapshot.text_bytes as u64;
        let next = if self.is_last { 0 } else { whole };
        let left = whole.saturating_sub(self.written) + next;
        let elapsed_ns = clock::now_ns().saturating_sub(self.since_ns);
        pace().takes_ns(left, self.written, elapsed_ns)
    }
}

/// Returns the measure of a dump's speed, which is trusted after a third of the exit timeout. A
/// shorter measure is wrong in short programs that share a processor: it gives up dumps that have
/// enough time.
fn pace() -> Pace {
    Pace {
        known_after_ns: shutdown::exit_wait_ns() / 3,
    }
}

/// The reason why there is no dump.
enum Failure {
    /// The program ends, and does not wait for it.
    Ending,
    /// An error, as text.
    Error(String),
}

impl Dumps {
    pub(crate) fn new(base: &[u8], settings: &Settings, now_ns: u64) -> Dumps {
        let every_ns = settings.dump_seconds * 1_000_000_000;
        Dumps {
            every_allocated: settings.dump_allocated,
            every_freed: settings.dump_freed,
            every_in_use: settings.dump_in_use,
            every_ns,
            next_ns: match every_ns {
                0 => u64::MAX,
                _ => now_ns.saturating_add(every_ns),
            },
            at_exit: true,
            ..Dumps::on_request(base)
        }
    }

    /// Makes the state for dumps on request only.
    pub(crate) fn on_request(base: &[u8]) -> Dumps {
        Dumps {
            base: base.to_vec(),
            sequence: 0,
            every_allocated: 0,
            every_freed: 0,
            every_in_use: 0,
            every_ns: 0,
            last_allocated: 0,
            last_freed: 0,
            high_water: 0,
            next_ns: u64::MAX,
            at_exit: false,
            failed: false,
            has_missed_last: false,
            current: None,
        }
    }

    /// Returns the reason for a dump if the ledger's last event calls for one.
    #[inline]
    pub(crate) fn due(&self, ledger: &Ledger) -> Option<String> {
        let reached =
            |every: u64, now: u64, last: u64| every > 0 && now >= last.saturating_add(every);
        let allocated = ledger.total().allocated.bytes();
        if reached(self.every_allocated, allocated, self.last_allocated) {
            return Some(format!("{} MB allocated cumulatively", allocated >> 20));
        }
        let freed = ledger.freed().bytes();
        if reached(self.every_freed, freed, self.last_freed) {
            return Some(format!("{} MB freed cumulatively", freed >> 20));
        }
        let in_use = ledger.total().in_use.bytes();
        if self.every_in_use > 0 && in_use > self.high_water.saturating_add(self.every_in_use) {
            return Some(format!("{} MB in use", in_use >> 20));
        }
        None
    }

    /// Returns when the clock calls for the next dump.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Returns true if a dump is being written: the caller must call
    /// [`write_chunk`](Self::write_chunk).
    pub(crate) fn is_writing(&self) -> bool {
        self.current.is_some()
    }

    /// Begins a dump of this moment. `expected_bytes` is the approximate length of its text.
    /// `is_last`: the program ends. If there is no time for two dumps, the other ones are abandoned
    /// for this one.
    ///
    /// # Errors
    /// Why there is no dump. It has been reported.
    pub(crate) fn begin(
        &mut self,
        why: &str,
        expected_bytes: u64,
        inputs: DumpInputs<'_>,
        now_ns: u64,
        is_last: bool,
    ) -> Result<(), String> {
        self.last_allocated = inputs.ledger.total().allocated.bytes();
        self.last_freed = inputs.ledger.freed().bytes();
        let in_use = inputs.ledger.total().in_use.bytes();
        self.high_water = self.high_water.max(in_use);
        if self.every_ns > 0 {
            self.next_ns = now_ns.saturating_add(self.every_ns);
        }
        let dumps = if is_last { 1 } else { 2 };
        let takes_ns = pace().takes_ns(expected_bytes * dumps, 0, 0);
        let taken = (!shutdown::is_too_late_for(takes_ns))
            .then(|| DumpSnapshot::take(why, inputs, || !shutdown::is_too_late_for(0)));
        let Some(snapshot) = taken.flatten() else {
            return Err(self.count_loss(Failure::Ending, is_last));
        };
        match self.create() {
            Ok(file) => {
                self.current = Some(DumpInProgress {
                    snapshot,
                    file,
                    is_last,
                    since_ns: clock::now_ns(),
                    written: 0,
                });
                Ok(())
            }
            Err(errno) => Err(self.count_loss(self.cannot_write(&errno), is_last)),
        }
    }

    /// Writes the next chunk. After the last chunk it returns the dump's path, or why there is
    /// none, which has been reported.
    pub(crate) fn write_chunk(
        &mut self,
        stacks: &[Option<KeptStack>],
    ) -> Option<Result<String, String>> {
        let current = self.current.as_mut()?;
        let is_last = current.is_last;
        let failure = if shutdown::is_too_late_for(current.remaining_ns()) {
            Failure::Ending
        } else if let Some(chunk) = current.snapshot.next_chunk(stacks) {
            current.written += chunk.len() as u64;
            match current.file.append(chunk) {
                Ok(()) => return None,
                Err(error) => self.cannot_write(&error),
            }
        } else {
            match self.publish() {
                Ok(path) => {
                    self.current = None;
                    self.failed = false;
                    counters::DUMPS_WRITTEN.add(1);
                    return Some(Ok(path));
                }
                Err(errno) => self.cannot_write(&errno),
            }
        };
        self.abandon();
        Some(Err(self.count_loss(failure, is_last)))
    }

    /// Returns true if there was no time for the last dump.
    pub(crate) fn has_missed_last(&self) -> bool {
        self.has_missed_last
    }

    /// Abandons the dump that is being written, and deletes its file. The next one may have its
    /// number.
    pub(crate) fn abandon(&mut self) {
        if self.current.take().is_some() {
            self.sequence -= 1;
        }
    }

    fn path(&self) -> Vec<u8> {
        [
            &self.base[..],
            format!(".{:04}.heap", self.sequence).as_bytes(),
        ]
        .concat()
    }

    /// Makes the file of the next dump.
    fn create(&mut self) -> Result<UnpublishedFile, Errno> {
        loop {
            self.sequence += 1;
            match UnpublishedFile::create(&self.path()) {
                // The file belongs to a process that was killed, and had our process id.
                Err(Errno(libc::EEXIST)) if self.sequence < 9999 => {}
                made => return made,
            }
        }
    }

    /// Gives the file its name, which is returned.
    fn publish(&mut self) -> Result<String, Errno> {
        loop {
            let path = self.path();
            let Some(current) = &mut self.current else {
                return Err(Errno(libc::ENOENT));
            };
            match current.file.publish(&path) {
                Ok(()) => return Ok(String::from_utf8_lossy(&path).into_owned()),
                // The file belongs to another program: keep it, and take the next number.
                Err(Errno(libc::EEXIST)) if self.sequence < 9999 => self.sequence += 1,
                Err(errno) => return Err(errno),
            }
        }
    }

    fn cannot_write(&self, error: &dyn std::fmt::Display) -> Failure {
        let path = self.path();
        Failure::Error(format!(
            "cannot write {}: {error}",
            String::from_utf8_lossy(&path)
        ))
    }

    /// Counts a dump that there will not be. Returns the reason.
    fn count_loss(&mut self, failure: Failure, is_last: bool) -> String {
        match failure {
            Failure::Ending => {
                counters::LOST_DUMPS.add(1);
                self.has_missed_last |= is_last;
                "the program is ending, and does not wait for it".to_owned()
            }
            Failure::Error(words) => {
                counters::LOST_DUMPS.add(1);
                if !self.failed {
                    notice!("{words}; the program runs on, later dumps are tried");
                }
                self.failed = true;
                words
            }
        }
    }
}
