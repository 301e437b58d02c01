//! Resumption: a fold that begins with a checkpoint, and continues as if it had folded all events
//! before it.

use heapprof_core::{Estimate, Fixed, Ledger, SizeClass};
use heapprof_format::{Alloc, Checkpoint, Free, Passed, Record, Sums};

use super::Fold;
use crate::history::End;
use crate::model::peak::Peak;
use crate::model::span::Cut;

/// An estimate as a checkpoint stores it.
pub(crate) fn estimate(sums: &Sums) -> Estimate {
    Estimate::from_bits(sums.samples, sums.fixed)
}

impl Fold {
    /// Returns true if the span, if there is one, counts all from the start of the run.
    pub(super) fn counts_what_was_before(&self) -> bool {
        self.span
            .is_none_or(|span| span.from == Cut::Nothing && span.to != Cut::Nothing)
    }

    pub(super) fn resume(&mut self, checkpoint: Checkpoint) {
        self.passed(checkpoint.time_ns);
        self.resuming = true;
        if let Some(history) = &mut self.history {
            history.begin_at(checkpoint.time_ns);
        }
        if let Some(paired) = &mut self.paired {
            paired.begin_at(checkpoint.time_ns);
        }
        if checkpoint.intervals != (0, 0) {
            self.profile.run.intervals_seen = Some(checkpoint.intervals);
        }
        self.profile.requested = estimate(&checkpoint.requested);
        // Nothing else comes before a checkpoint.
        self.inherited = self.ledger.total().in_use.bytes_fixed();
        self.peak_before(&checkpoint, Fixed::default());
        self.profile.run.checkpoint = Some(checkpoint);
    }

    pub(super) fn resumed(&mut self) {
        self.resuming = false;
        let since_ns = self.profile.run.checkpoint.map_or(0, |it| it.time_ns);
        self.keeper.in_use(true, self.point(since_ns));
        if let Some(history) = &mut self.history {
            history.begun(&self.ledger);
        }
        // Blocks that were not freed up to here were in use beside the most that the process had of
        // its own.
        if let Some(checkpoint) = self.profile.run.checkpoint {
            self.peak_before(&checkpoint, self.inherited);
            // The heap as the checkpoint has it, unless something went within the same microsecond.
            let in_use = self.ledger.total().in_use.bytes_fixed();
            if (self.peak.time_ns, self.peak.bytes) == (checkpoint.time_ns, in_use) {
                self.peak.record = self.records;
                self.peak.is_gone = false;
            }
        }
    }

    /// So much was in use in addition to the checkpoint's peak, which is without what was
    /// inherited.
    fn peak_before(&mut self, checkpoint: &Checkpoint, inherited: Fixed) {
        let bytes = Fixed::from_bits(checkpoint.peak_bytes) + inherited;
        if bytes > self.peak.bytes {
            self.peak = Peak {
                record: self.records,
                time_ns: checkpoint.peak_ns,
                bytes,
                bytes_variance: None,
                is_gone: true,
            };
        }
    }

    pub(super) fn resume_row(&mut self, passed: &Passed) {
        if !self.resuming || !self.counts_what_was_before() {
            return;
        }
        let index = self.stack_in_use(passed.stack, passed.first_ns);
        let freed = estimate(&passed.sums);
        let class = SizeClass(passed.class);
        self.ledger.passed(index, class, &freed);
        if let Some(paired) = &mut self.paired {
            paired.passed(index, &freed);
        }
        self.keeper.passed(index, class, &freed);
    }

    /// A block that came from before the log, and was freed before the checkpoint.
    pub(super) fn resume_free(&mut self, free: &Free) {
        if !self.counts_what_was_before() {
            return;
        }
        if let Some(paired) = &mut self.paired {
            paired.free(free.id, self.records, free.time_ns);
        }
        let in_use = |ledger: &Ledger| ledger.total().in_use.bytes_fixed();
        let before = in_use(&self.ledger);
        self.end_block(free, End::Freed);
        self.inherited -= before - in_use(&self.ledger);
    }

    /// An event that is later than the checkpoint shows that its end was in a part that is damaged.
    pub(super) fn end_checkpoint_before(&mut self, record: &Record) {
        if let Record::Alloc(Alloc { time_ns, .. }) | Record::Free(Free { time_ns, .. }) = record
            && let Some(checkpoint) = &self.profile.run.checkpoint
            && *time_ns > checkpoint.time_ns
        {
            self.resuming = false;
            let remark = "a part of the checkpoint that the log begins with is damaged: blocks may be missing";
            self.profile.account.remarks.push(remark.into());
        }
    }
}
