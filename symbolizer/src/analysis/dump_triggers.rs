//! Dump triggers: the rules by which gperftools would have written dumps, applied to a log.
//!
//! They are the rules of the library's own dumps. They are checked after each allocation and free,
//! and each dump resets all of them. The clock is checked at the next event, before it counts, so a
//! dump of 10 s shows the heap at 10 s.

use heapprof_format::{Alloc, Free, ReadError, Record};

use crate::model::profile::{LogAccount, Profile};
use crate::model::special_threads::is_inherited;
use crate::read::fold::Fold;
use crate::read::log::{RecordSink, each_record};

/// When to dump; zero is never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DumpTriggers {
    /// Every so many bytes allocated.
    pub every_allocated: u64,
    /// Every so many bytes freed.
    pub every_freed: u64,
    /// Whenever bytes in use exceed those at the highest dump by so many.
    pub every_in_use: u64,
    /// Every so many nanoseconds.
    pub every_ns: u64,
}

/// Calls `dump` with the profile at each occasion, in order; its `reason` says which it was.
/// Returns what is wrong with the log.
///
/// # Errors
/// When the log cannot be read, or that of `dump`, after which it is not called again.
pub fn dumps_of_log<E: From<ReadError>>(
    bytes: &[u8],
    occasions: DumpTriggers,
    dump: impl FnMut(Profile) -> Result<(), E>,
) -> Result<LogAccount, E> {
    let mut watch = Watch {
        occasions,
        fold: Fold::new(),
        dump,
        last_allocated: 0,
        last_freed: 0,
        high_water: 0,
        has_begun: false,
        next_ns: match occasions.every_ns {
            0 => u64::MAX,
            every => every,
        },
        failed: None,
        account: LogAccount::default(),
    };
    each_record(bytes, &mut |_| {}, &mut watch)?;
    watch.failed.map_or(Ok(watch.account), Err)
}

struct Watch<F, E> {
    occasions: DumpTriggers,
    fold: Fold,
    dump: F,
    last_allocated: u64,
    last_freed: u64,
    high_water: u64,
    /// True if there was an event that is not of before the log's beginning.
    has_begun: bool,
    next_ns: u64,
    failed: Option<E>,
    account: LogAccount,
}

impl<E, F: FnMut(Profile) -> Result<(), E>> Watch<F, E> {
    fn due(&self) -> Option<String> {
        let ledger = self.fold.ledger();
        let reached =
            |every: u64, now: u64, last: u64| every > 0 && now >= last.saturating_add(every);
        let allocated = ledger.total().allocated.bytes();
        if reached(
            self.occasions.every_allocated,
            allocated,
            self.last_allocated,
        ) {
            return Some(format!("{} MB allocated cumulatively", allocated >> 20));
        }
        let freed = ledger.freed().bytes();
        if reached(self.occasions.every_freed, freed, self.last_freed) {
            return Some(format!("{} MB freed cumulatively", freed >> 20));
        }
        let in_use = ledger.total().in_use.bytes();
        let every = self.occasions.every_in_use;
        if every > 0 && in_use > self.high_water.saturating_add(every) {
            return Some(format!("{} MB in use", in_use >> 20));
        }
        None
    }

    /// As if there had been a dump at the beginning of what is kept of a log that rotates, or at a
    /// fork. Those of before that cannot be written, and their occasions are not known.
    fn resume_at(&mut self, time_ns: u64) {
        let ledger = self.fold.ledger();
        self.last_allocated = ledger.total().allocated.bytes();
        self.last_freed = ledger.freed().bytes();
        self.high_water = ledger.total().in_use.bytes();
        if let Some(passed) = time_ns.checked_div(self.occasions.every_ns) {
            self.next_ns = (passed + 1).saturating_mul(self.occasions.every_ns);
        }
    }

    fn write(&mut self, reason: &str, now_ns: u64) {
        let ledger = self.fold.ledger();
        self.last_allocated = ledger.total().allocated.bytes();
        self.last_freed = ledger.freed().bytes();
        self.high_water = self.high_water.max(ledger.total().in_use.bytes());
        if self.occasions.every_ns > 0 {
            self.next_ns = now_ns.saturating_add(self.occasions.every_ns);
        }
        if self.failed.is_none() {
            self.failed = (self.dump)(self.fold.snapshot(reason)).err();
        }
    }
}

impl<E, F: FnMut(Profile) -> Result<(), E>> RecordSink for Watch<F, E> {
    fn take(&mut self, record: Record) {
        let was_resuming = self.fold.is_resuming();
        if was_resuming || matches!(record, Record::Checkpoint(_)) {
            let time_ns = match &record {
                Record::CheckpointEnd { time_ns } => *time_ns,
                // Later than the checkpoint: its end is in a part that is damaged.
                Record::Alloc(Alloc { time_ns, .. }) | Record::Free(Free { time_ns, .. }) => {
                    *time_ns
                }
                _ => 0,
            };
            self.fold.record(record);
            if was_resuming && !self.fold.is_resuming() {
                self.resume_at(time_ns);
            }
            return;
        }
        let time_ns = match &record {
            // Blocks from the parent do not trigger a dump of a forked process.
            Record::Alloc(alloc) if is_inherited(alloc) && !self.has_begun => {
                let time_ns = alloc.time_ns;
                self.fold.record(record);
                return self.resume_at(time_ns);
            }
            Record::Alloc(alloc) => alloc.time_ns,
            Record::Free(free) => free.time_ns,
            Record::End { time_ns, .. } => *time_ns,
            _ => return self.fold.record(record),
        };
        while self.failed.is_none() && time_ns > self.next_ns {
            let due_ns = self.next_ns;
            self.write(
                &format!("{} sec. since the start", due_ns as f64 / 1e9),
                due_ns,
            );
        }
        self.has_begun = true;
        // Nor is it allocated by one that begins among others.
        let inherited = matches!(&record, Record::Alloc(alloc) if is_inherited(alloc));
        let before = self.fold.ledger().total().allocated.bytes();
        self.fold.record(record);
        if inherited {
            let after = self.fold.ledger().total().allocated.bytes();
            self.last_allocated += after.saturating_sub(before);
        }
        if let Some(reason) = self.due() {
            self.write(&reason, time_ns);
        }
    }

    fn account(&mut self, account: LogAccount) {
        self.account = account;
    }
}
