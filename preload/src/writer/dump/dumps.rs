//! The dumps: gperftools' heap files, on gperftools' occasions.
//!
//! The occasions are judged after each event of the ledger, so a dump shows the heap at the very event that
//! called for it. After any dump all of them count anew, as in gperftools.

use heapprof_core::{Ledger, Pace};

use crate::os::clock;
use crate::os::diagnostics::say;
use crate::os::files::Unfinished;
use crate::os::sys::Errno;
use crate::state::settings::Settings;
use crate::state::{counters, shutdown};
use crate::writer::dump::snapshot::{Context, Snapshot};
use crate::writer::kept_stacks::KeptStack;

/// When to dump, and what the last dump was.
pub(crate) struct Dumps {
    pub(crate) base: Vec<u8>,
    /// Number of the last dump.
    sequence: u32,
    every_allocated: u64,
    every_freed: u64,
    every_in_use: u64,
    every_ns: u64,
    last_allocated: u64,
    last_freed: u64,
    high_water: u64,
    /// When the next timed dump is due; `u64::MAX`: never.
    next_ns: u64,
    /// Whether there is one at exit; not when they were only ever asked for one by one.
    pub(crate) at_exit: bool,
    failed: bool,
    /// Whether there was no time for the last one.
    late: bool,
    making: Option<Making>,
}

/// A dump in the making: taken at the event that called for it, and written piece by piece, while the writer goes on.
struct Making {
    snapshot: Snapshot,
    file: Unfinished,
    is_last: bool,
    since_ns: u64,
    written: u64,
}

impl Making {
    /// What is left of it takes at least so long, and if it is not the last one, with that.
    fn takes_ns(&self) -> u64 {
        let whole = self.snapshot.text_bytes as u64;
        let next = if self.is_last { 0 } else { whole };
        let left = whole.saturating_sub(self.written) + next;
        let elapsed_ns = clock::now_ns().saturating_sub(self.since_ns);
        pace().takes_ns(left, self.written, elapsed_ns)
    }
}

/// A third of the time that there is shows a dump's pace. Five milliseconds did not: short programs that shared a processor gave
/// up dumps that they had all the time for.
fn pace() -> Pace {
    Pace {
        known_after_ns: shutdown::patience_ns() / 3,
    }
}

/// Why there is no dump.
enum Trouble {
    /// The program ends, and does not wait for it.
    Ending,
    /// In words.
    Said(String),
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

    /// On no occasion but when asked.
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
            late: false,
            making: None,
        }
    }

    /// Whether the ledger's last event calls for a dump, and why.
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

    /// When the clock calls for the next dump.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether a dump is in the making: [`go_on`](Self::go_on) is to be called.
    pub(crate) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Begins a dump of this moment. `expected_bytes`: of text, nearly. `is_last`: the
    /// program ends; if there is no time for two, the others give way to this one.
    ///
    /// # Errors
    /// Why there is none, which has been said.
    pub(crate) fn begin(
        &mut self,
        why: &str,
        expected_bytes: u64,
        context: Context<'_>,
        now_ns: u64,
        is_last: bool,
    ) -> Result<(), String> {
        self.last_allocated = context.ledger.total().allocated.bytes();
        self.last_freed = context.ledger.freed().bytes();
        let in_use = context.ledger.total().in_use.bytes();
        self.high_water = self.high_water.max(in_use);
        if self.every_ns > 0 {
            self.next_ns = now_ns.saturating_add(self.every_ns);
        }
        let dumps = if is_last { 1 } else { 2 };
        let takes_ns = pace().takes_ns(expected_bytes * dumps, 0, 0);
        let taken = (!shutdown::forbids(takes_ns))
            .then(|| Snapshot::take(why, context, || !shutdown::forbids(0)));
        let Some(snapshot) = taken.flatten() else {
            return Err(self.lost(Trouble::Ending, is_last));
        };
        match self.create() {
            Ok(file) => {
                self.making = Some(Making {
                    snapshot,
                    file,
                    is_last,
                    since_ns: clock::now_ns(),
                    written: 0,
                });
                Ok(())
            }
            Err(errno) => Err(self.lost(self.cannot_write(&errno), is_last)),
        }
    }

    /// Writes the next piece. When that was the last: the dump's path, or why there is none, which has been said.
    pub(crate) fn go_on(&mut self, stacks: &[Option<KeptStack>]) -> Option<Result<String, String>> {
        let making = self.making.as_mut()?;
        let is_last = making.is_last;
        let trouble = if shutdown::forbids(making.takes_ns()) {
            Trouble::Ending
        } else if let Some(piece) = making.snapshot.piece(stacks) {
            making.written += piece.len() as u64;
            match making.file.append(piece) {
                Ok(()) => return None,
                Err(error) => self.cannot_write(&error),
            }
        } else {
            match self.publish() {
                Ok(path) => {
                    self.making = None;
                    self.failed = false;
                    counters::DUMPS_WRITTEN.add(1);
                    return Some(Ok(path));
                }
                Err(errno) => self.cannot_write(&errno),
            }
        };
        self.give_way();
        Some(Err(self.lost(trouble, is_last)))
    }

    /// Whether there was no time for the last one.
    pub(crate) fn is_late(&self) -> bool {
        self.late
    }

    /// What is in the making is left off, and deleted. The next one may have its number.
    pub(crate) fn give_way(&mut self) {
        if self.making.take().is_some() {
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
    fn create(&mut self) -> Result<Unfinished, Errno> {
        loop {
            self.sequence += 1;
            match Unfinished::create(&self.path()) {
                // Of a process that was killed, and had our number.
                Err(Errno(libc::EEXIST)) if self.sequence < 9999 => {}
                made => return made,
            }
        }
    }

    /// Gives it its name, which is returned.
    fn publish(&mut self) -> Result<String, Errno> {
        loop {
            let path = self.path();
            let Some(making) = &mut self.making else {
                return Err(Errno(libc::ENOENT));
            };
            match making.file.publish(&path) {
                Ok(()) => return Ok(String::from_utf8_lossy(&path).into_owned()),
                // Somebody else's file: leave it, take the next number.
                Err(Errno(libc::EEXIST)) if self.sequence < 9999 => self.sequence += 1,
                Err(errno) => return Err(errno),
            }
        }
    }

    fn cannot_write(&self, error: &dyn std::fmt::Display) -> Trouble {
        let path = self.path();
        Trouble::Said(format!(
            "cannot write {}: {error}",
            String::from_utf8_lossy(&path)
        ))
    }

    /// Accounts for a dump that there will not be. Returns why.
    fn lost(&mut self, trouble: Trouble, is_last: bool) -> String {
        match trouble {
            Trouble::Ending => {
                counters::LOST_DUMPS.add(1);
                self.late |= is_last;
                "the program is ending, and does not wait for it".to_owned()
            }
            Trouble::Said(words) => {
                counters::LOST_DUMPS.add(1);
                if !self.failed {
                    say!("{words}; the program runs on, later dumps are tried");
                }
                self.failed = true;
                words
            }
        }
    }
}
