//! A timeline: in use and allocated, over equal steps of a run, in all and for some sites.

use heapprof_core::{Estimate, NumberMap, Weight};
use heapprof_format::{ReadError, Record};

use crate::detail::Detail;
use crate::fold::Fold;
use crate::heritage::is_inherited;
use crate::log::{Taker, each_record};
use crate::profile::{Account, Profile};

/// A step. It ends at its time; an event at that time belongs to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// When it ends.
    pub end_ns: u64,
    /// Bytes in use at its end.
    pub in_use: f64,
    /// Their standard error.
    pub in_use_error: f64,
    /// The most bytes in use at any time of it.
    pub highest: f64,
    /// Bytes allocated in it.
    pub allocated: f64,
    /// Blocks allocated in it.
    pub allocated_objects: f64,
    /// Bytes in use at its end, by group.
    pub groups: Vec<f64>,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    /// In order; each as long as the others.
    pub steps: Vec<Step>,
    /// Length of a step.
    pub step_ns: u64,
}

/// The timeline of a log whose whole profile is known. `group_of` gives the group of a stack of that
/// profile, if it is in one.
///
/// # Errors
/// As reading the log.
pub fn timeline_of_log(
    bytes: &[u8],
    whole: &Profile,
    steps: usize,
    groups: usize,
    group_of: impl Fn(u32) -> Option<usize>,
) -> Result<Timeline, ReadError> {
    let steps = steps.max(1) as u64;
    // Of a log that rotates, the part that is kept in detail.
    let from_ns = whole.run.checkpoint.map_or(0, |c| c.time_ns);
    let shown_ns = whole.run.duration_ns.saturating_sub(from_ns);
    let step_ns = shown_ns.div_ceil(steps).max(1);
    let mut drawing = Drawing {
        fold: Fold::keeping(Detail::default()),
        timeline: Timeline {
            steps: Vec::new(),
            step_ns,
        },
        from_ns,
        resuming: false,
        allocated_before: Estimate::default(),
        highest: 0.0,
        groups: vec![Estimate::default(); groups],
        live: NumberMap::default(),
        group_of,
    };
    each_record(bytes, &mut |_| {}, &mut drawing)?;
    while drawing.timeline.steps.len() < steps as usize {
        drawing.step();
    }
    Ok(drawing.timeline)
}

struct Drawing<G> {
    fold: Fold,
    timeline: Timeline,
    /// When the first step begins.
    from_ns: u64,
    /// In the checkpoint that the log begins with.
    resuming: bool,
    allocated_before: Estimate,
    highest: f64,
    groups: Vec<Estimate>,
    /// Live blocks of the groups.
    live: NumberMap<u64, (usize, Weight)>,
    group_of: G,
}

impl<G> Drawing<G> {
    fn next_end(&self) -> u64 {
        let steps = self.timeline.steps.len() as u64 + 1;
        steps
            .saturating_mul(self.timeline.step_ns)
            .saturating_add(self.from_ns)
    }

    fn step(&mut self) {
        let total = self.fold.ledger().total();
        let allocated = total.allocated.without(&self.allocated_before);
        let in_use = total.in_use.bytes_f64();
        let step = Step {
            end_ns: self.next_end(),
            in_use,
            in_use_error: total.in_use.bytes_error(),
            highest: self.highest.max(in_use),
            allocated: allocated.bytes_f64(),
            allocated_objects: allocated.objects_f64(),
            groups: self.groups.iter().map(Estimate::bytes_f64).collect(),
        };
        self.allocated_before = total.allocated;
        self.highest = in_use;
        self.timeline.steps.push(step);
    }
}

impl<G: Fn(u32) -> Option<usize>> Taker for Drawing<G> {
    fn take(&mut self, record: Record) {
        let time_ns = match &record {
            Record::Checkpoint(_) => {
                self.resuming = true;
                0
            }
            Record::CheckpointEnd { .. } => {
                self.resuming = false;
                // Before the first step, not in it.
                let total = self.fold.ledger().total();
                self.allocated_before = total.allocated;
                self.highest = total.in_use.bytes_f64();
                0
            }
            _ if self.resuming => 0,
            Record::Alloc(alloc) => alloc.time_ns,
            Record::Free(free) => free.time_ns,
            _ => 0,
        };
        while time_ns > self.next_end() {
            self.step();
        }
        match &record {
            Record::Alloc(alloc) => {
                let stack = self.fold.stack_index(alloc.stack);
                if let Some(group) = stack.and_then(&self.group_of) {
                    let weight = Weight::of(alloc.size, alloc.interval);
                    self.groups[group].add(&weight);
                    self.live.insert(alloc.id, (group, weight));
                }
            }
            Record::Free(free) => {
                if let Some((group, weight)) = self.live.remove(&free.id) {
                    self.groups[group].remove(&weight);
                }
            }
            _ => {}
        }
        let was_inherited = matches!(&record, Record::Alloc(alloc) if is_inherited(alloc));
        self.fold.record(record);
        if was_inherited {
            // In use before the first step, and not allocated in it.
            self.allocated_before = self.fold.ledger().total().allocated;
        }
        let in_use = self.fold.ledger().total().in_use.bytes_f64();
        self.highest = self.highest.max(in_use);
    }

    fn account(&mut self, _: Account) {}
}
