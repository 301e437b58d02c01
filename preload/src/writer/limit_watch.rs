//! Limit watch: the memory limit that is used most, and the shares of it that the log tells.
//!
//! The limits are those of the cgroup with the least room, and that of the address space. Pages of
//! files do not count as used, because the kernel takes these back before it kills a process.
//!
//! A regular reading comes about once a second, and growth may pass a share of the limit in less.
//! So the watch looks at the used bytes alone twice a second, and sooner if the growth is about to
//! cross a share (`LimitAlarm`). While the process has no event, the writer sleeps, and the watch
//! does not look.

use heapprof_core::{CpuShare, LimitAlarm};
use heapprof_format::{MemoryField as Field, MemoryReading};

use crate::os::memory_limits::{self, CgroupMemory, LimitedCgroup};
use crate::os::{clock, procfs};

/// The part of a processor's time that looks take at most, one in so many. They come near it only
/// while the growth nears a share.
const LOOKS: u64 = 1_000;
/// When the limit is searched for first, after the start. A program that ends earlier does not pay
/// for it.
const FIRST_NS: u64 = 100_000_000;

/// A limit of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The cgroup's `memory.max`, or in version 1 `memory.limit_in_bytes`.
    CgroupMax,
    /// The cgroup's `memory.high`.
    CgroupHigh,
    /// `RLIMIT_AS`.
    AddressSpace,
}

/// Used bytes of a limit, and its bytes.
#[derive(Debug, Clone, Copy)]
struct Use {
    limit: Limit,
    used: u64,
    most: u64,
}

/// See the module's text.
pub(super) struct LimitWatch {
    cgroup: Option<LimitedCgroup>,
    /// The numbers of the cgroup when it was found.
    first_of_cgroup: CgroupMemory,
    /// The numbers of the cgroup that the last search has read, for the reading that follows.
    searched: Option<CgroupMemory>,
    /// The limit that was used most when all were read.
    nearest: Option<Use>,
    alarm: LimitAlarm,
    next_look_ns: u64,
    looks: CpuShare,
    is_searched: bool,
}

impl LimitWatch {
    /// Returns a watch that begins a little later.
    pub(super) fn new(now_ns: u64) -> LimitWatch {
        LimitWatch {
            cgroup: None,
            first_of_cgroup: CgroupMemory::default(),
            searched: None,
            nearest: None,
            alarm: LimitAlarm::default(),
            next_look_ns: now_ns.saturating_add(FIRST_NS),
            looks: CpuShare::one_in(LOOKS),
            is_searched: false,
        }
    }

    /// Looks at the limit if it is time to. Returns true if a share of it is crossed that
    /// [`alarms`](Self::alarms) has not told.
    pub(super) fn is_crossed(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_look_ns || !self.looks.allows(now_ns) {
            return false;
        }
        if !self.is_searched {
            // Once. Each detail searches again, within its own share.
            self.search();
            let mut reading = MemoryReading::at(0);
            reading.set(Field::Virtual, procfs::virtual_bytes());
            self.read(&mut reading);
        }
        let began_ns = clock::thread_ns();
        let nearest = self.nearest.map(|it| (self.used(it), it.most));
        let next_ns = match nearest {
            Some((Some(used), most)) => self.alarm.look(used, most, now_ns),
            _ => Some(u64::MAX), // until a reading finds one
        };
        self.next_look_ns = next_ns.unwrap_or(now_ns);
        let ran_ns = clock::thread_ns().saturating_sub(began_ns);
        self.looks.ran(ran_ns, now_ns);
        next_ns.is_none()
    }

    /// Searches for the cgroup with the least room.
    pub(super) fn search(&mut self) {
        self.is_searched = true;
        let found = LimitedCgroup::search();
        let found = found.map(|(cgroup, limits)| (cgroup.with_events(limits), cgroup));
        let (memory, cgroup) = found.unzip();
        if let (Some(memory), Some(cgroup)) = (memory, &cgroup)
            && !self.cgroup.as_ref().is_some_and(|last| last.is(cgroup))
        {
            self.first_of_cgroup = memory;
        }
        (self.searched, self.cgroup) = (memory, cgroup);
    }

    /// Reads the limits, and the use of the cgroup's, into a reading.
    pub(super) fn read(&mut self, reading: &mut MemoryReading) {
        if let Some(cgroup) = &self.cgroup {
            let memory = self.searched.take().unwrap_or_else(|| cgroup.read());
            let memory = memory.since(self.first_of_cgroup);
            reading.set(Field::CgroupUsed, memory.used);
            reading.set(Field::CgroupFiles, memory.files);
            reading.set(Field::CgroupMax, memory.max);
            reading.set(Field::CgroupHigh, memory.high);
            reading.set(Field::CgroupHighEvents, memory.high_events);
            reading.set(Field::CgroupMaxEvents, memory.max_events);
            reading.set(Field::CgroupKills, memory.kills);
        }
        reading.set(Field::AddressSpaceMax, memory_limits::of_address_space());
        let nearest = nearest_in(reading);
        if nearest.map(|it| it.limit) != self.nearest.map(|it| it.limit) {
            self.next_look_ns = 0;
        }
        self.nearest = nearest;
    }

    /// Returns lines about the limit of which shares are crossed that have not been told, the
    /// lowest share first.
    pub(super) fn alarms(&mut self, reading: &MemoryReading) -> Vec<String> {
        let Some(Use { limit, used, most }) = nearest_in(reading) else {
            return Vec::new();
        };
        let name = match limit {
            Limit::CgroupMax => reading.cgroup_limit(),
            Limit::CgroupHigh => "the cgroup's memory.high",
            Limit::AddressSpace => "the address space (RLIMIT_AS)",
        };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (used_mib, most_mib) = (mib(used), mib(most));
        let line = |percent| {
            format!("memory at {percent} % of {name}, {most_mib:.1} MiB: {used_mib:.1} MiB used")
        };
        self.alarm.check(used, most).iter().map(line).collect()
    }

    /// Returns the used bytes of a limit now, as far as the kernel cannot take them back.
    fn used(&self, of: Use) -> Option<u64> {
        match of.limit {
            Limit::CgroupMax | Limit::CgroupHigh => self.cgroup.as_ref()?.held(of.most),
            Limit::AddressSpace => procfs::virtual_bytes(),
        }
    }
}

/// Returns the limit that is used most.
fn nearest_in(reading: &MemoryReading) -> Option<Use> {
    let held = reading.cgroup_held();
    let limits = [
        (Limit::CgroupMax, held, Field::CgroupMax),
        (Limit::CgroupHigh, held, Field::CgroupHigh),
        (
            Limit::AddressSpace,
            reading.get(Field::Virtual),
            Field::AddressSpaceMax,
        ),
    ];
    let uses = limits.into_iter().filter_map(|(limit, used, most)| {
        let most = reading.get(most).filter(|&most| most > 0)?;
        Some(Use {
            limit,
            used: used?,
            most,
        })
    });
    uses.max_by_key(|it| u128::from(it.used) * 10_000 / u128::from(it.most))
}
