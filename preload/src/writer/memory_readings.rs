//! Memory readings: numbers of the kernel and the allocator about the process's memory, taken by
//! the writer for the log.
//!
//! The usual fields are read in each reading: `/proc/self/status`, the cgroup and the allocator's
//! counts. The costly fields are a *detail*: the page map is read for stacks, variables, mappings
//! and all places of the allocator's and ours, and the cgroup with the least room is searched for.
//! (Where the kernel tells ranges of touched pages, our own mappings are read each time.)
//! `smaps_rollup`, for which the kernel walks all page tables, is read even more rarely. All are
//! spaced by what they cost (`CpuShare`). The last values are repeated until the next ones. A
//! change since then whose cause is not known is in no field, and the waterfall does not explain
//! it.
//!
//! A process that does nothing is not woken for a reading. A reading takes no memory of the program
//! and waits for no lock of the program.

use std::ops::Range;

use heapprof_core::{AddressMap, CpuShare, DetailBaseline, number_of};
use heapprof_format::{ATTACH_DESCRIPTORS, MemoryField as Field, MemoryReading, Module, Segment};

use crate::allocator::{self, UntouchedPages};
use crate::os::pagemap::Pagemap;
use crate::os::sys::{self, PAGE};
use crate::os::{clock, procfs};
use crate::unwind::thread_stacks;
use crate::writer::heap_pages::HeapPages;
use crate::writer::limit_watch::LimitWatch;
use crate::writer::mapped_memory::{MappedTotals, RecordedMappings, UsedStack, Waiting};

/// Most pages of one stack, mapping or module that are read.
const MOST_PAGES: u64 = 64 << 10;
/// Most pages of the allocator's places that are read: of 16 GiB. In a larger heap, untouched pages
/// are not told from others.
const MOST_HEAP_PAGES: u64 = 4 << 20;
/// Parts of a processor's time of which readings, details and rollups take one each. Together they
/// are nine parts in ten thousand, and the usual looks at the limit are the tenth. Readings at
/// markers and at dumps that nobody asks for have a share of their own, as large as that of
/// readings: a regular one just before does not replace them.
const READINGS: u64 = 2_500;
const DETAILS: u64 = 2_500;
const ROLLUPS: u64 = 10_000;
/// The part of details at markers and at dumps that nobody asks for, which are few as a rule.
const FREQUENT_DETAILS: u64 = 500;
/// Time on a processor for a page in a rollup, roughly.
const ROLLUP_PAGE_NS: u64 = 100;
/// Time up to which a rollup is taken on request: some 4 GiB of pages.
const SHORT_ROLLUP_NS: u64 = 100_000_000;
/// Resident bytes up to which the first detail may be taken at the end of the process.
const SMALL: u64 = 64 << 20;
/// How often a detail is read until the allocator's bytes stay the same meanwhile.
const MOST_ATTEMPTS: u32 = 4;
/// The part of these bytes, one in so many, up to which a change counts as the same.
const MOST_CHANGE: u64 = 64;
/// Bytes up to which a change counts as the same.
const LEAST_CHANGE: u64 = 1 << 20;
/// A process that ends earlier has no detail at its end, nor a child in its last dump, which would
/// exceed the share of details.
const SHORT_NS: u64 = 1_000_000_000;
/// ELF `p_flags` of a segment that can be written.
const WRITABLE: u32 = 2;

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

/// Why a reading is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is time for one.
    Regular,
    /// A marker, or a dump that nobody asks for. Both may come often.
    Frequent,
    /// A dump that is asked for, that of an alarm, or the last one.
    Dump,
    /// The last dump of a forked child. Programs may fork one for each request.
    LastDumpOfChild,
    /// Somebody asks for one.
    Request,
    /// The end of the log.
    End,
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
    rollups: CpuShare,
    /// The last detail, with the clock's time.
    detail: Option<MemoryReading>,
    /// The heap and the mappings at the last detail. `None`: they are not known.
    detail_baseline: Option<DetailBaseline>,
    /// Touched pages of this library's own mappings at the last detail. `None`: the kernel tells
    /// them at more cost.
    own_at_detail: Option<u64>,
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
            rollups: CpuShare::one_in(ROLLUPS),
            detail: None,
            detail_baseline: None,
            own_at_detail: None,
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
        let mut reading = MemoryReading::at(now_ns.saturating_sub(start_ns));
        let (main_stack, most_resident) = read_status(&mut reading);
        self.most_resident = most_resident.unwrap_or(0);
        let mut used = read_allocator(&mut reading);
        let mut ran_ns = clock::thread_ns().saturating_sub(began_ns);
        let lived_ns = now_ns.saturating_sub(self.start_ns);
        let has_time = match cause {
            // The kernel's walk through a large process would delay the program's end.
            Cause::End => {
                let is_small = reading.get(Field::Resident) < Some(SMALL);
                self.detail.is_none() && is_small && lived_ns >= SHORT_NS
            }
            Cause::LastDumpOfChild => lived_ns >= SHORT_NS,
            Cause::Dump | Cause::Request => true,
            Cause::Frequent => self.frequent_details.allows(now_ns),
            Cause::Regular => self.details.allows(now_ns),
        };
        let recorded_bytes = recorded.bytes_of_mappings();
        let mut mapped = None;
        if has_time {
            let places = (main_stack, modules, recorded);
            let detail_ns = clock::thread_ns();
            let mut attempts_left = MOST_ATTEMPTS;
            let (mut detail, heap) = loop {
                attempts_left -= 1;
                let mut detail = MemoryReading::at(0);
                let heap;
                let counts = (&reading, used);
                (heap, mapped) = self.take_detail(&mut detail, counts, places, waiting);
                // The counts are from before the pages, and from behind them.
                let mut after = MemoryReading::at(clock::now_ns().saturating_sub(start_ns));
                read_status(&mut after);
                let used_after = read_allocator(&mut after);
                let is_same = !has_changed((&reading, used), (&after, used_after));
                if is_same || attempts_left == 0 {
                    break (detail, heap);
                }
                (reading, used) = (after, used_after);
            };
            // All attempts count.
            self.details
                .ran(clock::thread_ns().saturating_sub(detail_ns), now_ns);
            self.take_rollup(&mut detail, &reading, cause);
            let mapped = [Field::Mapped, Field::MappedUnrecorded].map(|it| detail.get(it));
            let mapped = mapped.iter().flatten().sum();
            self.detail_baseline =
                touched(&reading)
                    .zip(heap)
                    .map(|(touched, heap)| DetailBaseline {
                        used,
                        mapped,
                        touched,
                        untouched: used.saturating_sub(heap),
                        recorded: recorded_bytes,
                        recorded_touched: detail.get(Field::Mapped).unwrap_or(0),
                        is_own_allocator: allocator::has_next(),
                    });
            if cause == Cause::Frequent {
                let ran_ns = clock::thread_ns().saturating_sub(detail_ns);
                self.frequent_details.ran(ran_ns, now_ns);
            }
            detail.time_ns = now_ns;
            self.detail = Some(detail);
        }
        let began_ns = clock::thread_ns();
        if has_time {
            self.own_at_detail = own_touched();
        }
        let own_grown = match self.own_at_detail.filter(|_| !has_time) {
            Some(then) => own_touched().map_or(0, |now| now.cast_signed() - then.cast_signed()),
            None => 0,
        };
        let known = touched(&reading).zip(self.detail_baseline);
        let since = known.map(|(now, then)| {
            let now = now.saturating_add_signed(-own_grown);
            then.explain(used, now, recorded_bytes)
        });
        if let Some(since) = since {
            reading.set(Field::HeapUntouched, since.untouched);
        }
        self.limits.read(&mut reading);
        ran_ns += clock::thread_ns().saturating_sub(began_ns);
        let share = match cause {
            Cause::Frequent => &mut self.frequent,
            _ => &mut self.readings,
        };
        share.ran(ran_ns, now_ns);
        if let Some(detail) = &self.detail {
            for field in DETAIL {
                reading.set(field, detail.get(field));
            }
            for (field, change) in [
                (Field::OwnMapped, own_grown),
                (Field::Mapped, since.map_or(0, |it| it.recorded)),
                (Field::MappedUnrecorded, since.map_or(0, |it| it.unrecorded)),
            ] {
                let bytes = detail.get(field);
                reading.set(field, bytes.map(|it| it.saturating_add_signed(change)));
            }
            let age_ms = now_ns.saturating_sub(detail.time_ns) / 1_000_000;
            reading.set(Field::DetailAge, age_ms);
        }
        Some((reading, mapped))
    }

    /// Takes a detail for a reading, with the bytes that the allocator counts as used or kept.
    /// Returns the touched pages of the heap, and the account of the mappings.
    fn take_detail(
        &mut self,
        detail: &mut MemoryReading,
        (reading, used): (&MemoryReading, u64),
        places: (Option<u64>, &[Module], &RecordedMappings),
        waiting: Waiting<'_>,
    ) -> (Option<u64>, Option<MappedTotals>) {
        for field in ROLLUP {
            detail.set(field, self.detail.and_then(|last| last.get(field)));
        }
        let (heap, mapped) = match Pagemap::open() {
            Some(map) => read_detail(detail, &map, (reading, used), places, waiting),
            None => (None, None),
        };
        self.limits.search();
        (heap, mapped)
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

/// Returns the touched pages without a file of the whole process.
fn touched(reading: &MemoryReading) -> Option<u64> {
    let swapped = reading.get(Field::Swapped).unwrap_or(0);
    Some(reading.get(Field::Anonymous)?.saturating_add(swapped))
}

/// Returns the touched pages of this library's own mappings. `None`: the kernel tells them at more
/// cost.
fn own_touched() -> Option<u64> {
    Pagemap::open()?.scanned(sys::own_mappings())
}

/// Returns true if the allocator's bytes or the touched pages differ so much that pages which were
/// read in between belong to neither.
fn has_changed(before: (&MemoryReading, u64), after: (&MemoryReading, u64)) -> bool {
    let change_of_pages = match touched(before.0).zip(touched(after.0)) {
        Some((before, after)) => before.abs_diff(after),
        None => 0,
    };
    let change = change_of_pages.max(before.1.abs_diff(after.1));
    change > (before.1 / MOST_CHANGE).max(LEAST_CHANGE)
}

/// Returns the resident pages of a module that are its file's.
fn bytes_of_file(map: &Pagemap, module: &Module) -> u64 {
    let mut pages_left = MOST_PAGES;
    let ranges = module.segments.iter().map(pages_of);
    let touched = ranges.filter_map(|range| map.touched(&range, true, &mut pages_left));
    let of_file = touched.map(|it| it.resident.saturating_sub(it.anonymous));
    of_file.sum()
}

/// Returns the addresses of a segment's pages.
fn pages_of(segment: &Segment) -> Range<u64> {
    segment.start & !(PAGE - 1)..(segment.start + segment.len).next_multiple_of(PAGE)
}

/// Reads the costly fields. Returns the touched pages of the allocator, if they can be told, and
/// the account of the mappings.
fn read_detail(
    detail: &mut MemoryReading,
    map: &Pagemap,
    (reading, used): (&MemoryReading, u64),
    (main_stack, modules, recorded): (Option<u64>, &[Module], &RecordedMappings),
    waiting: Waiting<'_>,
) -> (Option<u64>, Option<MappedTotals>) {
    // The ranges that the fields below count.
    let mut counted = AddressMap::new(usize::MAX);
    let touched = |range: Range<u64>| map.anonymous(&range, MOST_PAGES);
    let places = sys::places();
    counted.map(places.clone(), ());
    for own in sys::own_mappings() {
        counted.map(own, ());
    }
    let mut own: u64 = sys::own_mappings().map(touched).sum();
    let mut own_in_places = own;
    let mut stacks = Vec::new();
    let mut stacks_in_blocks = 0;
    if let Some(range) = main_stack.and_then(thread_stacks::of_main) {
        counted.map(range.clone(), ());
        let touched = map.of_stack(&range, MOST_PAGES);
        let is_main = true;
        stacks.push(UsedStack {
            range,
            touched,
            is_main,
        });
    }
    let this = sys::gettid();
    let all_are_known = thread_stacks::each(&mut |tid, range| {
        if tid != this && places.contains(&range.start) {
            stacks_in_blocks += 1; // memory from malloc (pthread_attr_setstack), which counts there
            return;
        }
        let touched = map.of_stack(&range, MOST_PAGES);
        counted.map(range.clone(), ());
        if tid != this {
            let is_main = false;
            stacks.push(UsedStack {
                range,
                touched,
                is_main,
            });
            return;
        }
        own += touched.anonymous;
        if places.contains(&range.start) {
            own_in_places += touched.anonymous;
        }
    });
    static HERE: u8 = 0;
    let here = &raw const HERE as u64;
    let mut variables = 0;
    for module in modules {
        let segments = || module.segments.iter();
        let is_ours = segments().any(|it| (it.start..it.start + it.len).contains(&here));
        let writable = segments().filter(|it| it.flags & WRITABLE != 0);
        let mut bytes = 0;
        for segment in writable {
            let pages = pages_of(segment);
            // A variable may be the stack of a thread.
            counted.divide(pages.clone(), &mut |part, counted| {
                if counted.is_none() {
                    bytes += touched(part);
                }
            });
            counted.map(pages, ());
        }
        *(if is_ours { &mut own } else { &mut variables }) += bytes;
        // Its file is in shared memory.
        if is_ours && module.path.starts_with(ATTACH_DESCRIPTORS) {
            detail.set(Field::OwnShared, bytes_of_file(map, module));
        }
    }
    detail.set(Field::OwnMapped, own);
    let of_stacks = stacks.iter().map(|stack| stack.touched.anonymous);
    detail.set(Field::Stacks, of_stacks.sum::<u64>());
    detail.set(Field::StackThreads, stacks.len() as u64 + stacks_in_blocks);
    detail.set(Field::Variables, variables);
    // Without the allocator's places, its pages would count twice.
    let mapped = match places.is_empty() {
        true => None,
        false => {
            let stacks = (&stacks[..], all_are_known);
            MappedTotals::take(map, &counted, stacks, recorded, waiting)
        }
    };
    if let Some(mapped) = &mapped {
        detail.set(Field::Mapped, mapped.recorded);
        detail.set(Field::MappedUnrecorded, mapped.unrecorded);
    }
    let pages = (places.end - places.start) / PAGE;
    let is_read = (1..=MOST_HEAP_PAGES).contains(&pages);
    let heap = is_read.then(|| {
        let pages = HeapPages::read(map, &places);
        let heap = pages.touched.saturating_sub(own_in_places);
        let untouched = used.saturating_sub(heap);
        detail.set(Field::RetainedTouched, heap.saturating_sub(used));
        if allocator::has_next() {
            detail.set(Field::OwnUntouched, untouched); // our allocator has no block of the program
        } else if let Some(parts) = pages.untouched {
            let UntouchedPages {
                active,
                dirty,
                muzzy,
                own,
            } = parts;
            // The counts and the pages are read one after the other. Pages that the allocator's own
            // data cannot have are of this library, which works meanwhile.
            let rest = untouched.saturating_sub(active + dirty + muzzy + own);
            let metadata = reading.get(Field::HeapMetadata).unwrap_or(0).min(rest);
            detail.set(Field::DirtyUntouched, dirty);
            detail.set(Field::MuzzyUntouched, muzzy);
            detail.set(Field::MetadataUntouched, metadata);
            detail.set(Field::OwnUntouched, own + rest - metadata);
        }
        heap
    });
    (heap, mapped)
}
