//! Time before detail: the time of which some of the joined logs have no events.
//!
//! It keeps sums of what was allocated and freed in it, the blocks in use at its end, and what was
//! in use at moments.

use heapprof_core::{Estimate, Fixed, Ledger, NumberMap, SizeClass};
use heapprof_format::{Alloc, Checkpoint, CoarseMoment, Passed, Sums};

use super::member::Member;
use super::past::JoinedPast;
use crate::model::special_threads::is_inherited;
use crate::read::fold::resume::estimate;

/// See the module's text. All numbers and times are the joined log's.
pub(super) struct BeforeDetail {
    /// Its end: the last of the logs' checkpoints.
    pub(super) until_ns: u64,
    segment: u32,
    bytes_before: u64,
    ledger: Ledger,
    in_use: NumberMap<u64, Alloc>,
    /// When each stack was first sampled.
    first_ns: NumberMap<u32, u64>,
    requested: Estimate,
    intervals: Option<(u64, u64)>,
    /// The most bytes that are known to have been in use at once, and when: those of one process
    /// alone, or of those whose detail goes so far back. In truth there may have been more.
    most: (Fixed, u64),
    /// The bytes in use at moments, if all logs know them.
    past: Option<JoinedPast>,
}

impl BeforeDetail {
    /// By the checkpoints of the logs. `None`: all of them have all of their detail.
    pub(super) fn of(members: &[Member<'_>]) -> Option<BeforeDetail> {
        let (mut until_ns, mut segment, mut bytes_before) = (None, 0, 0_u64);
        for member in members {
            if let Some(checkpoint) = member.checkpoint {
                until_ns = until_ns.max(Some(member.joined(checkpoint.time_ns)));
                segment = segment.max(checkpoint.segment);
                bytes_before = bytes_before.saturating_add(checkpoint.bytes_before);
            }
        }
        let until_ns = until_ns?;
        Some(BeforeDetail {
            until_ns,
            segment,
            bytes_before,
            ledger: Ledger::new(),
            in_use: NumberMap::default(),
            first_ns: NumberMap::default(),
            requested: Estimate::default(),
            intervals: None,
            most: (Fixed::default(), 0),
            past: JoinedPast::of(members, until_ns),
        })
    }

    /// Nothing before that time is to come.
    pub(super) fn reach(&mut self, time_ns: u64) {
        if let Some(past) = &mut self.past {
            past.reach(time_ns, &self.ledger);
        }
    }

    /// The own checkpoint of that member begins.
    pub(super) fn checkpoint(
        &mut self,
        index: usize,
        member: &Member<'_>,
        checkpoint: &Checkpoint,
    ) {
        if let Some(past) = &mut self.past {
            let in_use = self.ledger.total().in_use.bytes_fixed();
            past.begin_detail(index, member.joined(checkpoint.time_ns), in_use);
        }
        let peak_ns = member.joined(checkpoint.peak_ns);
        self.had(Fixed::from_bits(checkpoint.peak_bytes), peak_ns);
        self.requested.merge(&estimate(&checkpoint.requested));
        if checkpoint.intervals != (0, 0) {
            self.sampled_under(checkpoint.intervals);
        }
    }

    /// Takes blocks that were allocated and freed before a log's own checkpoint.
    pub(super) fn passed(&mut self, stack: u32, first_ns: u64, passed: &Passed) {
        self.used(stack, first_ns);
        let (class, freed) = (SizeClass(passed.class), estimate(&passed.sums));
        self.ledger.passed(stack, class, &freed);
    }

    /// `from_checkpoint`: a log's own checkpoint says that it is in use, and has counted it.
    pub(super) fn alloc(&mut self, alloc: &Alloc, from_checkpoint: bool) {
        self.used(alloc.stack, alloc.time_ns);
        let (_, weight) = self
            .ledger
            .alloc(alloc.id, alloc.stack, alloc.size, alloc.interval);
        self.in_use.insert(alloc.id, *alloc);
        if !from_checkpoint && !is_inherited(alloc) {
            self.requested.add(&weight.of_counted_bytes(alloc.size));
        }
        self.sampled_under((alloc.interval, alloc.interval));
        if !from_checkpoint {
            self.had(self.ledger.total().in_use.bytes_fixed(), alloc.time_ns);
        }
        if let Some(past) = &mut self.past {
            past.in_use(self.ledger.total().in_use.bytes_fixed());
        }
    }

    fn had(&mut self, bytes: Fixed, time_ns: u64) {
        if bytes > self.most.0 {
            self.most = (bytes, time_ns);
        }
    }

    pub(super) fn free(&mut self, id: u64) {
        self.ledger.free(id);
        self.in_use.remove(&id);
    }

    fn used(&mut self, stack: u32, time_ns: u64) {
        let first_ns = self.first_ns.entry(stack).or_insert(time_ns);
        *first_ns = time_ns.min(*first_ns);
    }

    fn sampled_under(&mut self, (least, most): (u64, u64)) {
        let (so_far_least, so_far_most) = self.intervals.unwrap_or((least, most));
        self.intervals = Some((so_far_least.min(least), so_far_most.max(most)));
    }

    /// The beginning of the joined log's checkpoint.
    pub(super) fn beginning(&self) -> Checkpoint {
        let at_end = (self.ledger.total().in_use.bytes_fixed(), self.until_ns);
        let (bytes, peak_ns) = match self.most.0 > at_end.0 {
            true => self.most,
            false => at_end,
        };
        Checkpoint {
            segment: self.segment,
            time_ns: self.until_ns,
            bytes_before: self.bytes_before,
            peak_ns,
            peak_bytes: bytes.to_bits(),
            intervals: self.intervals.unwrap_or_default(),
            requested: sums(&self.requested),
        }
    }

    /// The stacks that it names.
    pub(super) fn stacks(&self) -> Vec<u32> {
        let of_moments = self.moments().iter().flat_map(|moment| &moment.largest);
        let of_moments = of_moments.map(|(stack, _)| stack);
        let mut stacks: Vec<u32> = self.first_ns.keys().chain(of_moments).copied().collect();
        stacks.sort_unstable();
        stacks.dedup();
        stacks
    }

    /// The bytes in use at moments, in the order of time.
    pub(super) fn moments(&self) -> &[CoarseMoment] {
        self.past.as_ref().map_or(&[], JoinedPast::moments)
    }

    /// Returns what was allocated and freed, a record for each row.
    pub(super) fn passed_rows(&self) -> impl Iterator<Item = Passed> + '_ {
        self.ledger.rows().map(|row| Passed {
            stack: row.stack,
            class: row.class.0,
            first_ns: self.first_ns.get(&row.stack).copied().unwrap_or(0),
            sums: sums(&row.totals.allocated.without(&row.totals.in_use)),
        })
    }

    /// Returns the blocks in use at the end, in the order of time.
    pub(super) fn in_use(&self) -> Vec<Alloc> {
        let mut in_use: Vec<Alloc> = self.in_use.values().copied().collect();
        in_use.sort_unstable_by_key(|alloc| (alloc.time_ns, alloc.id));
        in_use
    }
}

fn sums(estimate: &Estimate) -> Sums {
    Sums {
        samples: estimate.samples,
        fixed: estimate.to_bits(),
    }
}
