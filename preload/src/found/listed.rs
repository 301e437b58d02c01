//! The loader's list of modules, read by the kernel: for a glibc that has no `_dl_find_object` (before 2.35).
//!
//! Danger: another thread changes the list meanwhile, and frees what was in it. So nothing is read but by way of `memory.rs`, what was
//! read is believed only as far as it can be checked, and a list that does not end as lists do is no answer.
//!
//! The loader's lock is not taken, as by its own function `dl_iterate_phdr`: a thread that allocates inside the loader would wait for itself. But a reading
//! takes three system calls for each module. So it is read when something was opened since, and else seldom: walks through code that was
//! made at run time meet unknown addresses all the time ([`is_worth_a_look`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Found, LinkMap};
use crate::memory::Memory;
use crate::{clock, loaded};

/// Between two readings: at first, and at most, twice as long after each that was of no use. What was not opened by the exported `dlopen` (libc opens
/// character set converters and name services past it) is found so late.
const WAIT_NS: u64 = 20_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// A list that goes on beyond so many is none.
const MOST: usize = 1 << 16;

/// Something was opened since the last reading.
static OPENED: AtomicBool = AtomicBool::new(false);
/// When to look again though nothing was, and how long was waited for that.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(WAIT_NS);

/// To be called before every `dlopen`, which it may be too early for: then the next reading is a wait away.
pub(crate) fn something_opens() {
    OPENED.store(true, Ordering::Release);
}

/// Whether a walk that has come to unknown code shall have the list read. Yes is said once.
pub(super) fn is_worth_a_look() -> bool {
    let now = clock::now_ns();
    if !OPENED.swap(false, Ordering::AcqRel) && now < NEXT_NS.load(Ordering::Relaxed) {
        return false;
    }
    let wait = WAITED_NS.load(Ordering::Relaxed);
    NEXT_NS.store(now + wait, Ordering::Relaxed);
    WAITED_NS.store((2 * wait).min(LONGEST_WAIT_NS), Ordering::Relaxed);
    true
}

/// It was worth it: more may follow.
pub(super) fn was_worth_it() {
    WAITED_NS.store(WAIT_NS, Ordering::Relaxed);
}

/// The modules of the program's name space. (In one that `dlmopen` makes nothing of ours is called.)
pub(crate) struct List(Vec<Found>);

impl List {
    /// `None`: it is being changed.
    pub(super) fn read(memory: &Memory) -> Option<List> {
        let mut modules = Vec::new();
        let mut next = loaded::first();
        for _ in 0..MOST {
            if next == 0 {
                return Some(List(modules));
            }
            let map: LinkMap = memory.value(next)?;
            modules.extend(module(memory, next, &map));
            next = map.next as u64;
        }
        None
    }

    pub(super) fn all(self) -> Vec<Found> {
        self.0
    }

    pub(super) fn at(&self, address: u64) -> Option<Found> {
        let holds = |found: &&Found| (found.map_start..found.map_end).contains(&address);
        self.0.iter().find(holds).copied()
    }
}

/// One that lies in memory as linkers lay out shared objects, its file's header first. `None`: another, as programs are that cannot be moved; those
/// are known from the start.
fn module(memory: &Memory, at: u64, map: &LinkMap) -> Option<Found> {
    let header: libc::Elf64_Ehdr = memory.value(map.bias)?;
    let headers = super::headers_at(map.bias, memory, &header)?;
    let mapped = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD;
    let start = headers.iter().filter(mapped).map(|it| it.p_vaddr).min()?;
    let end = headers
        .iter()
        .filter(mapped)
        .map(|it| it.p_vaddr.saturating_add(it.p_memsz))
        .max()?;
    let table = headers.iter().find(|it| it.p_type == libc::PT_GNU_EH_FRAME);
    (start & !4095 == 0).then_some(Found {
        flags: 0,
        map_start: map.bias,
        map_end: map.bias.checked_add(end)?,
        link_map: at as *const LinkMap,
        eh_frame_hdr: table.map_or(0, |it| map.bias.wrapping_add(it.p_vaddr)),
        reserved: [0; 7],
    })
}
