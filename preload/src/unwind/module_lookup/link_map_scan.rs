//! The link map scan: the loader's list of modules, read by the kernel, for a glibc without
//! `_dl_find_object` (before 2.35).
//!
//! Danger: another thread may change the list meanwhile, and free its nodes. So all reads are
//! checked reads, and values are trusted only as far as they can be verified. A list without a
//! proper end counts as unreadable.
//!
//! The loader's lock is not taken, unlike in `dl_iterate_phdr`: a thread that allocates inside the
//! loader would wait for itself. A scan costs some system calls for each module. So the list is
//! scanned after a dlopen, and otherwise seldom: walks through code made at run time meet unknown
//! addresses all the time ([`begin_scan_if_due`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::FoundModule;
use crate::os::{clock, link_map};
use crate::unwind::checked_read::Memory;

/// Time between two scans, at first and at most. It doubles after each scan without a result. A
/// module that is not opened by the exported `dlopen` (libc opens character set converters and name
/// services internally) is found with this delay.
const WAIT_NS: u64 = 1_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// Time after the start of a dlopen in which the module may still be missing from the list. During
/// it, the time between two scans stays the shortest.
const OPENING_NS: u64 = 100_000_000;

/// Most nodes of a valid list.
const MOST: usize = 1 << 16;

/// A module was opened after the last scan, or the last scan failed because of another thread.
static HAS_OPENED: AtomicBool = AtomicBool::new(false);
/// Time of the last dlopen.
static OPENED_NS: AtomicU64 = AtomicU64::new(0);
/// Time of the next scan without a dlopen, and the wait that led to it.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
static LAST_WAIT_NS: AtomicU64 = AtomicU64::new(WAIT_NS);

/// Called before every `dlopen`: makes the next unknown address start a scan.
pub(crate) fn note_dlopen() {
    OPENED_NS.store(clock::now_ns(), Ordering::Relaxed);
    HAS_OPENED.store(true, Ordering::Release);
}

/// Longest time for which other threads wait for a scan. Copying the tables of a large module takes
/// milliseconds.
const SCAN_NS: u64 = 100_000_000;

/// Time until which a scan lasts at most. 0: no scan is under way.
static SCANNING_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// A guard for the time of a scan.
pub(crate) struct Scan {
    until_ns: u64,
}

impl Drop for Scan {
    fn drop(&mut self) {
        // If another scan has begun meanwhile, its end is its own.
        if self.until_ns != 0 {
            let (until, relaxed) = (self.until_ns, Ordering::Relaxed);
            let _ = SCANNING_UNTIL_NS.compare_exchange(until, 0, Ordering::Release, relaxed);
        }
    }
}

/// Notes that the list is being changed, so that it is scanned again.
pub(super) fn note_change() {
    HAS_OPENED.store(true, Ordering::Release);
}

/// Returns a guard if a walk at unknown code should scan the list. One thread gets it, and threads
/// that come during its scan, because the scan may find their modules, too.
pub(super) fn begin_scan_if_due() -> Option<Scan> {
    let now = clock::now_ns();
    let is_opened = HAS_OPENED.swap(false, Ordering::AcqRel);
    if !is_opened && now < NEXT_NS.load(Ordering::Relaxed) {
        let until_ns = SCANNING_UNTIL_NS.load(Ordering::Acquire);
        return (now < until_ns).then_some(Scan { until_ns });
    }
    let until_ns = now + SCAN_NS;
    SCANNING_UNTIL_NS.store(until_ns, Ordering::Release);
    let is_opening = now.saturating_sub(OPENED_NS.load(Ordering::Relaxed)) < OPENING_NS;
    let wait = match is_opening {
        true => WAIT_NS,
        false => LAST_WAIT_NS.load(Ordering::Relaxed),
    };
    NEXT_NS.store(now + wait, Ordering::Relaxed);
    LAST_WAIT_NS.store((2 * wait).min(LONGEST_WAIT_NS), Ordering::Relaxed);
    Some(Scan { until_ns })
}

/// Returns a guard without a scan, for a glibc that needs none.
pub(super) fn no_scan() -> Scan {
    Scan { until_ns: 0 }
}

/// Shortens the wait after a successful scan, because more modules may follow.
pub(super) fn reset_wait() {
    LAST_WAIT_NS.store(WAIT_NS, Ordering::Relaxed);
}

/// Returns true if the list has a module whose start address is not known. The nodes are blocks
/// that the loader got from malloc, whose memory is not unmapped. So they are read without a
/// descriptor, which a program might lack at that time if its walks often meet unknown code.
pub(super) fn has_unknown_module(is_known: impl Fn(u64) -> bool) -> bool {
    let memory = Memory::without_descriptor();
    let mut next = link_map::first();
    for count in 0..MOST {
        if next == 0 {
            return false;
        }
        let Some(map) = memory.value::<link_map::Module>(next) else {
            break;
        };
        // The first is the program, which is known from the start, and may have no bias.
        if count > 0 && !is_known(map.bias as u64) {
            return true;
        }
        next = map.next as u64;
    }
    note_change();
    false
}

/// The modules of the program's namespace. (In a namespace of `dlmopen`, none of our functions are
/// called.)
pub(crate) struct List(Vec<FoundModule>);

impl List {
    /// Scans the list. `None`: it is being changed.
    pub(super) fn read(memory: &Memory) -> Option<List> {
        let list = List::read_nodes(memory);
        if list.is_none() {
            note_change();
        }
        list
    }

    fn read_nodes(memory: &Memory) -> Option<List> {
        let mut modules = Vec::new();
        let mut next = link_map::first();
        for _ in 0..MOST {
            if next == 0 {
                return Some(List(modules));
            }
            let map: link_map::Module = memory.value(next)?;
            modules.extend(module(memory, next, &map));
            next = map.next as u64;
        }
        None
    }

    pub(super) fn all(self) -> Vec<FoundModule> {
        self.0
    }

    pub(super) fn at(&self, address: u64) -> Option<FoundModule> {
        let holds = |found: &&FoundModule| (found.map_start..found.map_end).contains(&address);
        self.0.iter().find(holds).copied()
    }
}

/// Returns the module of a node, if its memory begins with its ELF header, as linkers lay out
/// shared objects. `None`: it has another layout, like programs at fixed addresses, which are known
/// from the start.
fn module(memory: &Memory, at: u64, map: &link_map::Module) -> Option<FoundModule> {
    let bias = map.bias as u64;
    let header: libc::Elf64_Ehdr = memory.value(bias)?;
    let headers = super::headers_at(bias, memory, &header)?;
    let mapped = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD;
    let start = headers.iter().filter(mapped).map(|it| it.p_vaddr).min()?;
    let end = headers
        .iter()
        .filter(mapped)
        .map(|it| it.p_vaddr.saturating_add(it.p_memsz))
        .max()?;
    let table = headers.iter().find(|it| it.p_type == libc::PT_GNU_EH_FRAME);
    (start & !4095 == 0).then_some(FoundModule {
        flags: 0,
        map_start: bias,
        map_end: bias.checked_add(end)?,
        link_map: at as *const link_map::Module,
        eh_frame_hdr: table.map_or(0, |it| bias.wrapping_add(it.p_vaddr)),
        reserved: [0; 7],
    })
}
