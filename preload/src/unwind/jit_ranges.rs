//! JIT ranges: executable memory that may contain code made at run time, from the kernel's list of
//! mappings.
//!
//! Danger: one thread rewrites ranges that others read. Each bound is an atomic. A version tells
//! whether the bounds that a thread has read belong together; if not, the result is unknown.
//!
//! Model: the writer re-reads the list periodically while walks query it, and promptly after the
//! first miss; that query wakes the writer. Hooks only query. Reading the list needs a descriptor
//! and a lock of the kernel, and may last milliseconds. Inspecting the memory itself (for a call
//! before the address) would need system calls in each walk that follows wrong data. Each such
//! system call may fault or wait. So the first walks through new code end in it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use heapprof_format::Mapping;

use crate::os::sys::{Errno, File};
use crate::os::{fd_table, procfs};
use crate::state::wakeup;

/// Capacity in ranges. If there are more, the ranges of the lowest addresses are kept. The memory
/// is allocated by the kernel once it is used.
const MAX_RANGES: usize = 1 << 10;

/// Time between two scans if a walk waits for one, at first and at most. It doubles after each
/// scan without news.
const WAIT_NS: u64 = 20_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// Time between two scans if no walk waits.
const IDLE_WAIT_NS: u64 = 1_000_000_000;
/// Time between two scans for each byte of the list: a hundred times the cost of reading it. The
/// time that a scan took is not usable instead, because our thread may have been off its
/// processor.
const WAIT_NS_A_BYTE: u64 = 2_000;
/// Chunks of the list that are read at once.
const CHUNKS_AT_A_TIME: usize = 16;

/// Start and end of each range, sorted; ranges do not touch.
static RANGES: [[AtomicU64; 2]; MAX_RANGES] =
    [const { [const { AtomicU64::new(0) }; 2] }; MAX_RANGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd while the ranges are being rewritten.
static VERSION: AtomicU64 = AtomicU64::new(0);
/// A walk has queried the ranges. Hits count, too, because the code may be gone, and data may be in
/// its place.
static QUERIED: AtomicBool = AtomicBool::new(false);
/// A query has missed since the last scan began. The first such query has woken the writer.
static MISSED: AtomicBool = AtomicBool::new(false);

/// The schedule of scans, in the writer.
pub(crate) struct ScanSchedule {
    /// Earliest time of the next scan if a walk waits for it.
    next_ns: u64,
    wait_ns: u64,
    /// Earliest time of the next scan if queries only hit.
    next_idle_ns: u64,
    /// A walk waits for the present scan.
    is_missed: bool,
    scan: Option<ListScan>,
}

/// Returns true if `address` is known to be in executable memory.
pub(crate) fn contains(address: u64) -> bool {
    if !QUERIED.load(Ordering::Relaxed) {
        QUERIED.store(true, Ordering::Relaxed); // so other processors' caches change once a scan
    }
    let found = find(address);
    if found == Some(false)
        && !MISSED.load(Ordering::Relaxed)
        && !MISSED.swap(true, Ordering::Relaxed)
    {
        wakeup::ring();
    }
    found == Some(true)
}

/// Returns true if a range contains the address. `None`: the ranges were being rewritten.
fn find(address: u64) -> Option<bool> {
    let version = VERSION.load(Ordering::Acquire);
    let ranges = &RANGES[..COUNT.load(Ordering::Relaxed).min(MAX_RANGES)];
    let after = ranges.partition_point(|[start, _]| start.load(Ordering::Relaxed) <= address);
    let found = after
        .checked_sub(1)
        .is_some_and(|at| address < ranges[at][1].load(Ordering::Relaxed));
    fence(Ordering::Acquire); // before the version is read again
    let is_one = version & 1 == 0 && VERSION.load(Ordering::Relaxed) == version;
    is_one.then_some(found)
}

impl ScanSchedule {
    pub(crate) fn new() -> ScanSchedule {
        ScanSchedule {
            next_ns: 0,
            wait_ns: WAIT_NS,
            next_idle_ns: 0,
            is_missed: false,
            scan: None,
        }
    }

    /// Returns the time at which a scan is due for a waiting walk, or the maximum if no walk
    /// waits.
    pub(crate) fn due_ns(&self) -> u64 {
        match MISSED.load(Ordering::Relaxed) {
            true => self.next_ns,
            false => u64::MAX,
        }
    }

    /// In each round of the writer: reads a chunk of the list, if a scan is due. Returns true if
    /// more chunks follow.
    pub(crate) fn scan_if_due(&mut self, now_ns: u64) -> bool {
        if self.scan.is_none() {
            let next_ns = self.due_ns().min(self.next_idle_ns);
            if now_ns < next_ns {
                return false;
            }
            // Cleared before the scan: code that is missed from now on may be mapped after its
            // line was read.
            let is_queried = QUERIED.swap(false, Ordering::Relaxed);
            self.is_missed = MISSED.swap(false, Ordering::Relaxed);
            if !is_queried && !self.is_missed {
                return false;
            }
            self.scan = procfs::mappings().map(ListScan::of);
        }
        if let Some(scan) = &mut self.scan
            && scan.read_chunks()
        {
            return true;
        }
        let (ranges, bytes) = self.scan.take().map_or((vec![], 0), ListScan::finish);
        if replace(&ranges) {
            self.wait_ns = WAIT_NS;
        } else if self.is_missed {
            self.wait_ns = (2 * self.wait_ns).min(LONGEST_WAIT_NS);
        }
        let cost_ns = WAIT_NS_A_BYTE * bytes;
        self.next_ns = now_ns + self.wait_ns.max(cost_ns);
        self.next_idle_ns = now_ns + IDLE_WAIT_NS.max(cost_ns);
        false
    }
}

/// A scan of the kernel's list in chunks. Between two chunks the writer does work that hooks may
/// wait for, because a long list takes longer than that work can wait.
struct ListScan {
    file: File,
    bytes: u64,
    /// The start of an incomplete line.
    rest: Vec<u8>,
    /// The executable ranges, joined if they touch.
    ranges: Vec<Range<u64>>,
    /// The list is useless: it could not be read, or all of the program's memory is executable on
    /// request (READ_IMPLIES_EXEC).
    is_useless: bool,
}

impl ListScan {
    fn of(file: File) -> ListScan {
        ListScan {
            file,
            bytes: 0,
            rest: Vec::new(),
            ranges: Vec::new(),
            is_useless: false,
        }
    }

    /// Reads the next chunks. Returns false at the end.
    fn read_chunks(&mut self) -> bool {
        // In the program's descriptor table, a descriptor is held for one operation only (Law 9).
        let chunks = match fd_table::is_separate() {
            true => CHUNKS_AT_A_TIME,
            false => usize::MAX,
        };
        let mut chunk = [0; 4096];
        for _ in 0..chunks {
            match self.file.read_at(self.bytes, &mut chunk) {
                Ok(0) => return false,
                Ok(read) => {
                    self.bytes += read as u64;
                    self.rest.extend_from_slice(&chunk[..read]);
                    self.parse_lines();
                }
                Err(Errno(libc::EINTR)) => {}
                Err(_) => {
                    self.is_useless = true;
                    return false;
                }
            }
        }
        true
    }

    fn parse_lines(&mut self) {
        let data = RANGES.as_ptr() as u64;
        let end = self.rest.iter().rposition(|&byte| byte == b'\n');
        let end = end.map_or(0, |at| at + 1);
        for mapping in String::from_utf8_lossy(&self.rest[..end])
            .lines()
            .filter_map(Mapping::parse)
            .filter(|mapping| mapping.perms.contains('x'))
        {
            self.is_useless |= (mapping.start..mapping.end).contains(&data);
            let is_full = self.ranges.len() == MAX_RANGES;
            match self.ranges.last_mut() {
                Some(last) if last.end == mapping.start => last.end = mapping.end,
                _ if is_full => {}
                _ => self.ranges.push(mapping.start..mapping.end),
            }
        }
        self.rest.drain(..end);
    }

    /// Returns the ranges, and the number of bytes read.
    fn finish(self) -> (Vec<Range<u64>>, u64) {
        match self.is_useless {
            true => (vec![], self.bytes),
            false => (self.ranges, self.bytes),
        }
    }
}

/// Replaces the ranges. Only the writer calls this, and in a forked child the child's writer.
/// Returns false if they are unchanged.
fn replace(ranges: &[Range<u64>]) -> bool {
    let present = RANGES[..COUNT.load(Ordering::Relaxed)]
        .iter()
        .map(|[start, end]| start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed));
    let before = VERSION.load(Ordering::Relaxed);
    if before & 1 == 0 && present.eq(ranges.iter().cloned()) {
        return false;
    }
    let version = before | 1; // already odd in a child that was forked in the middle
    VERSION.store(version, Ordering::Relaxed);
    fence(Ordering::Release); // before any of the stores below
    for ([start, end], range) in RANGES.iter().zip(ranges) {
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
    }
    COUNT.store(ranges.len(), Ordering::Relaxed);
    VERSION.store(version + 1, Ordering::Release);
    true
}
