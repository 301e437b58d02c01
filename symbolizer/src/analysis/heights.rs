//! Heights: where the curve of bytes in use is highest, in each step of a timeline and in all.
//!
//! A timeline shows who made the highest point of each step. So the log is read once for these
//! points, and once more for what was in use at them. The first reading also tells which groups
//! deserve a curve: what was in use at the peak, and at other records.

use heapprof_core::Fixed;
use heapprof_format::{Event, ReadError, Record};

use crate::analysis::rows::Rows;
use crate::history::temporary::Temporary;
use crate::model::profile::{LogAccount, Profile};
use crate::read::fold::Fold;
use crate::read::labelled::LogPart;
use crate::read::log::RecordSink;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heights {
    /// By step: number of the record behind which the most bytes of the step were in use. It may be
    /// of an earlier step, if the curve falls in this one.
    pub records: Vec<u64>,
    /// Bytes in use of each row when the most were in use at once. If that is before what is kept,
    /// those when the most of what is kept were; by thread, those at the end.
    pub rows_at_peak: Vec<f64>,
    /// Bytes in use of each row behind each of the records that were asked for.
    pub rows_behind: Vec<Vec<f64>>,
}

impl Heights {
    /// Those of a log, or of a part of it, whose whole profile is known, in so many steps. `behind`
    /// are records behind which rows are kept. `progress` is told, now and then, how far reading
    /// is.
    ///
    /// # Errors
    /// As reading the log.
    pub fn of_log<'a>(
        log: impl Into<LogPart<'a>>,
        whole: &Profile,
        steps: usize,
        rows: Rows,
        behind: &[u64],
        mut progress: impl FnMut(u64),
    ) -> Result<Heights, ReadError> {
        // Pasts know as much as there is to know of a peak before the checkpoint. They take more
        // time.
        let needs_pasts = rows == Rows::Whole && whole.run.checkpoint.is_some();
        let fold = Fold::keeping(rows.extras());
        let mut climb = Climb {
            fold: match needs_pasts {
                true => fold.with_pasts(Temporary::default()),
                false => fold,
            },
            steps: Steps::of(whole, steps),
            rows,
            highest: Fixed::default(),
            record: 0,
            records: Vec::new(),
            peak_record: whole
                .peak
                .filter(|peak| !peak.is_gone)
                .map_or(0, |peak| peak.record),
            at_peak: None,
            looks: looks(behind),
            rows_behind: vec![Vec::new(); behind.len()],
        };
        log.into().each_record(&mut progress, &mut climb)?;
        while climb.records.len() < climb.steps.count {
            climb.end_step();
        }
        climb.look();
        let rows_behind = std::mem::take(&mut climb.rows_behind);
        let rows_at_peak = match (needs_pasts, climb.at_peak) {
            (true, _) => {
                let pasts = climb.fold.finish().pasts;
                pasts.iter().map(|past| past.peak.bytes_f64()).collect()
            }
            (false, Some(at_peak)) => at_peak,
            (false, None) => rows.in_use(&climb.fold),
        };
        Ok(Heights {
            records: climb.records,
            rows_at_peak,
            rows_behind,
        })
    }
}

/// Records and their numbers, the last record first.
fn looks(records: &[u64]) -> Vec<(u64, usize)> {
    let records = records.iter().copied();
    let mut looks: Vec<(u64, usize)> = records.zip(0..).collect();
    looks.sort_unstable_by(|a, b| b.cmp(a));
    looks
}

/// The steps of a timeline.
#[derive(Debug, Clone, Copy)]
struct Steps {
    /// How many there are.
    count: usize,
    /// How long each is.
    length_ns: u64,
    /// When the first begins: with the log, or with the part that a log that rotates keeps in
    /// detail.
    from_ns: u64,
}

impl Steps {
    fn of(whole: &Profile, count: usize) -> Steps {
        let count = count.max(1);
        let from_ns = whole.run.checkpoint.map_or(0, |it| it.time_ns);
        let shown_ns = whole.run.duration_ns.saturating_sub(from_ns);
        Steps {
            count,
            length_ns: shown_ns.div_ceil(count as u64).max(1),
            from_ns,
        }
    }

    /// When that step ends. An event at that time belongs to it.
    fn end_ns(self, step: usize) -> u64 {
        (step as u64 + 1)
            .saturating_mul(self.length_ns)
            .saturating_add(self.from_ns)
    }
}

/// A fold that looks for the highest record of each step.
struct Climb {
    fold: Fold,
    steps: Steps,
    rows: Rows,
    /// The most bytes in use in this step, and the record behind which they were.
    highest: Fixed,
    record: u64,
    /// Those records of the steps before this one.
    records: Vec<u64>,
    peak_record: u64,
    at_peak: Option<Vec<f64>>,
    /// Records and numbers of the looks to come, the next one last.
    looks: Vec<(u64, usize)>,
    rows_behind: Vec<Vec<f64>>,
}

impl Climb {
    /// Begins a step: the bytes in use are its highest so far.
    fn begin(&mut self) {
        self.highest = self.fold.ledger().bytes_in_use();
        self.record = self.fold.records();
    }

    #[cold]
    fn end_step(&mut self) {
        self.records.push(self.record);
        self.begin();
    }

    /// Keeps what is in use behind the last record, if that was asked for.
    #[cold]
    fn look(&mut self) {
        while self.has_look()
            && let Some((_, number)) = self.looks.pop()
        {
            self.rows_behind[number] = self.rows.in_use(&self.fold);
        }
    }

    #[inline]
    fn has_look(&self) -> bool {
        let next = self.looks.last();
        next.is_some_and(|(record, _)| *record <= self.fold.records())
    }

    /// Keeps what is in use if it is the most of all.
    fn look_at_peak(&mut self) {
        if self.fold.records() == self.peak_record {
            self.at_peak = Some(self.rows.in_use(&self.fold));
        }
    }
}

impl RecordSink for Climb {
    fn take(&mut self, record: Record) {
        match record {
            Record::Alloc(alloc) => self.take_event(Event::Alloc(alloc)),
            Record::Free(free) => self.take_event(Event::Free(free)),
            other => {
                let was_resuming = self.fold.is_resuming();
                self.fold.record(other);
                if was_resuming && !self.fold.is_resuming() {
                    self.begin();
                    self.look_at_peak();
                }
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        if self.fold.is_resuming() {
            self.fold.event(event);
            // Its end is in a part that is damaged.
            if !self.fold.is_resuming() {
                self.begin();
            }
            return;
        }
        if self.has_look() {
            self.look();
        }
        while event.time_ns() > self.steps.end_ns(self.records.len()) {
            self.end_step();
        }
        self.fold.event(event);
        let in_use = self.fold.ledger().bytes_in_use();
        if in_use > self.highest {
            self.highest = in_use;
            self.record = self.fold.records();
            self.look_at_peak();
        }
    }

    fn account(&mut self, _: LogAccount) {}
}
