//! The loader's list of modules, read by the kernel: for a glibc that has no `_dl_find_object` (before 2.35).
//!
//! Danger: another thread changes the list meanwhile, and frees what was in it. So nothing is read but by way of `unwind/checked_read.rs`, what was
//! read is believed only as far as it can be checked, and a list that does not end as lists do is no answer.
//!
//! The loader's lock is not taken, as by its own function `dl_iterate_phdr`: a thread that allocates inside the loader would wait for itself. But a reading
//! takes some system calls for each module. So it is read when something was opened since, and else seldom: walks through code that was
//! made at run time meet unknown addresses all the time ([`is_worth_a_look`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Found, LinkMap};
use crate::os::{clock, link_map};
use crate::unwind::checked_read::Memory;

/// Between two readings: at first, and at most, twice as long after each that was of no use. What was not opened by the exported `dlopen` (libc opens
/// character set converters and name services past it) is found so late.
const WAIT_NS: u64 = 1_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// So long after something began to be opened it may still not be in the list; then no wait is longer than the shortest.
const OPENING_NS: u64 = 100_000_000;

/// A list that goes on beyond so many is none.
const MOST: usize = 1 << 16;

/// Something was opened since the last reading, or that was of no use because of another thread.
static OPENED: AtomicBool = AtomicBool::new(false);
/// When something was last opened.
static OPENED_NS: AtomicU64 = AtomicU64::new(0);
/// When to look again though nothing was, and how long was waited for that.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(WAIT_NS);

/// To be called before every `dlopen`.
pub(crate) fn something_opens() {
    OPENED_NS.store(clock::now_ns(), Ordering::Relaxed);
    OPENED.store(true, Ordering::Release);
}

/// So long at most is a look waited for by others who want the same: copying the tables of something large takes milliseconds.
const LOOK_NS: u64 = 100_000_000;

/// Until when somebody looks, at the latest. 0: nobody does.
static LOOKING_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// A look that is worth while, until its end.
pub(crate) struct Look {
    until_ns: u64,
}

impl Drop for Look {
    fn drop(&mut self) {
        // Unless another one has begun since, which has an end of its own.
        if self.until_ns != 0 {
            let (until, relaxed) = (self.until_ns, Ordering::Relaxed);
            let _ = LOOKING_UNTIL_NS.compare_exchange(until, 0, Ordering::Release, relaxed);
        }
    }
}

/// The list was being changed.
pub(super) fn is_changing() {
    OPENED.store(true, Ordering::Release);
}

/// Whether a walk that has come to unknown code shall have the list read. Yes is said to one thread, and to those that come while it
/// looks: it may find what they want.
pub(super) fn is_worth_a_look() -> Option<Look> {
    let now = clock::now_ns();
    let is_opened = OPENED.swap(false, Ordering::AcqRel);
    if !is_opened && now < NEXT_NS.load(Ordering::Relaxed) {
        let until_ns = LOOKING_UNTIL_NS.load(Ordering::Acquire);
        return (now < until_ns).then_some(Look { until_ns });
    }
    let until_ns = now + LOOK_NS;
    LOOKING_UNTIL_NS.store(until_ns, Ordering::Release);
    let is_opening = now.saturating_sub(OPENED_NS.load(Ordering::Relaxed)) < OPENING_NS;
    let wait = match is_opening {
        true => WAIT_NS,
        false => WAITED_NS.load(Ordering::Relaxed),
    };
    NEXT_NS.store(now + wait, Ordering::Relaxed);
    WAITED_NS.store((2 * wait).min(LONGEST_WAIT_NS), Ordering::Relaxed);
    Some(Look { until_ns })
}

/// Of a glibc that need not be looked for.
pub(super) fn no_look() -> Look {
    Look { until_ns: 0 }
}

/// It was worth it: more may follow.
pub(super) fn was_worth_it() {
    WAITED_NS.store(WAIT_NS, Ordering::Relaxed);
}

/// Whether the list has a module whose beginning is not known. Its nodes are blocks of the loader's, from malloc, whose memory is not unmapped; so they are
/// read without a descriptor, which a program whose walks meet unknown code again and again might miss just then.
pub(super) fn has_news(is_known: impl Fn(u64) -> bool) -> bool {
    let memory = Memory::without_descriptor();
    let mut next = link_map::first();
    for count in 0..MOST {
        if next == 0 {
            return false;
        }
        let Some(map) = memory.value::<LinkMap>(next) else {
            break;
        };
        // The first is the program, which is known from the start, and may have no bias.
        if count > 0 && !is_known(map.bias) {
            return true;
        }
        next = map.next as u64;
    }
    is_changing();
    false
}

/// The modules of the program's name space. (In one that `dlmopen` makes nothing of ours is called.)
pub(crate) struct List(Vec<Found>);

impl List {
    /// `None`: it is being changed.
    pub(super) fn read(memory: &Memory) -> Option<List> {
        let list = List::read_now(memory);
        if list.is_none() {
            is_changing();
        }
        list
    }

    fn read_now(memory: &Memory) -> Option<List> {
        let mut modules = Vec::new();
        let mut next = link_map::first();
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
