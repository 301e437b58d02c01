//! Replay: the account of what is in use, from the records that the process itself has written.
//!
//! The account costs memory for each block in use. It is kept from the start if dumps
//! (`HEAPPROFILE`), regular readings of pages (`HEAPPROF_PAGES`) or addresses
//! (`HEAPPROF_ADDRESSES`) are wanted, or the log has a bound (`HEAPPROF_MAX_LOG`). Otherwise it is
//! made from the log, and kept from then on, when the first request needs it, or when the log needs
//! a checkpoint because the disk stays full.

use std::sync::atomic::Ordering;

use heapprof_core::Ledger;
use heapprof_format::{Module, Reader, Record};

use super::Writer;
use crate::os::files;
use crate::recording::request_word::{self, FINISH};
use crate::recording::session::Session;
use crate::writer::kept_stacks::KeptStack;
use crate::writer::log::checkpoint::CheckpointState;
use crate::writer::log::rotation::Rotation;

/// The size from which a log is not read again inside the program, because that would take seconds.
const MAX_REPLAY_BYTES: usize = 256 << 20;
/// How many records to read between two signs of progress, for hooks that wait for room.
const REPLAY_BATCH: u64 = 16 << 10;

impl Writer {
    /// Makes the account of the blocks in use from the log, unless it is kept already.
    ///
    /// # Errors
    /// In words, if the log cannot be read.
    pub(super) fn ensure_account(&mut self, session: &Session) -> Result<(), String> {
        if self.ledger.is_some() {
            return Ok(());
        }
        self.log_modules();
        self.flush();
        let (ledger, unloaded) = self.replay(session, None)?;
        self.ledger = Some(ledger);
        self.unloaded = unloaded;
        Ok(())
    }

    /// Makes what a checkpoint needs from the log, unless it is kept already. All records are
    /// written, or wait for room.
    ///
    /// # Errors
    /// In words, if the log cannot be read.
    pub(super) fn ensure_rotation(&mut self, session: &Session) -> Result<(), String> {
        if self.rotation.is_some() && self.ledger.is_some() {
            return Ok(());
        }
        let mut rotation = Rotation::without_bound(&self.settings, &self.output);
        let state = Some(&mut rotation.checkpoint_state);
        let (ledger, unloaded) = self.replay(session, state)?;
        if self.ledger.is_none() {
            self.ledger = Some(ledger);
            self.unloaded = unloaded;
        }
        self.rotation = Some(rotation);
        Ok(())
    }

    /// Reads all records again. Returns the account, and the modules that are unloaded.
    fn replay(
        &mut self,
        session: &Session,
        mut state: Option<&mut CheckpointState>,
    ) -> Result<(Ledger, Vec<Module>), String> {
        let path = self.output.log_path();
        if !self.output.is_log_whole() {
            return Err(format!(
                "{path} could not be written, so what is in use is not known"
            ));
        }
        let Some(mut log) = files::head(path.as_bytes(), MAX_REPLAY_BYTES) else {
            return Err(format!("{path} cannot be read again"));
        };
        if log.len() >= MAX_REPLAY_BYTES {
            return Err(format!(
                "{path} is too long to be read inside the program; `heapprof dump` and `heapprof export --at` \
                 make dumps of it, or set HEAPPROFILE from the start"
            ));
        }
        log.extend_from_slice(self.output.waiting());
        let mut reader = Reader::new(&log).map_err(|error| format!("{path}: {error}"))?;
        let mut ledger = Ledger::new();
        let (mut modules, mut unloaded) = (Vec::new(), Vec::new());
        let mut read = 0u64;
        loop {
            let record = match reader.next_record() {
                Ok(None) => break,
                Err(error) => return Err(format!("{path}: {error}")),
                Ok(Some(record)) => record,
            };
            match &record {
                Record::Alloc(alloc) => {
                    ledger.alloc(alloc.id, alloc.stack, alloc.size, alloc.interval);
                }
                Record::Free(free) => {
                    ledger.free(free.id);
                }
                Record::Module(module) => modules.push(module.clone()),
                Record::ModuleGone { module: number, .. } => {
                    unloaded.extend(
                        modules.extract_if(.., |module: &mut Module| module.number == *number),
                    );
                }
                _ => {}
            }
            if let Some(state) = &mut state {
                state.replay(&record, &mut ledger);
            }
            if let Record::Stack(stack) = record {
                let kept = KeptStack {
                    frames: stack.frames.into(),
                    interrupted: stack.interrupted.into(),
                    end: stack.end,
                    labels: stack.labels.into(),
                };
                self.store_stack(stack.number, kept);
            }
            read += 1;
            if read.is_multiple_of(REPLAY_BATCH) {
                session.taken.fetch_add(1, Ordering::Relaxed);
                if request_word::is_asked(FINISH) {
                    return Err("the program is ending".into());
                }
            }
        }
        Ok((ledger, unloaded))
    }
}
