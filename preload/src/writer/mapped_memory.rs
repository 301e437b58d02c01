//! Mapped memory: the resident bytes of the program's mappings and of its threads' stacks, by stack
//! and name.
//!
//! ```text
//!   /proc/self/maps    ├── heap ──┤   ├─────── anonymous ───────┤   ├─ stack ─┤
//!   other lines        ├──────────┤                                 ├─────────┤
//!   recorded calls                    ├── a ──┤├── b ──┤
//!   parts                             a        b        no stack
//! ```
//!
//! The kernel's list is the truth, and the recorded calls say which stack made a part of it. Memory
//! that another line of the waterfall counts (the allocator's heap, variables, this library) is
//! left out. Memory that no recorded call explains has no stack: it comes from system calls, the
//! loader, libc, or from before the recording. A recorded range that the list lacks was unmapped
//! past us, and is forgotten.
//!
//! The stack of a thread belongs to the call stack that made the thread. It is a part here, and a
//! line of its own in the waterfall. libc keeps the memory when the thread ends, so the range of a
//! stack is forgotten if no thread has it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use heapprof_core::{AddressMap, RecordedBytes, SentStack};
use heapprof_format::{MappedMemory, MappedPart, Mapping, MappingChange, Record};

use super::Writer;
use crate::os::pagemap::{Pagemap, TouchedBytes};
use crate::os::procfs;
use crate::recording::events::MappingEvent;
use crate::recording::pending_mappings;
use crate::state::counters;
use crate::unwind::thread_stacks;

/// Most ranges whose stacks are kept.
const MOST_RANGES: usize = 1 << 16;
/// Most pages that are read for one account: of 4 GiB.
const MOST_PAGES: u64 = 1 << 20;
/// Most bytes of a range that may not be accessed, or written, and whose pages are read.
const MOST_RESERVED: u64 = 64 << 20;
/// Most bytes of the kernel's list: some thousand mappings. Each costs a system call, and meanwhile
/// no lane is emptied. In a process with more, recorded mappings alone are read.
const LONGEST_LIST: usize = 512 << 10;
/// Most recorded ranges that are read without the list.
const MOST_WITHOUT_LIST: usize = 1 << 13;
/// Most parts that a log has of one moment. The rest is one part.
const MOST_PARTS: usize = 256;
/// Name of that part.
const REST: &str = "[others]";
/// The name of recorded mappings if the list is too long.
const NOT_LISTED: &str = "[name not read]";
/// Names of memory without a name.
const ANONYMOUS: &str = "[anonymous]";
const CODE: &str = "[code made at run time]";
/// Names of stacks. The kernel has a name for the main thread's alone.
const MAIN_STACK: &str = "[stack]";
const THREAD_STACK: &str = "[thread stack]";
/// Number of a thread that is not known.
const NO_THREAD: u32 = u32::MAX;

/// The ranges that recorded calls have mapped.
pub(super) struct RecordedMappings {
    /// The stack that mapped a range, by its number.
    ranges: AddressMap<u32>,
    /// The stacks that made threads. Their ranges are stacks of threads.
    makers: BTreeSet<u32>,
    /// Bytes of ranges that are no stacks of threads and were unmapped or mapped anew.
    unmapped: u64,
}

impl Default for RecordedMappings {
    fn default() -> Self {
        RecordedMappings {
            ranges: AddressMap::new(MOST_RANGES),
            makers: BTreeSet::new(),
            unmapped: 0,
        }
    }
}

impl RecordedMappings {
    /// Returns the bytes of all ranges that are no stacks of threads.
    pub(super) fn bytes_of_mappings(&self) -> RecordedBytes {
        let ranges = self.ranges.iter();
        let mappings = ranges.filter(|(_, stack)| !self.makers.contains(stack));
        let present: u64 = mappings.map(|(it, _)| it.end - it.start).sum();
        RecordedBytes {
            mapped: present.saturating_add(self.unmapped),
            unmapped: self.unmapped,
        }
    }

    /// Gives a range to a stack. Returns false if there are too many ranges.
    fn map(&mut self, range: Range<u64>, stack: u32) -> bool {
        self.count_unmapped(&range);
        self.ranges.map(range, stack)
    }

    fn unmap(&mut self, range: Range<u64>) {
        self.count_unmapped(&range);
        self.ranges.unmap(range);
    }

    /// Counts the mappings in a range, which are about to go.
    fn count_unmapped(&mut self, range: &Range<u64>) {
        let (makers, mut bytes) = (&self.makers, 0);
        self.ranges.divide(range.clone(), &mut |part, owner| {
            if owner.is_some_and(|stack| !makers.contains(&stack)) {
                bytes += part.end - part.start;
            }
        });
        self.unmapped = self.unmapped.saturating_add(bytes);
    }

    /// Returns the ranges of stacks of threads, with no owner.
    fn thread_stacks(&self) -> AddressMap<()> {
        let mut stacks = AddressMap::new(usize::MAX);
        for (range, stack) in self.ranges.iter() {
            if self.makers.contains(&stack) {
                stacks.map(range, ());
            }
        }
        stacks
    }

    /// Returns true if each address of a range belongs to that stack already.
    fn has(&self, range: &Range<u64>, stack: u32) -> bool {
        let mut has_all = true;
        self.ranges.divide(range.clone(), &mut |_, owner| {
            has_all &= owner == Some(stack);
        });
        has_all
    }
}

/// The stack of a thread that runs.
pub(super) struct UsedStack {
    pub(super) range: Range<u64>,
    pub(super) touched: TouchedBytes,
    pub(super) is_main: bool,
}

/// The mappings at one moment.
pub(super) struct MappedTotals {
    /// Touched pages without a file of recorded mappings.
    pub(super) recorded: u64,
    /// Touched pages without a file, of all other mappings. `None`: the kernel's list is too long.
    pub(super) unrecorded: Option<u64>,
    pub(super) parts: Vec<MappedPart>,
    /// Recorded ranges that are not mapped, or were stacks of threads that have ended.
    pub(super) gone: Vec<Range<u64>>,
    /// Parts of the allocator's places over which a file or shared memory was mapped, in order.
    pub(super) over_places: Vec<Range<u64>>,
}

impl MappedTotals {
    /// Takes the account. `counted` has the ranges of other lines, among them the allocator's
    /// `places`, and `stacks` those of threads, with true if all are known. `None`: the kernel's
    /// list cannot be read, or it is too long and there are too many recorded ranges.
    pub(super) fn take(
        pages: &Pagemap,
        (counted, places): (&AddressMap<()>, &Range<u64>),
        (stacks, all_are_known): (&[UsedStack], bool),
        recorded: &RecordedMappings,
        waiting: Waiting<'_>,
    ) -> Option<MappedTotals> {
        let list = procfs::mappings()?
            .read_up_to(LONGEST_LIST, 64 << 10)
            .ok()?;
        if list.len() >= LONGEST_LIST {
            return MappedTotals::without_list(pages, counted, stacks, recorded);
        }
        // After the list: a mapping in it whose event comes later has its stack by that event.
        let waiting = waiting();
        let mut account = Parts {
            pages,
            pages_left: MOST_PAGES,
            recorded,
            waiting: &waiting,
            all_are_known,
            recorded_bytes: 0,
            unrecorded_bytes: 0,
            by_name: BTreeMap::new(),
        };
        let mut missing = recorded.ranges.clone();
        let mut over_places = Vec::new();
        for line in list.split(|&byte| byte == b'\n') {
            // The path of a file may be any bytes.
            let mapping = Mapping::parse(&String::from_utf8_lossy(line));
            let Some(mapping) = mapping else { continue };
            let range = mapping.start..mapping.end;
            missing.unmap(range.clone());
            let part = range.start.max(places.start)..range.end.min(places.end);
            if mapping.inode != 0 && !part.is_empty() {
                account.add(&mapping, part.clone());
                over_places.push(part);
            }
            counted.divide(range, &mut |range, counted| {
                if counted.is_none() {
                    account.add(&mapping, range);
                }
            });
        }
        for stack in stacks {
            account.add_stack(stack);
        }
        let mut gone: Vec<_> = missing.iter().map(|(range, _)| range).collect();
        if all_are_known {
            let mut unused = recorded.thread_stacks();
            let used = stacks.iter().map(|stack| &stack.range);
            used.chain(&gone).for_each(|it| unused.unmap(it.clone()));
            gone.extend(unused.iter().map(|(range, ())| range));
        }
        Some(MappedTotals {
            recorded: account.recorded_bytes,
            unrecorded: Some(account.unrecorded_bytes),
            gone,
            over_places,
            parts: account.finish(),
        })
    }

    /// Takes the account of the recorded mappings and the stacks alone.
    fn without_list(
        pages: &Pagemap,
        counted: &AddressMap<()>,
        stacks: &[UsedStack],
        recorded: &RecordedMappings,
    ) -> Option<MappedTotals> {
        let RecordedMappings { ranges, makers, .. } = recorded;
        if ranges.len() > MOST_WITHOUT_LIST {
            return None;
        }
        let mut account = Parts {
            pages,
            pages_left: MOST_PAGES,
            recorded,
            waiting: &AddressMap::new(0),
            all_are_known: true,
            recorded_bytes: 0,
            unrecorded_bytes: 0,
            by_name: BTreeMap::new(),
        };
        let mappings = ranges.iter().filter(|(_, stack)| !makers.contains(stack));
        for (range, stack) in mappings {
            counted.divide(range, &mut |range, counted| {
                if counted.is_none() {
                    account.add_unlisted(&range, stack);
                }
            });
        }
        for stack in stacks {
            account.add_stack(stack);
        }
        Some(MappedTotals {
            recorded: account.recorded_bytes,
            unrecorded: None,
            gone: Vec::new(),
            over_places: Vec::new(),
            parts: account.finish(),
        })
    }
}

/// A function that returns the ranges of mappings whose events are not delivered.
pub(super) type Waiting<'a> = &'a mut dyn FnMut() -> AddressMap<()>;

/// Returns the ranges that these events map with a stack.
pub(super) fn ranges_of<'a>(events: impl Iterator<Item = &'a MappingEvent>) -> AddressMap<()> {
    let mut ranges = AddressMap::new(MOST_RANGES);
    for event in events.filter(|event| event.stack != 0 && event.len != MappingEvent::OF_THREAD) {
        ranges.map(event.start..event.start.saturating_add(event.len), ());
    }
    ranges
}

/// The parts so far.
struct Parts<'a> {
    pages: &'a Pagemap,
    pages_left: u64,
    recorded: &'a RecordedMappings,
    waiting: &'a AddressMap<()>,
    /// True if the stacks of all threads are counted elsewhere.
    all_are_known: bool,
    recorded_bytes: u64,
    unrecorded_bytes: u64,
    /// Mapped and resident bytes.
    by_name: BTreeMap<(Option<u32>, String), [u64; 2]>,
}

impl Parts<'_> {
    fn add(&mut self, mapping: &Mapping, range: Range<u64>) {
        let RecordedMappings { ranges, makers, .. } = self.recorded;
        ranges.divide(range, &mut |range, stack| {
            let is_of_thread = stack.is_some_and(|stack| makers.contains(&stack));
            // The stack of one of too many threads, or memory of a thread that has ended.
            let stack = stack.filter(|_| !is_of_thread || !self.all_are_known);
            if stack.is_some() {
                return self.add_part(mapping, &range, stack);
            }
            let waiting = self.waiting;
            waiting.divide(range, &mut |range, is_waiting| match is_waiting {
                None => self.add_part(mapping, &range, None),
                Some(()) => self.add_waiting(mapping, &range),
            });
        });
    }

    fn add_stack(&mut self, used: &UsedStack) {
        let UsedStack { range, touched, .. } = used;
        let mut owner = None;
        let top = range.end.saturating_sub(1)..range.end;
        let recorded = &self.recorded.ranges;
        recorded.divide(top, &mut |_, stack| owner = stack);
        let name = match used.is_main {
            true => MAIN_STACK,
            false => THREAD_STACK,
        };
        self.add_sums(owner, name, [range.end - range.start, touched.resident]);
    }

    fn add_sums(&mut self, stack: Option<u32>, name: &str, [mapped, resident]: [u64; 2]) {
        let sums = self.by_name.entry((stack, name.to_owned())).or_default();
        sums[0] += mapped;
        sums[1] += resident;
    }

    /// Adds the resident bytes of a mapping whose event comes later. The event has the mapped bytes
    /// and the stack.
    fn add_waiting(&mut self, mapping: &Mapping, range: &Range<u64>) {
        if mapping.perms.as_bytes().get(3) != Some(&b's') {
            let touched = self.touched(mapping, range);
            let touched = touched.unwrap_or_default();
            self.recorded_bytes += touched.anonymous;
            self.add_sums(None, name_of(mapping), [0, touched.resident]);
        }
    }

    fn add_part(&mut self, mapping: &Mapping, range: &Range<u64>, stack: Option<u32>) {
        let perms = mapping.perms.as_bytes();
        // A reserved range may be huge. A small one may have been used before.
        let is_reserved = perms.starts_with(b"---") && range.end - range.start > MOST_RESERVED;
        let is_shared = perms.get(3) == Some(&b's');
        let is_written = mapping.inode == 0 || perms.get(1) == Some(&b'w');
        // Pages of files are a line of their own, and have names there. Shared memory has one, too,
        // and its names are told here: System V segments, and what was mapped before the recording.
        let is_of_file = !is_written && !is_shared;
        if stack.is_none() && mapping.path.starts_with("[v") {
            return;
        }
        if stack.is_none() && is_of_file {
            return self.add_protected(mapping, range);
        }
        let touched = match is_reserved {
            true => None,
            false => self.touched(mapping, range),
        };
        let touched = touched.unwrap_or_default();
        // The resident memory does not count pages of hugetlbfs.
        if !is_shared && !is_hugetlb(mapping) {
            match stack {
                Some(_) => self.recorded_bytes += touched.anonymous,
                None => self.unrecorded_bytes += touched.anonymous,
            }
        }
        self.add_sums(
            stack,
            name_of(mapping),
            [range.end - range.start, touched.resident],
        );
    }

    /// Adds the pages of a file's private mapping that were written before it was protected, such
    /// as what the loader has relocated in a library.
    fn add_protected(&mut self, mapping: &Mapping, range: &Range<u64>) {
        let is_code = mapping.perms.as_bytes().get(2) == Some(&b'x');
        // A large file that is mapped to be read has no such pages.
        if is_code || range.end - range.start > MOST_RESERVED {
            return;
        }
        let touched = self.touched(mapping, range);
        let written = touched.unwrap_or_default().anonymous;
        if written > 0 {
            self.unrecorded_bytes += written;
            self.add_sums(None, name_of(mapping), [written, written]);
        }
    }

    /// Adds a part of a recorded mapping of which nothing else is known.
    fn add_unlisted(&mut self, range: &Range<u64>, stack: u32) {
        let touched = self.pages.touched(range, true, &mut self.pages_left);
        let touched = touched.unwrap_or_default();
        self.recorded_bytes += touched.anonymous;
        let sums = [range.end - range.start, touched.resident];
        self.add_sums(Some(stack), NOT_LISTED, sums);
    }

    /// Returns the touched and the resident pages of a part of a mapping.
    fn touched(&mut self, mapping: &Mapping, range: &Range<u64>) -> Option<TouchedBytes> {
        let has_file = mapping.inode != 0;
        self.pages.touched(range, has_file, &mut self.pages_left)
    }

    fn finish(self) -> Vec<MappedPart> {
        let parts = self.by_name.into_iter();
        let part = |((stack, name), sums): ((Option<u32>, String), [u64; 2])| MappedPart {
            stack,
            name,
            mapped: sums[0],
            resident: sums[1],
        };
        let mut parts: Vec<MappedPart> = parts.map(part).collect();
        parts.sort_by_key(|part| std::cmp::Reverse((part.resident, part.mapped)));
        if parts.len() > MOST_PARTS {
            let mut rest = MappedPart {
                name: REST.to_owned(),
                ..MappedPart::default()
            };
            for part in parts.drain(MOST_PARTS - 1..) {
                rest.mapped += part.mapped;
                rest.resident += part.resident;
            }
            parts.push(rest);
        }
        parts
    }
}

/// Returns true if a mapping has pages of hugetlbfs (`MAP_HUGETLB`, or a file there).
fn is_hugetlb(mapping: &Mapping) -> bool {
    let begins = |name| mapping.path.starts_with(name);
    begins("/anon_hugepage") || begins("/dev/hugepages/")
}

/// Returns the name of a mapping's memory.
fn name_of(mapping: &Mapping) -> &str {
    match mapping.path.as_str() {
        "" if mapping.perms.as_bytes().get(2) == Some(&b'x') => CODE,
        "" => ANONYMOUS,
        path => path,
    }
}

impl Writer {
    /// Takes a change of the mappings, at that time of the log.
    pub(super) fn mapping_changed(&mut self, time_ns: u64, event: &MappingEvent) {
        let mut stack = (event.stack != 0).then(|| self.stack_number(event.stack));
        let is_thread = event.len == MappingEvent::OF_THREAD;
        let range = match is_thread {
            false => Some(event.start..event.start.saturating_add(event.len)),
            true => stack.and_then(|_| thread_stacks::of_descriptor(event.start)),
        };
        let Some(range) = range else {
            return; // the thread has ended, and its memory is gone
        };
        let (start, len) = (range.start, range.end - range.start);
        match stack {
            Some(number) => {
                if is_thread {
                    self.mappings.makers.insert(number);
                    if self.mappings.has(&range, number) {
                        return; // libc has given the memory of a thread to the next one
                    }
                }
                if !self.mappings.map(range, number) {
                    counters::LOST_MAPPINGS.add(1);
                    stack = None;
                }
                if let Some(rotation) = &mut self.rotation {
                    rotation.checkpoint_state.used(number, time_ns);
                }
            }
            None => {
                let mut is_recorded = false;
                let asked = range.clone();
                let ranges = &self.mappings.ranges;
                ranges.divide(asked, &mut |_, owner| is_recorded |= owner.is_some());
                if !is_recorded {
                    return; // the end of a mapping that is not recorded changes nothing
                }
                self.mappings.unmap(range);
            }
        }
        self.output
            .encoder
            .record(&Record::MappingChange(MappingChange {
                time_ns,
                thread: event.thread,
                start,
                len,
                stack,
            }));
    }

    /// Logs the changes that still wait for a session, because no sample has begun one.
    pub(super) fn log_pending_mappings(&mut self) {
        if !pending_mappings::exist() {
            return;
        }
        self.advance_clock();
        for pending in pending_mappings::take_all() {
            let has_stack = !pending.frames.is_empty();
            if has_stack {
                let is_interrupted = |(n, &(_, is)): (u32, &(u64, bool))| is.then_some(n);
                self.new_stack(SentStack {
                    hash: pending.hash,
                    end: pending.end,
                    interrupted: (0..)
                        .zip(&pending.frames)
                        .filter_map(is_interrupted)
                        .collect(),
                    frames: pending.frames.iter().map(|&(address, _)| address).collect(),
                    labels: Vec::new(),
                });
            }
            let event = MappingEvent {
                at: pending.at,
                start: pending.start,
                len: pending.len,
                stack: if has_stack { pending.hash } else { 0 },
                thread: NO_THREAD,
            };
            let time_ns = self.since_start(self.clock.ns(pending.at));
            self.mapping_changed(time_ns, &event);
        }
    }

    /// Logs the mappings of a reading of that time of the log.
    pub(super) fn log_mapped_memory(&mut self, time_ns: u64, account: MappedTotals) {
        for range in account.gone {
            self.mappings.unmap(range.clone());
            self.log_mapping(time_ns, &range, None);
        }
        let parts = account.parts;
        let moment = MappedMemory { time_ns, parts };
        self.output.encoder.record(&Record::MappedMemory(moment));
    }

    /// Repeats all recorded mappings, for a segment that begins.
    pub(super) fn log_all_mappings(&mut self, time_ns: u64) {
        let mappings = std::mem::take(&mut self.mappings);
        for (range, stack) in mappings.ranges.iter() {
            self.log_mapping(time_ns, &range, Some(stack));
        }
        self.mappings = mappings;
    }

    fn log_mapping(&mut self, time_ns: u64, range: &Range<u64>, stack: Option<u32>) {
        self.output
            .encoder
            .record(&Record::MappingChange(MappingChange {
                time_ns,
                thread: NO_THREAD,
                start: range.start,
                len: range.end - range.start,
                stack,
            }));
    }
}
