//! Memory readings: numbers of the kernel and the allocator about the process's memory, taken by
//! the writer for the log.
//!
//! The usual fields are read in each reading: `/proc/self/status`, the cgroup and the allocator's
//! counts. The costly fields are a *detail*: the page map is read for stacks, variables, mappings
//! and all places of the allocator's and ours, and the cgroup with the least room is searched for.
//! (Where the kernel tells ranges of touched pages, our own mappings are read each time.)
//! `smaps_rollup`, for which the kernel walks all page tables, is read even more rarely. All are
//! spaced by what they cost (`CpuShare`). The last values are repeated until the next ones. Changes
//! since then are explained by the counts (`DetailBaseline`). If much has no known cause, the
//! allocator's pages are read anew, and the last detail is as if taken with them. Memory without a
//! cause even then is in no field, and the waterfall does not explain it.
//!
//! A process that does nothing is not woken for a reading. A reading takes no memory of the program
//! and waits for no lock of the program.

use std::ops::Range;

use heapprof_core::{CpuShare, DetailBaseline, DetailChanges, RecordedBytes, number_of};
use heapprof_format::{MemoryField as Field, MemoryReading, Module};

use crate::allocator;
use crate::os::pagemap::Pagemap;
use crate::os::sys::{self, PAGE};
use crate::os::{clock, procfs};
use crate::writer::limit_watch::LimitWatch;
use crate::writer::mapped_memory::{MappedTotals, RecordedMappings, Waiting};
use crate::writer::memory_detail::{self, Inputs, ReadPages};

/// Parts of a processor's time of which readings, details, readings of the heap's pages and rollups
/// take one each. With a reading a second, which takes half of its part, they are nine parts in ten
/// thousand, and the usual looks at the limit are the tenth. Readings at markers and at dumps that
/// nobody asks for have a share of their own, as large as that of readings: a regular one just
/// before does not replace them.
const READINGS: u64 = 2_500;
const DETAILS: u64 = 2_500;
const HEAP_READS: u64 = 5_000;
const ROLLUPS: u64 = 10_000;
/// The part of details at markers and at dumps that nobody asks for, which are few as a rule.
const FREQUENT_DETAILS: u64 = 500;
/// The part of resident memory, one in so many, above which a change without a known cause lets the
/// heap's pages be read.
const NOTABLE: u64 = 64;
/// Time on a processor for a page in a rollup, roughly.
const ROLLUP_PAGE_NS: u64 = 100;
/// Time up to which a rollup is taken on request: some 4 GiB of pages.
const SHORT_ROLLUP_NS: u64 = 100_000_000;
/// Resident bytes up to which the first detail may be taken at the end of the process.
const SMALL: u64 = 64 << 20;
/// Resident bytes from which a process without samples has a detail at its end. A build starts
/// thousands of processes below, in which a detail would take a quarter of the time that this
/// library takes to start and to end.
const LITTLE: u64 = 16 << 20;
/// How often a detail is read until the allocator's bytes stay the same meanwhile.
const MOST_ATTEMPTS: u32 = 4;
/// The part of these bytes, one in so many, up to which a change counts as the same.
const MOST_CHANGE: u64 = 64;
/// Bytes up to which a change counts as the same.
const LEAST_CHANGE: u64 = 1 << 20;
/// A forked child that ends earlier has no detail at its end, nor in its last dump: programs may
/// fork one for each request. A program takes longer to start than a detail takes.
const SHORT_NS: u64 = 1_000_000_000;

/// The fields of a detail that are read more rarely than the others.
const ROLLUP: [Field; 3] = [Field::HugePages, Field::LazyFree, Field::Proportional];
/// The fields of a detail.
const DETAIL: [Field; 15] = [
    Field::HugePages,
    Field::LazyFree,
    Field::Proportional,
    Field::Stacks,
    Field::StackThreads,
    Field::OwnMapped,
    Field::OwnShared,
    Field::Variables,
    Field::Mapped,
    Field::MappedUnrecorded,
    Field::DirtyUntouched,
    Field::MuzzyUntouched,
    Field::MetadataUntouched,
    Field::OwnUntouched,
    Field::RetainedTouched,
];

/// The fields of a detail about the allocator's pages, which are read between two details, too.
const HEAP: [Field; 5] = [
    Field::DirtyUntouched,
    Field::MuzzyUntouched,
    Field::MetadataUntouched,
    Field::OwnUntouched,
    Field::RetainedTouched,
];

/// Why a reading is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is time for one.
    Regular,
    /// A marker, or a dump that nobody asks for. Both may come often.
    Frequent,
    /// A dump that is asked for, that of an alarm, or the last one.
    Dump,
    /// The last dump of a forked child.
    LastDumpOfChild,
    /// Somebody asks for one.
    Request,
    /// The end of the log.
    End,
    /// The end of a log without samples.
    EndWithoutSamples,
    /// The end of a forked child's log.
    EndOfChild,
}

/// A reading that is begun: what each reading has.
struct Counts {
    reading: MemoryReading,
    /// Bytes that the allocator counts as used or kept, for the program and for this library.
    used: u64,
    /// Bytes of the main thread's stack.
    main_stack: Option<u64>,
    most_resident: Option<u64>,
}

/// The last detail.
struct LastDetail {
    /// Its fields, with the clock's time.
    fields: MemoryReading,
    /// The heap and the mappings. `None`: they are not known.
    baseline: Option<DetailBaseline>,
    /// Touched pages of this library's own mappings. `None`: the kernel tells them at more cost.
    own: Option<u64>,
    /// Touched pages of our thread's stack, if it is in the allocator's places.
    own_stack: u64,
    /// See [`MappedTotals::over_places`].
    over_places: Vec<Range<u64>>,
}

/// The state between readings.
pub(super) struct MemoryReadings {
    /// Time between two regular readings; 0: no readings but those that somebody asks for.
    interval_ns: u64,
    /// When the last regular reading was due.
    last_ns: u64,
    readings: CpuShare,
    details: CpuShare,
    /// Readings at markers and at dumps that nobody asks for.
    frequent: CpuShare,
    frequent_details: CpuShare,
    heap_reads: CpuShare,
    rollups: CpuShare,
    detail: Option<LastDetail>,
    /// When the session began.
    start_ns: u64,
    pub(super) limits: LimitWatch,
    /// By the kernel's count, which has what was resident between readings.
    most_resident: u64,
}

impl MemoryReadings {
    pub(super) fn new(interval_ms: u64, now_ns: u64) -> MemoryReadings {
        MemoryReadings {
            interval_ns: interval_ms.saturating_mul(1_000_000),
            last_ns: now_ns,
            readings: CpuShare::one_in(READINGS),
            details: CpuShare::one_in(DETAILS),
            frequent: CpuShare::one_in(READINGS),
            frequent_details: CpuShare::one_in(FREQUENT_DETAILS),
            heap_reads: CpuShare::one_in(HEAP_READS),
            rollups: CpuShare::one_in(ROLLUPS),
            detail: None,
            start_ns: now_ns,
            limits: LimitWatch::new(now_ns),
            most_resident: 0,
        }
    }

    /// Returns true if a regular reading is due, or a share of a limit is crossed.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        if self.interval_ns == 0 {
            return false;
        }
        let is_late = now_ns.saturating_sub(self.last_ns) >= self.interval_ns;
        is_late && self.readings.allows(now_ns) || self.limits.is_crossed(now_ns)
    }

    /// Takes a reading, and with a detail the account of the mappings. `recorded` has the stacks of
    /// mappings, and `waiting` the mappings whose stacks come later. `None`: there are no readings,
    /// or this one would cost too much.
    pub(super) fn take(
        &mut self,
        cause: Cause,
        modules: &[Module],
        recorded: &RecordedMappings,
        waiting: Waiting<'_>,
        start_ns: u64,
    ) -> Option<(MemoryReading, Option<MappedTotals>)> {
        let now_ns = clock::now_ns();
        let is_allowed = match cause {
            Cause::Request => true,
            _ if self.interval_ns == 0 => false,
            Cause::Frequent => self.frequent.allows(now_ns),
            _ => true,
        };
        if allocator::is_short() || !is_allowed {
            return None;
        }
        self.last_ns = now_ns;
        let began_ns = clock::thread_ns();
        let mut counts = Counts::read(start_ns);
        self.most_resident = counts.most_resident.unwrap_or(0);
        let mut ran_ns = clock::thread_ns().saturating_sub(began_ns);
        let mut mapped = None;
        let has_detail = self.is_detail_due(cause, &counts.reading, now_ns);
        if has_detail {
            let inputs = Inputs {
                main_stack: counts.main_stack,
                modules,
                recorded,
                waiting,
            };
            (counts, mapped) = self.take_detail(cause, counts, inputs, start_ns);
        }
        let began_ns = clock::thread_ns();
        let own = self.detail.as_ref().and_then(|_| own_touched());
        ran_ns += clock::thread_ns().saturating_sub(began_ns);
        if let Some(mut detail) = self.detail.take() {
            if has_detail {
                detail.own = own;
            }
            let recorded = recorded.bytes_of_mappings();
            counts = self.complete(&mut detail, counts, (own, recorded), start_ns);
            self.detail = Some(detail);
        }
        let began_ns = clock::thread_ns();
        self.limits.read(&mut counts.reading);
        ran_ns += clock::thread_ns().saturating_sub(began_ns);
        let share = match cause {
            Cause::Frequent => &mut self.frequent,
            _ => &mut self.readings,
        };
        share.ran(ran_ns, now_ns);
        Some((counts.reading, mapped))
    }

    /// Sets the fields that have not been read for a reading, by the last detail. If much has
    /// changed since without a known cause, the allocator's pages are read anew. `own` are the
    /// touched pages of our mappings. Returns the counts of the completed reading.
    fn complete(
        &mut self,
        detail: &mut LastDetail,
        mut counts: Counts,
        (own, recorded): (Option<u64>, RecordedBytes),
        start_ns: u64,
    ) -> Counts {
        let grown = |(then, now): (u64, u64)| now.cast_signed() - then.cast_signed();
        let own_grown = detail.own.zip(own).map_or(0, grown);
        let mut since = detail.explain(&counts, own_grown, recorded);
        let least = counts.reading.get(Field::Resident).unwrap_or(0) / NOTABLE;
        let is_notable = since.is_some_and(|it| it.rest.unsigned_abs() > least);
        let now_ns = clock::now_ns();
        if let Some(own) = own.filter(|_| is_notable && self.heap_reads.allows(now_ns)) {
            let began_ns = clock::thread_ns();
            counts = detail.read_heap(counts, own, (own_grown, recorded), start_ns);
            since = detail.explain(&counts, own_grown, recorded);
            let ran_ns = clock::thread_ns().saturating_sub(began_ns);
            self.heap_reads.ran(ran_ns, now_ns);
        }
        detail.set_fields(&mut counts.reading, since, own_grown);
        counts
    }

    /// Returns true if a reading has a detail.
    fn is_detail_due(&self, cause: Cause, reading: &MemoryReading, now_ns: u64) -> bool {
        let is_long = now_ns.saturating_sub(self.start_ns) >= SHORT_NS;
        // The kernel's walk through a large process would delay the program's end.
        let is_first_of_small =
            || self.detail.is_none() && reading.get(Field::Resident) < Some(SMALL);
        match cause {
            Cause::End => is_first_of_small(),
            Cause::EndWithoutSamples => {
                is_first_of_small() && reading.get(Field::Resident) >= Some(LITTLE)
            }
            Cause::EndOfChild => is_long && is_first_of_small(),
            Cause::LastDumpOfChild => is_long,
            Cause::Dump | Cause::Request => true,
            Cause::Frequent => self.frequent_details.allows(now_ns),
            Cause::Regular => self.details.allows(now_ns),
        }
    }

    /// Takes a detail. Returns the counts at its time, and the account of the mappings.
    fn take_detail(
        &mut self,
        cause: Cause,
        mut counts: Counts,
        mut inputs: Inputs<'_>,
        start_ns: u64,
    ) -> (Counts, Option<MappedTotals>) {
        let (now_ns, began_ns) = (clock::now_ns(), clock::thread_ns());
        let last = self.detail.take();
        let (mut fields, pages) = loop_until_steady(&mut counts, start_ns, |counts| {
            let mut fields = MemoryReading::at(now_ns);
            for field in ROLLUP {
                fields.set(field, last.as_ref().and_then(|last| last.fields.get(field)));
            }
            let pages = Pagemap::open().map_or_else(ReadPages::default, |map| {
                let counts = (&counts.reading, counts.used);
                memory_detail::read(&mut fields, &map, counts, &mut inputs)
            });
            self.limits.search();
            (fields, pages)
        });
        // All attempts count.
        let ran_ns = clock::thread_ns().saturating_sub(began_ns);
        self.details.ran(ran_ns, now_ns);
        self.take_rollup(&mut fields, &counts.reading, cause);
        if cause == Cause::Frequent {
            let ran_ns = clock::thread_ns().saturating_sub(began_ns);
            self.frequent_details.ran(ran_ns, now_ns);
        }
        let mapped = [Field::Mapped, Field::MappedUnrecorded].map(|it| fields.get(it));
        let of_mappings = pages.mapped.as_ref();
        let over_places = of_mappings.map_or_else(Vec::new, |it| it.over_places.clone());
        let baseline = counts
            .touched()
            .zip(pages.heap)
            .map(|(touched, heap)| DetailBaseline {
                used: counts.used,
                touched,
                heap,
                mapped: mapped.iter().flatten().sum(),
                recorded: inputs.recorded.bytes_of_mappings(),
                recorded_touched: mapped[0].unwrap_or(0),
                is_own_allocator: allocator::has_next(),
            });
        self.detail = Some(LastDetail {
            fields,
            baseline,
            own: None,
            own_stack: pages.own_stack,
            over_places,
        });
        (counts, pages.mapped)
    }

    /// Reads the fields of the rollup if it is time for them.
    fn take_rollup(&mut self, detail: &mut MemoryReading, reading: &MemoryReading, cause: Cause) {
        let (now_ns, began_ns) = (clock::now_ns(), clock::thread_ns());
        // The first rollup waits until it has its share. A short one is taken on request.
        let expected_ns = reading.get(Field::Resident).unwrap_or(0) / PAGE * ROLLUP_PAGE_NS;
        let is_early = now_ns.saturating_sub(self.start_ns) < expected_ns.saturating_mul(ROLLUPS);
        let is_due = !is_early && self.rollups.allows(now_ns);
        if is_due || cause == Cause::Request && expected_ns < SHORT_ROLLUP_NS {
            read_rollup(detail);
            let ran_ns = clock::thread_ns().saturating_sub(began_ns);
            self.rollups.ran(ran_ns, now_ns);
        }
    }

    /// The most resident bytes so far, by the kernel's count.
    pub(super) fn most_resident(&self) -> u64 {
        self.most_resident
    }
}

impl Counts {
    fn read(start_ns: u64) -> Counts {
        let mut reading = MemoryReading::at(clock::now_ns().saturating_sub(start_ns));
        let (main_stack, most_resident) = read_status(&mut reading);
        let used = read_allocator(&mut reading);
        Counts {
            reading,
            used,
            main_stack,
            most_resident,
        }
    }

    /// Returns the touched pages without a file of the whole process.
    fn touched(&self) -> Option<u64> {
        let swapped = self.reading.get(Field::Swapped).unwrap_or(0);
        Some((self.reading.get(Field::Anonymous)?).saturating_add(swapped))
    }

    /// Returns true if the allocator's bytes or the touched pages differ so much that pages which
    /// were read in between belong to neither.
    fn has_changed(&self, after: &Counts) -> bool {
        let change_of_pages = match self.touched().zip(after.touched()) {
            Some((before, after)) => before.abs_diff(after),
            None => 0,
        };
        let change = change_of_pages.max(self.used.abs_diff(after.used));
        change > (self.used / MOST_CHANGE).max(LEAST_CHANGE)
    }
}

/// Reads pages until the counts stay the same meanwhile, which are from before the pages and from
/// behind them.
fn loop_until_steady<R>(
    counts: &mut Counts,
    start_ns: u64,
    mut read: impl FnMut(&Counts) -> R,
) -> R {
    let mut attempts_left = MOST_ATTEMPTS;
    loop {
        attempts_left -= 1;
        let pages = read(counts);
        let after = Counts::read(start_ns);
        if attempts_left == 0 || !counts.has_changed(&after) {
            return pages;
        }
        *counts = after;
    }
}

impl LastDetail {
    /// Explains what has changed since. `own_grown` are touched pages of our mappings.
    fn explain(
        &self,
        counts: &Counts,
        own_grown: i64,
        recorded: RecordedBytes,
    ) -> Option<DetailChanges> {
        let touched = counts.touched()?.saturating_add_signed(-own_grown);
        Some(self.baseline?.explain(counts.used, touched, recorded))
    }

    /// Reads the allocator's pages anew. `own` are the touched pages of our mappings. Returns the
    /// counts at that time.
    fn read_heap(
        &mut self,
        mut counts: Counts,
        own: u64,
        (own_grown, recorded): (i64, RecordedBytes),
        start_ns: u64,
    ) -> Counts {
        let Some((then, map)) = self.baseline.zip(Pagemap::open()) else {
            return counts;
        };
        let own = own + self.own_stack;
        let over_places = self.over_places.clone();
        let (fields, heap) = loop_until_steady(&mut counts, start_ns, |counts| {
            let mut fields = MemoryReading::at(0);
            let counts = (&counts.reading, counts.used);
            let own = (own, &over_places[..]);
            let heap = memory_detail::read_heap(&mut fields, &map, counts, own);
            (fields, heap)
        });
        let Some((heap, touched)) = heap.zip(counts.touched()) else {
            return counts;
        };
        let touched = touched.saturating_add_signed(-own_grown);
        let now = then.at_heap((counts.used, heap), touched, recorded);
        for field in HEAP {
            self.fields.set(field, fields.get(field));
        }
        let unrecorded = |it: DetailBaseline| it.mapped.saturating_sub(it.recorded_touched);
        for (field, bytes) in [
            (Field::Mapped, now.recorded_touched),
            (Field::MappedUnrecorded, unrecorded(now)),
        ] {
            if self.fields.get(field).is_some() {
                self.fields.set(field, bytes);
            }
        }
        self.baseline = Some(now);
        counts
    }

    /// Sets the fields of a reading that have not been read for it.
    fn set_fields(
        &self,
        reading: &mut MemoryReading,
        since: Option<DetailChanges>,
        own_grown: i64,
    ) {
        reading.set(Field::HeapUntouched, since.map(|it| it.untouched));
        for field in DETAIL {
            reading.set(field, self.fields.get(field));
        }
        for (field, change) in [
            (Field::OwnMapped, own_grown),
            (Field::Mapped, since.map_or(0, |it| it.recorded)),
            (Field::MappedUnrecorded, since.map_or(0, |it| it.unrecorded)),
        ] {
            let bytes = self.fields.get(field);
            reading.set(field, bytes.map(|it| it.saturating_add_signed(change)));
        }
        let age_ms = clock::now_ns().saturating_sub(self.fields.time_ns) / 1_000_000;
        reading.set(Field::DetailAge, age_ms);
    }
}

/// Reads the process's status. Returns the bytes of the main thread's stack, and the most resident
/// bytes.
fn read_status(reading: &mut MemoryReading) -> (Option<u64>, Option<u64>) {
    let mut place = [0; 4096];
    let status = procfs::text_of_process("status", &mut place);
    for (field, name) in [
        (Field::Resident, "VmRSS"),
        (Field::Anonymous, "RssAnon"),
        (Field::File, "RssFile"),
        (Field::Shared, "RssShmem"),
        (Field::Swapped, "VmSwap"),
        (Field::Virtual, "VmSize"),
        (Field::PageTables, "VmPTE"),
        (Field::Threads, "Threads"),
    ] {
        reading.set(field, number_of(status, name));
    }
    (number_of(status, "VmStk"), number_of(status, "VmHWM"))
}

/// Reads the allocator's counts. Returns the bytes that it counts as used or kept, for the program
/// and for this library.
fn read_allocator(reading: &mut MemoryReading) -> u64 {
    let census = allocator::take_census();
    reading.set(Field::OwnArena, census.own);
    let used = census.own + census.active + census.dirty + census.muzzy + census.metadata;
    if allocator::has_next() {
        return used; // our allocator has no block of the program
    }
    for (field, value) in [
        (Field::HeapSmall, Some(census.small)),
        (Field::HeapLarge, Some(census.large)),
        (Field::HeapPadding, Some(census.padding)),
        (Field::HeapCached, census.cached),
        (Field::HeapActive, Some(census.active)),
        (Field::HeapDirty, Some(census.dirty)),
        (Field::HeapMuzzy, Some(census.muzzy)),
        (Field::HeapRetained, Some(census.retained)),
        (Field::HeapMetadata, Some(census.metadata)),
    ] {
        reading.set(field, value);
    }
    used
}

/// Reads the fields of `smaps_rollup`.
fn read_rollup(detail: &mut MemoryReading) {
    let mut place = [0; 2048];
    let rollup = procfs::text_of_process("smaps_rollup", &mut place);
    for (field, name) in [
        (Field::HugePages, "AnonHugePages"),
        (Field::LazyFree, "LazyFree"),
        (Field::Proportional, "Pss"),
    ] {
        detail.set(field, number_of(rollup, name));
    }
}

/// Returns the touched pages of this library's own mappings. `None`: the kernel tells them at more
/// cost.
fn own_touched() -> Option<u64> {
    Pagemap::open()?.scanned(sys::own_mappings())
}
