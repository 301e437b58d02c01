//! Timeline: bytes in use and allocated over equal steps of a run, in all and for some sites.

pub(crate) mod companion;
pub(crate) mod mapped_course;
pub(crate) mod memory_moments;

use heapprof_core::{Estimate, Fixed, Totals};
use heapprof_format::{Event, MemoryField, ReadError, Record};

use crate::analysis::rows::Rows;
use crate::analysis::timeline::companion::Companion;
use crate::analysis::timeline::mapped_course::{MappedCourse, MappedSeries};
use crate::analysis::timeline::memory_moments::{MemoryMoment, MemoryMoments};
use crate::model::profile::{LogAccount, Profile};
use crate::model::special_threads::is_inherited;
use crate::read::fold::Fold;
use crate::read::labelled::LogPart;
use crate::read::log::RecordSink;

/// A step. It ends at its time; an event at that time belongs to it. `G` is what is kept of a
/// group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step<G> {
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
    /// Resident bytes at the last reading up to its end, if there is one.
    pub resident: Option<u64>,
    /// The most resident bytes of the readings in it; of one without a reading, those before.
    pub highest_resident: Option<u64>,
    /// By group: behind the record of [`Looks::steps`], or at the step's end.
    pub groups: Vec<G>,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline<G> {
    /// In order; each as long as the others.
    pub steps: Vec<Step<G>>,
    /// Length of a step.
    pub step_ns: u64,
    /// The groups when the first step begins: what a checkpoint told, or was there before the fork.
    pub at_start: Vec<G>,
    /// The groups when the most bytes were in use; none where that is not known any more, or
    /// nothing was ever in use.
    pub at_peak: Option<Vec<G>>,
    /// The groups behind each record of [`Looks::groups`].
    pub looked: Vec<Vec<G>>,
    /// Bytes in use of each row, behind each record of [`Looks::rows`].
    pub rows: Vec<Vec<f64>>,
}

/// The groups whose accounts a timeline has.
#[derive(Debug, Clone, Copy)]
pub struct Groups<'a, F> {
    /// The rows that they are made of.
    pub rows: Rows,
    /// How many there are.
    pub count: usize,
    /// The groups of a row, by its index in the log's whole profile: an `Option`, an array, …
    pub of: F,
    /// When they are looked at.
    pub looks: Looks<'a>,
}

/// Records behind which a timeline looks at groups and rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looks<'a> {
    /// By step, for its groups ([`Heights::records`](crate::Heights::records)); empty for the
    /// steps' ends.
    pub steps: &'a [u64],
    /// For [`Timeline::looked`].
    pub groups: &'a [u64],
    /// For [`Timeline::rows`].
    pub rows: &'a [u64],
}

impl Looks<'_> {
    /// All looks, the last one first.
    fn all(self) -> Vec<(u64, Look)> {
        let behind = |records: &[u64], look: fn(usize) -> Look| -> Vec<(u64, Look)> {
            let records = records.iter().enumerate();
            records.map(|(n, &record)| (record, look(n))).collect()
        };
        let mut all = behind(self.steps, Look::Step);
        all.extend(behind(self.groups, Look::Groups));
        all.extend(behind(self.rows, Look::Rows));
        all.sort_unstable_by(|a, b| b.cmp(a));
        all
    }
}

/// A look: the part of the fold that is kept then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// The groups of that step.
    Step(usize),
    /// The groups of that number.
    Groups(usize),
    /// The rows of that number.
    Rows(usize),
}

/// The timeline of a log, or of a part of it, whose whole profile is known. `keep` gives what is to
/// be kept of a group's account. `progress` is told, now and then, how far reading is.
///
/// # Errors
/// As reading the log.
pub fn timeline_of_log<'a, G, I: IntoIterator<Item = usize>>(
    log: impl Into<LogPart<'a>>,
    whole: &Profile,
    steps: usize,
    groups: Groups<'_, impl Fn(usize) -> I>,
    keep: impl Fn(&Totals) -> G,
    progress: impl FnMut(u64),
) -> Result<Timeline<G>, ReadError> {
    Ok(drawn(log.into(), whole, steps, groups, keep, (), progress)?.0)
}

/// The memory that malloc does not know, at the moments of a timeline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surroundings {
    /// The readings of the memory that are nearest to the moments.
    pub memory: Vec<MemoryMoment>,
    /// The program's mappings. Their moments are the beginning, the ends of the steps, the peak if
    /// it is known, and the records of [`Looks::groups`].
    pub mappings: Vec<MappedSeries>,
}

/// The same timeline, with the memory around the heap. `within_ns` are moments within steps.
///
/// # Errors
/// As reading the log.
pub fn timeline_with_surroundings<'a, G, I: IntoIterator<Item = usize>>(
    log: impl Into<LogPart<'a>>,
    whole: &Profile,
    steps: usize,
    groups: Groups<'_, impl Fn(usize) -> I>,
    within_ns: &[u64],
    keep: impl Fn(&Totals) -> G,
    progress: impl FnMut(u64),
) -> Result<(Timeline<G>, Surroundings), ReadError> {
    let (from_ns, step_ns) = grid(whole, steps);
    let ends = (0..=steps as u64).map(|step| from_ns.saturating_add(step.saturating_mul(step_ns)));
    let peak_ns = whole.peak.map(|peak| peak.time_ns);
    let within = peak_ns.into_iter().chain(within_ns.iter().copied());
    let companions = (
        MemoryMoments::near(ends.chain(within).collect(), whole),
        MappedCourse::over(steps),
    );
    let log = log.into();
    let (timeline, (memory, mappings)) =
        drawn(log, whole, steps, groups, keep, companions, progress)?;
    let surroundings = Surroundings {
        memory: memory.finish(),
        mappings: mappings.finish(),
    };
    Ok((timeline, surroundings))
}

/// The beginning of the first step, and the length of a step. If the log rotated, the steps show
/// the part that is kept in detail.
fn grid(whole: &Profile, steps: usize) -> (u64, u64) {
    let from_ns = whole.run.checkpoint.map_or(0, |c| c.time_ns);
    let shown_ns = whole.run.duration_ns.saturating_sub(from_ns);
    (from_ns, shown_ns.div_ceil(steps.max(1) as u64).max(1))
}

fn drawn<G, I: IntoIterator<Item = usize>, C: Companion>(
    log: LogPart<'_>,
    whole: &Profile,
    steps: usize,
    groups: Groups<'_, impl Fn(usize) -> I>,
    keep: impl Fn(&Totals) -> G,
    companion: C,
    mut progress: impl FnMut(u64),
) -> Result<(Timeline<G>, C), ReadError> {
    let steps = steps.max(1);
    let (from_ns, step_ns) = grid(whole, steps);
    let mut drawing = Drawing {
        fold: Fold::keeping(groups.rows.extras()),
        timeline: Timeline {
            steps: Vec::new(),
            step_ns,
            at_start: Vec::new(),
            at_peak: None,
            looked: groups.looks.groups.iter().map(|_| Vec::new()).collect(),
            rows: vec![Vec::new(); groups.looks.rows.len()],
        },
        peak_record: whole
            .peak
            .filter(|peak| !peak.is_gone)
            .map_or(0, |peak| peak.record),
        from_ns,
        next_end: from_ns.saturating_add(step_ns),
        allocated_before: Estimate::default(),
        highest: Fixed::default(),
        looks: groups.looks.all(),
        of_steps: Vec::new(),
        groups,
        keep,
        grouped: Vec::new(),
        looked_at: 0,
        has_begun: false,
        readings: Vec::new(),
        count: steps,
        last_ns: from_ns,
        companion,
    };
    log.each_record(&mut progress, &mut drawing)?;
    while drawing.timeline.steps.len() < steps {
        drawing.step();
    }
    drawing.look();
    drawing.place_looks();
    drawing.place_readings();
    drawing.companion.end(&drawing.fold);
    Ok((drawing.timeline, drawing.companion))
}

/// Most of the time of a long log goes into looking up blocks, so only the ledger has a map of
/// blocks. The bytes in use of a group are read from its rows, once for each step.
struct Drawing<'a, G, O, K, C> {
    fold: Fold,
    timeline: Timeline<G>,
    /// Number of the record that led to the peak; 0: none did.
    peak_record: u64,
    /// When the first step begins.
    from_ns: u64,
    /// When the step that is drawn ends.
    next_end: u64,
    allocated_before: Estimate,
    highest: Fixed,
    /// The looks to come, the next one last.
    looks: Vec<(u64, Look)>,
    /// The groups that were looked at for steps.
    of_steps: Vec<(usize, Vec<G>)>,
    groups: Groups<'a, O>,
    keep: K,
    /// Rows of the ledger that are in a group, and which that is, of as many as were looked at.
    grouped: Vec<(usize, usize)>,
    looked_at: usize,
    /// True if there was an event that is not of before the first step.
    has_begun: bool,
    /// Time and resident bytes of each reading of the memory, in the order of time. Events that are
    /// older than a reading may come behind it, so it ends no step.
    readings: Vec<(u64, u64)>,
    /// How many steps there are.
    count: usize,
    /// The time of the last event.
    last_ns: u64,
    companion: C,
}

impl<G, I, O, K, C> Drawing<'_, G, O, K, C>
where
    I: IntoIterator<Item = usize>,
    O: Fn(usize) -> I,
    K: Fn(&Totals) -> G,
    C: Companion,
{
    #[cold]
    fn first(&mut self) {
        self.has_begun = true;
        self.timeline.at_start = self.in_groups();
        self.companion.moment(0, self.from_ns, &self.fold);
    }

    #[cold]
    fn step(&mut self) {
        if !self.has_begun {
            self.first();
        }
        let groups = match self.groups.looks.steps {
            [] => self.in_groups(),
            _ => Vec::new(),
        };
        let total = self.fold.ledger().total();
        let allocated = total.allocated.without(&self.allocated_before);
        let in_use = total.in_use.bytes_fixed();
        let step = Step {
            end_ns: self.next_end,
            in_use: in_use.to_f64(),
            in_use_error: total.in_use.bytes_error(),
            highest: self.highest.max(in_use).to_f64(),
            allocated: allocated.bytes_f64(),
            allocated_objects: allocated.objects_f64(),
            resident: None,
            highest_resident: None,
            groups,
        };
        self.allocated_before = total.allocated;
        self.highest = in_use;
        self.timeline.steps.push(step);
        let number = self.timeline.steps.len();
        self.companion.moment(number, self.next_end, &self.fold);
        let steps = number as u64 + 1;
        self.next_end = steps
            .saturating_mul(self.timeline.step_ns)
            .saturating_add(self.from_ns);
    }

    /// Returns true if there is a look that is not behind a record to come.
    #[inline]
    fn has_look(&self) -> bool {
        let next = self.looks.last();
        next.is_some_and(|(record, _)| *record <= self.fold.records())
    }

    /// Looks at what is in use behind the last record.
    #[cold]
    fn look(&mut self) {
        while self.has_look()
            && let Some((_, look)) = self.looks.pop()
        {
            match look {
                Look::Step(step) => {
                    let groups = self.in_groups();
                    self.of_steps.push((step, groups));
                }
                Look::Groups(number) => {
                    self.timeline.looked[number] = self.in_groups();
                    let moment = self.count + usize::from(self.peak_record > 0) + 1 + number;
                    self.companion.moment(moment, self.last_ns, &self.fold);
                }
                Look::Rows(number) => {
                    self.timeline.rows[number] = self.groups.rows.in_use(&self.fold);
                }
            }
        }
    }

    /// Gives each step the groups that were looked at for it.
    fn place_looks(&mut self) {
        for (step, groups) in std::mem::take(&mut self.of_steps) {
            if let Some(step) = self.timeline.steps.get_mut(step) {
                step.groups = groups;
            }
        }
    }

    /// Gives each step the last reading up to its end, and the highest one in it.
    fn place_readings(&mut self) {
        let mut readings = self.readings.iter().peekable();
        let mut last = None;
        for step in &mut self.timeline.steps {
            let mut highest = None;
            while let Some((_, resident)) = readings.next_if(|(ns, _)| *ns <= step.end_ns) {
                last = Some(*resident);
                highest = highest.max(last);
            }
            step.resident = last;
            step.highest_resident = highest.or(last);
        }
    }

    /// Blocks of a checkpoint were in use before the first step, and not allocated in it.
    fn begin(&mut self) {
        let total = self.fold.ledger().total();
        self.allocated_before = total.allocated;
        self.highest = total.in_use.bytes_fixed();
    }

    /// The account so far, by group.
    fn in_groups(&mut self) -> Vec<G> {
        if self.groups.count == 0 {
            return Vec::new();
        }
        let mut groups = vec![Totals::default(); self.groups.count];
        let ledger = self.groups.rows.ledger(&self.fold);
        // Rows come, and never go.
        while ledger.row_at(self.looked_at).is_some() {
            for group in (self.groups.of)(self.looked_at) {
                self.grouped.push((self.looked_at, group));
            }
            self.looked_at += 1;
        }
        for &(index, group) in &self.grouped {
            if let Some(row) = ledger.row_at(index) {
                groups[group].merge(&row.totals);
            }
        }
        groups.iter().map(&self.keep).collect()
    }
}

impl<G, I, O, K, C> RecordSink for Drawing<'_, G, O, K, C>
where
    I: IntoIterator<Item = usize>,
    O: Fn(usize) -> I,
    K: Fn(&Totals) -> G,
    C: Companion,
{
    fn take(&mut self, record: Record) {
        match record {
            Record::Alloc(alloc) => self.take_event(Event::Alloc(alloc)),
            Record::Free(free) => self.take_event(Event::Free(free)),
            other => {
                if let Record::Memory(reading) = &other {
                    let resident = reading.get(MemoryField::Resident);
                    let place = resident.map(|resident| (reading.time_ns, resident));
                    self.readings.extend(place);
                }
                self.companion.record(&other);
                let was_resuming = self.fold.is_resuming();
                self.fold.record(other);
                if was_resuming && !self.fold.is_resuming() {
                    self.begin();
                }
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        if self.fold.is_resuming() {
            self.companion.event(&event, &self.fold);
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
        let time_ns = event.time_ns();
        if !self.has_begun && !matches!(event, Event::Alloc(alloc) if is_inherited(&alloc)) {
            self.first();
        }
        while time_ns > self.next_end {
            self.step();
        }
        self.last_ns = time_ns;
        self.companion.event(&event, &self.fold);
        match event {
            Event::Alloc(alloc) => {
                let inherited = is_inherited(&alloc);
                let before = inherited.then(|| self.fold.ledger().total().allocated);
                self.fold.event(event);
                if let Some(before) = before {
                    // In use before the process, and not allocated by it.
                    let total = self.fold.ledger().total();
                    let inherited = total.allocated.without(&before);
                    self.allocated_before.merge(&inherited);
                }
                self.highest = self.highest.max(self.fold.ledger().bytes_in_use());
                if self.fold.records() == self.peak_record {
                    self.timeline.at_peak = Some(self.in_groups());
                    self.companion.moment(self.count + 1, time_ns, &self.fold);
                }
            }
            Event::Free(_) => self.fold.event(event),
        }
    }

    fn account(&mut self, _: LogAccount) {}
}
