//! Where code made at run time can be: executable memory, as the kernel lists it.
//!
//! Danger: one thread rewrites what others are reading. Each bound is an atomic, and a version says whether what was read belongs
//! together; whoever finds that it does not, knows nothing.
//!
//! Model: the list is read by the writer, now and then while walks ask. Hooks ask here and nowhere else: reading the list takes a descriptor,
//! a lock of the kernel's, and milliseconds where there are many mappings; asking memory itself (is there a call before that address?) takes
//! system calls in each walk that is led astray, and there is none that neither faults nor waits. So the first walks through code that is new end in it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use heapprof_format::Mapping;

use crate::proc;

/// Ranges that are kept, in 16 KiB, which are there once they are used. Those of the lowest addresses.
const MOST: usize = 1 << 10;

/// Between two readings: at first, and at most, twice as long after each that told nothing new.
const WAIT_NS: u64 = 20_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// And for each byte of the list, of which reading takes some 20 ns: a hundred times that. Where there are 60,000 mappings, they are 3 MB. Not the
/// time that it took: our thread may have been out of its processor meanwhile.
const WAIT_NS_A_BYTE: u64 = 2_000;

/// First address and the one after the last, sorted; none touches the next.
static RANGES: [[AtomicU64; 2]; MOST] = [const { [const { AtomicU64::new(0) }; 2] }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd: they are being rewritten.
static VERSION: AtomicU64 = AtomicU64::new(0);
/// Somebody asked. What was found has to be looked for again, too: the code may be gone, and data may be in its place.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The writer's: when to look again.
pub(crate) struct Looked {
    next_ns: u64,
    wait_ns: u64,
}

/// Whether `address` is known to be in executable memory.
pub(crate) fn holds(address: u64) -> bool {
    if !ASKED.load(Ordering::Relaxed) {
        ASKED.store(true, Ordering::Relaxed); // in others' caches once a reading, and not in each walk
    }
    find(address) == Some(true)
}

/// `None`: they were being rewritten.
fn find(address: u64) -> Option<bool> {
    let version = VERSION.load(Ordering::Acquire);
    let ranges = &RANGES[..COUNT.load(Ordering::Relaxed).min(MOST)];
    let after = ranges.partition_point(|[start, _]| start.load(Ordering::Relaxed) <= address);
    let found = after
        .checked_sub(1)
        .is_some_and(|at| address < ranges[at][1].load(Ordering::Relaxed));
    fence(Ordering::Acquire); // before the version is read again
    let is_one = version & 1 == 0 && VERSION.load(Ordering::Relaxed) == version;
    is_one.then_some(found)
}

impl Looked {
    pub(crate) fn not_yet() -> Looked {
        Looked {
            next_ns: 0,
            wait_ns: WAIT_NS,
        }
    }

    /// In the writer, now and then: reads the list if somebody asked.
    pub(crate) fn tend(&mut self, now_ns: u64) {
        if now_ns < self.next_ns || !ASKED.swap(false, Ordering::Relaxed) {
            return;
        }
        let maps = proc::of_process("maps");
        self.wait_ns = match replace(&listed_in(&maps)) {
            true => WAIT_NS,
            false => (2 * self.wait_ns).min(LONGEST_WAIT_NS),
        };
        self.next_ns = now_ns + self.wait_ns.max(WAIT_NS_A_BYTE * maps.len() as u64);
    }
}

/// What the kernel lists as executable, joined where it touches.
fn listed_in(maps: &[u8]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for mapping in String::from_utf8_lossy(maps)
        .lines()
        .filter_map(Mapping::parse)
        .filter(|mapping| mapping.perms.contains('x'))
    {
        match ranges.last_mut() {
            Some(last) if last.end == mapping.start => last.end = mapping.end,
            _ => ranges.push(mapping.start..mapping.end),
        }
    }
    // A program may ask for all of its memory to be executable (READ_IMPLIES_EXEC): then the list says nothing.
    let data = RANGES.as_ptr() as u64;
    if ranges.iter().any(|range| range.contains(&data)) {
        ranges.clear();
    }
    ranges.truncate(MOST);
    ranges
}

/// Only the writer replaces them, and in a forked child its successor. False: they are what they were.
fn replace(ranges: &[Range<u64>]) -> bool {
    let are = RANGES[..COUNT.load(Ordering::Relaxed)]
        .iter()
        .map(|[start, end]| start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed));
    let before = VERSION.load(Ordering::Relaxed);
    if before & 1 == 0 && are.eq(ranges.iter().cloned()) {
        return false;
    }
    let version = before | 1; // it is odd in a child that was forked in the middle
    VERSION.store(version, Ordering::Relaxed);
    fence(Ordering::Release); // before any of them
    for ([start, end], range) in RANGES.iter().zip(ranges) {
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
    }
    COUNT.store(ranges.len(), Ordering::Relaxed);
    VERSION.store(version + 1, Ordering::Release);
    true
}
