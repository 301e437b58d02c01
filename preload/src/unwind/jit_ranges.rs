//! Where code made at run time can be: executable memory, as the kernel lists it.
//!
//! Danger: one thread rewrites what others are reading. Each bound is an atomic, and a version says whether what was read belongs
//! together; whoever finds that it does not, knows nothing.
//!
//! Model: the list is read by the writer, now and then while walks ask, and as soon as it may once one did not find what it asked for: the first
//! that does not wakes it. Hooks ask here and nowhere else: reading the list takes a descriptor, a lock of the kernel's, and milliseconds where
//! there are many mappings; asking memory itself (is there a call before that address?) takes system calls in each walk that is led astray, and there
//! is none that neither faults nor waits. So the first walks through code that is new end in it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use heapprof_format::Mapping;

use crate::os::sys::{Errno, File};
use crate::os::{fd_table, procfs};
use crate::state::wakeup;

/// Ranges that are kept, in 16 KiB, which are there once they are used. Those of the lowest addresses.
const MOST: usize = 1 << 10;

/// Between a reading and one that somebody waits for: at first, and at most, twice as long after each that told nothing new.
const WAIT_NS: u64 = 20_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// And one that nobody waits for.
const CALM_NS: u64 = 1_000_000_000;
/// And for each byte of the list, of which reading takes some 20 ns: a hundred times that. Where there are 60,000 mappings, they are 3 MB. Not the
/// time that it took: our thread may have been out of its processor meanwhile.
const WAIT_NS_A_BYTE: u64 = 2_000;
/// Of 4 KiB at most: a millisecond.
const PIECES_AT_A_TIME: usize = 16;

/// First address and the one after the last, sorted; none touches the next.
static RANGES: [[AtomicU64; 2]; MOST] = [const { [const { AtomicU64::new(0) }; 2] }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd: they are being rewritten.
static VERSION: AtomicU64 = AtomicU64::new(0);
/// Somebody asked. What was found has to be looked for again, too: the code may be gone, and data may be in its place.
static ASKED: AtomicBool = AtomicBool::new(false);
/// And something was not found, since the last reading began. Who was the first has woken the writer.
static MISSED: AtomicBool = AtomicBool::new(false);

/// The writer's: when to look again.
pub(crate) struct Looked {
    /// At the earliest, if somebody waits for it.
    next_ns: u64,
    wait_ns: u64,
    /// If somebody asked, and found.
    next_calm_ns: u64,
    /// Somebody waits for what is being read.
    is_missed: bool,
    reading: Option<Reading>,
}

/// Whether `address` is known to be in executable memory.
pub(crate) fn holds(address: u64) -> bool {
    if !ASKED.load(Ordering::Relaxed) {
        ASKED.store(true, Ordering::Relaxed); // in others' caches once a reading, and not in each walk
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
            next_calm_ns: 0,
            is_missed: false,
            reading: None,
        }
    }

    /// When a reading is due that somebody waits for; the end of time: nobody does.
    pub(crate) fn due_ns(&self) -> u64 {
        match MISSED.load(Ordering::Relaxed) {
            true => self.next_ns,
            false => u64::MAX,
        }
    }

    /// In the writer, each time that it comes round: reads a piece of the list, if somebody asked. True: there is more.
    pub(crate) fn tend(&mut self, now_ns: u64) -> bool {
        if self.reading.is_none() {
            let next_ns = self.due_ns().min(self.next_calm_ns);
            if now_ns < next_ns {
                return false;
            }
            // Taken back before it is read: what is missed from here on may be mapped after its line was.
            let is_asked = ASKED.swap(false, Ordering::Relaxed);
            self.is_missed = MISSED.swap(false, Ordering::Relaxed);
            if !is_asked && !self.is_missed {
                return false;
            }
            self.reading = procfs::mappings().map(Reading::of);
        }
        if let Some(reading) = &mut self.reading
            && reading.goes_on()
        {
            return true;
        }
        let (ranges, bytes) = self.reading.take().map_or((vec![], 0), Reading::found);
        if replace(&ranges) {
            self.wait_ns = WAIT_NS;
        } else if self.is_missed {
            self.wait_ns = (2 * self.wait_ns).min(LONGEST_WAIT_NS);
        }
        let dear_ns = WAIT_NS_A_BYTE * bytes;
        self.next_ns = now_ns + self.wait_ns.max(dear_ns);
        self.next_calm_ns = now_ns + CALM_NS.max(dear_ns);
        false
    }
}

/// The kernel's list, read in pieces, between which the writer does what hooks may be waiting for: of 60,000 mappings all of it takes 40 ms.
struct Reading {
    file: File,
    bytes: u64,
    /// The beginning of a line.
    rest: Vec<u8>,
    /// What is listed as executable, joined where it touches.
    ranges: Vec<Range<u64>>,
    /// A program may ask for all of its memory to be executable (READ_IMPLIES_EXEC), or what came could not be read: then it says nothing.
    says_nothing: bool,
}

impl Reading {
    fn of(file: File) -> Reading {
        Reading {
            file,
            bytes: 0,
            rest: Vec::new(),
            ranges: Vec::new(),
            says_nothing: false,
        }
    }

    /// Reads on. False: that was all.
    fn goes_on(&mut self) -> bool {
        // In the program's table a number is held for one operation only (Law 9).
        let pieces = match fd_table::is_separate() {
            true => PIECES_AT_A_TIME,
            false => usize::MAX,
        };
        let mut piece = [0; 4096];
        for _ in 0..pieces {
            match self.file.read_at(self.bytes, &mut piece) {
                Ok(0) => return false,
                Ok(read) => {
                    self.bytes += read as u64;
                    self.rest.extend_from_slice(&piece[..read]);
                    self.take_lines();
                }
                Err(Errno(libc::EINTR)) => {}
                Err(_) => {
                    self.says_nothing = true;
                    return false;
                }
            }
        }
        true
    }

    fn take_lines(&mut self) {
        let data = RANGES.as_ptr() as u64;
        let end = self.rest.iter().rposition(|&byte| byte == b'\n');
        let end = end.map_or(0, |at| at + 1);
        for mapping in String::from_utf8_lossy(&self.rest[..end])
            .lines()
            .filter_map(Mapping::parse)
            .filter(|mapping| mapping.perms.contains('x'))
        {
            self.says_nothing |= (mapping.start..mapping.end).contains(&data);
            let is_full = self.ranges.len() == MOST;
            match self.ranges.last_mut() {
                Some(last) if last.end == mapping.start => last.end = mapping.end,
                _ if is_full => {}
                _ => self.ranges.push(mapping.start..mapping.end),
            }
        }
        self.rest.drain(..end);
    }

    /// And of how many bytes.
    fn found(self) -> (Vec<Range<u64>>, u64) {
        match self.says_nothing {
            true => (vec![], self.bytes),
            false => (self.ranges, self.bytes),
        }
    }
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
