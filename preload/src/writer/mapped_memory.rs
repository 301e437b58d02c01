//! Mapped memory: the resident bytes of the program's mappings, by stack and name.
//!
//! ```text
//!   /proc/self/maps    ├── heap ──┤   ├─────── anonymous ───────┤   ├─ stack ─┤
//!   other lines        ├──────────┤                                 ├─────────┤
//!   recorded calls                    ├── a ──┤├── b ──┤
//!   parts                             a        b        no stack
//! ```
//!
//! The kernel's list is the truth, and the recorded calls say which stack made a part of it. Memory
//! that another line of the waterfall counts (the allocator's heap, stacks, variables, this
//! library) is left out. Memory that no recorded call explains has no stack: it comes from system
//! calls, the loader, libc, or from before the recording. A recorded range that the list lacks was
//! unmapped past us, and is forgotten.

use std::collections::BTreeMap;
use std::ops::Range;

use heapprof_core::AddressMap;
use heapprof_format::{MappedMemory, MappedPart, Mapping, MappingChange, Record};

use super::Writer;
use crate::os::pagemap::Pagemap;
use crate::os::procfs;
use crate::recording::events::MappingEvent;
use crate::state::counters;

/// Most ranges whose stacks are kept.
pub(super) const MOST_RANGES: usize = 1 << 16;
/// Most pages that are read for one account: of 4 GiB.
const MOST_PAGES: u64 = 1 << 20;
/// Most bytes of the kernel's list: some thousand mappings. Each costs a system call, and meanwhile
/// no lane is emptied.
const LONGEST_LIST: usize = 512 << 10;
/// Most parts that a log has of one moment. The rest is one part.
const MOST_PARTS: usize = 256;
/// Name of that part.
const REST: &str = "[others]";
/// Names of memory without a name.
const ANONYMOUS: &str = "[anonymous]";
const CODE: &str = "[code made at run time]";
/// Number of a thread that is not known.
const NO_THREAD: u32 = u32::MAX;

/// The mappings at one moment.
pub(super) struct Account {
    /// Touched pages without a file of recorded mappings, and of all others.
    pub(super) recorded: u64,
    pub(super) unrecorded: u64,
    pub(super) parts: Vec<MappedPart>,
    /// Recorded ranges that are not mapped.
    pub(super) gone: Vec<Range<u64>>,
}

impl Account {
    /// Takes the account. `counted` has the ranges of other lines. `None`: the kernel's list cannot
    /// be read, or is too long.
    pub(super) fn take(
        pages: &Pagemap,
        counted: &AddressMap<()>,
        recorded: &AddressMap<u32>,
    ) -> Option<Account> {
        let list = procfs::mappings()?
            .read_up_to(LONGEST_LIST, 64 << 10)
            .ok()
            .filter(|list| list.len() < LONGEST_LIST)?;
        let mut account = Parts {
            pages,
            pages_left: MOST_PAGES,
            recorded,
            recorded_bytes: 0,
            unrecorded_bytes: 0,
            by_name: BTreeMap::new(),
        };
        let mut missing = recorded.clone();
        for line in list.split(|&byte| byte == b'\n') {
            let mapping = std::str::from_utf8(line).ok().and_then(Mapping::parse);
            let Some(mapping) = mapping else { continue };
            let range = mapping.start..mapping.end;
            missing.unmap(range.clone());
            counted.divide(range, &mut |range, counted| {
                if counted.is_none() {
                    account.add(&mapping, range);
                }
            });
        }
        Some(Account {
            recorded: account.recorded_bytes,
            unrecorded: account.unrecorded_bytes,
            gone: missing.pieces().map(|(range, _)| range).collect(),
            parts: account.finish(),
        })
    }
}

/// The parts so far.
struct Parts<'a> {
    pages: &'a Pagemap,
    pages_left: u64,
    recorded: &'a AddressMap<u32>,
    recorded_bytes: u64,
    unrecorded_bytes: u64,
    /// Mapped and resident bytes.
    by_name: BTreeMap<(Option<u32>, String), [u64; 2]>,
}

impl Parts<'_> {
    fn add(&mut self, mapping: &Mapping, range: Range<u64>) {
        let recorded = self.recorded;
        recorded.divide(range, &mut |range, stack| {
            self.add_part(mapping, &range, stack)
        });
    }

    fn add_part(&mut self, mapping: &Mapping, range: &Range<u64>, stack: Option<u32>) {
        let perms = mapping.perms.as_bytes();
        let is_reserved = perms.starts_with(b"---");
        let is_shared = perms.get(3) == Some(&b's');
        let is_written = mapping.inode == 0 || perms.get(1) == Some(&b'w');
        // Pages of files and shared pages are lines of their own.
        if stack.is_none() && (is_shared || !is_written || mapping.path.starts_with("[v")) {
            return;
        }
        let touched = match is_reserved {
            true => None,
            false => self.pages.touched(range, &mut self.pages_left),
        };
        let touched = touched.unwrap_or_default();
        if !is_shared {
            match stack {
                Some(_) => self.recorded_bytes += touched.anonymous,
                None => self.unrecorded_bytes += touched.anonymous,
            }
        }
        let name = match mapping.path.as_str() {
            "" if perms.get(2) == Some(&b'x') => CODE,
            "" => ANONYMOUS,
            path => path,
        };
        let sums = self.by_name.entry((stack, name.to_owned())).or_default();
        sums[0] += range.end - range.start;
        sums[1] += touched.resident;
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

impl Writer {
    /// Takes a change of the mappings, at that time of the log.
    pub(super) fn mapping_changed(&mut self, time_ns: u64, event: &MappingEvent) {
        let range = event.start..event.start.saturating_add(event.len);
        let mut stack = (event.stack != 0).then(|| self.stack_number(event.stack));
        match stack {
            Some(number) => {
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
                self.mappings
                    .divide(asked, &mut |_, owner| is_recorded |= owner.is_some());
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
                start: event.start,
                len: event.len,
                stack,
            }));
    }

    /// Logs the mappings of a reading of that time of the log.
    pub(super) fn log_mapped_memory(&mut self, time_ns: u64, account: Account) {
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
        let mappings = std::mem::replace(&mut self.mappings, AddressMap::new(0));
        for (range, stack) in mappings.pieces() {
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
