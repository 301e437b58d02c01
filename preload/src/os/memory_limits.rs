//! Memory limits of this process: those of its cgroup and the cgroups above it, and the limit of
//! its address space.
//!
//! The files of a cgroup that has no limit of its own are read at a search only. A search looks at
//! the cgroup and all above it, up to the mount, and keeps the one with the least room.

use std::ffi::CStr;
use std::io::Write as _;

use heapprof_core::{Cgroup, CgroupVersion, limit_in, number_of, only_number};

use crate::os::procfs;
use crate::os::seccomp::AvoidableCall;
use crate::os::sys::{self, File};

/// Most of the list of mounts that is read, in bytes.
const LONGEST_LIST: usize = 256 << 10;
/// Most cgroups from the process's own upwards that are read.
const MOST_LEVELS: usize = 16;

/// A cgroup with a limit, or without any the process's own.
pub(crate) struct LimitedCgroup {
    version: CgroupVersion,
    folder: String,
    /// The process's own cgroup, if it is another one below it of version 1. There, a killed
    /// process counts in its own cgroup alone.
    own: Option<String>,
}

/// Numbers of a cgroup, in bytes and numbers of events since it was made. `None`: unknown, or no
/// limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CgroupMemory {
    pub(crate) used: Option<u64>,
    /// Part of it in pages of files, known if there is a limit.
    pub(crate) files: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) high: Option<u64>,
    pub(crate) high_events: Option<u64>,
    pub(crate) max_events: Option<u64>,
    pub(crate) kills: Option<u64>,
}

impl CgroupMemory {
    /// Returns the numbers with the events since an earlier reading alone.
    pub(crate) fn since(self, earlier: CgroupMemory) -> CgroupMemory {
        let since = |now: Option<u64>, then: Option<u64>| {
            now.map(|now| now.saturating_sub(then.unwrap_or(0)))
        };
        CgroupMemory {
            high_events: since(self.high_events, earlier.high_events),
            max_events: since(self.max_events, earlier.max_events),
            kills: since(self.kills, earlier.kills),
            ..self
        }
    }

    /// Returns the bytes up to the nearer limit, without pages of files.
    fn room(&self) -> u64 {
        let files = self.files.unwrap_or(0);
        let held = self.used.map_or(0, |used| used.saturating_sub(files));
        let limits = self.max.into_iter().chain(self.high);
        let nearer = limits.min();
        nearer.map_or(u64::MAX, |limit| limit.saturating_sub(held))
    }
}

impl LimitedCgroup {
    /// Searches for the cgroup with the least room. Returns it with its bytes and limits, without
    /// the numbers of events.
    pub(crate) fn search() -> Option<(LimitedCgroup, CgroupMemory)> {
        let text = |file: &str, most: usize| {
            let mut read = |file: File| file.read_up_to(most, 0).ok().filter(|it| !it.is_empty());
            let text = procfs::in_file_of_process(file, &mut read)?;
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        let (member, mounts) = (text("cgroup", 4096)?, text("mountinfo", LONGEST_LIST)?);
        let cgroup = Cgroup::find(&member, &mounts)?;
        let version = cgroup.version;
        let own = cgroup.folders().next();
        let own = own.filter(|_| version == CgroupVersion::One);
        let levels = cgroup.folders().take(MOST_LEVELS);
        let levels = levels.map(|folder| LimitedCgroup {
            version,
            own: own.clone().filter(|own| *own != folder),
            folder,
        });
        let with_room = levels.filter_map(|level| {
            let memory = level.limits();
            memory.used.map(|_| (level, memory))
        });
        with_room.min_by_key(|(_, memory)| memory.room())
    }

    fn used(&self) -> Option<u64> {
        only_number(self.file(
            match self.version {
                CgroupVersion::One => "memory.usage_in_bytes",
                CgroupVersion::Two => "memory.current",
            },
            &mut [0; 64],
        ))
    }

    /// Returns true if both are the same cgroup.
    pub(crate) fn is(&self, other: &LimitedCgroup) -> bool {
        self.folder == other.folder
    }

    /// Returns the bytes in pages of files, of the cgroup and all below it. The kernel takes these
    /// back before it kills a process.
    fn files(&self) -> Option<u64> {
        const LONGEST: usize = 8 << 10;
        let names = match self.version {
            CgroupVersion::One => ["total_inactive_file", "total_active_file"],
            CgroupVersion::Two => ["inactive_file", "active_file"],
        };
        let mut place = [0; LONGEST];
        let stat = self.file("memory.stat", &mut place);
        let [inactive, active] = names.map(|name| number_of(stat, name));
        Some(inactive?.saturating_add(active?))
    }

    /// Returns the used bytes without pages of files. Below three quarters of `limit`, pages of
    /// files count as used: reading their number takes longer.
    pub(crate) fn held(&self, limit: u64) -> Option<u64> {
        let used = self.used()?;
        let files = match used < limit / 4 * 3 {
            true => 0,
            false => self.files().unwrap_or(0),
        };
        Some(used.saturating_sub(files))
    }

    /// Reads the used bytes and the limits.
    fn limits(&self) -> CgroupMemory {
        let mut place = [0; 64];
        let mut limit = |name| limit_in(self.file(name, &mut place));
        let (max, high) = match self.version {
            CgroupVersion::One => (limit("memory.limit_in_bytes"), None),
            CgroupVersion::Two => (limit("memory.max"), limit("memory.high")),
        };
        CgroupMemory {
            used: self.used(),
            files: max.or(high).and_then(|_| self.files()),
            max,
            high,
            ..CgroupMemory::default()
        }
    }

    /// Reads the numbers. Takes no memory.
    pub(crate) fn read(&self) -> CgroupMemory {
        self.with_events(self.limits())
    }

    /// Reads the numbers of events, and adds them to the others.
    pub(crate) fn with_events(&self, limits: CgroupMemory) -> CgroupMemory {
        if self.version == CgroupVersion::One {
            return CgroupMemory {
                max_events: only_number(self.file("memory.failcnt", &mut [0; 64])),
                kills: self.kills(),
                ..limits
            };
        }
        let mut events = [0; 512];
        let events = self.file("memory.events", &mut events);
        CgroupMemory {
            high_events: number_of(events, "high"),
            max_events: number_of(events, "max"),
            kills: number_of(events, "oom_kill"),
            ..limits
        }
    }

    /// Returns the processes of the cgroup that the kernel has killed, of version 1.
    fn kills(&self) -> Option<u64> {
        let in_folder = |folder: &str| {
            let mut place = [0; 256];
            let read = file_in(folder, "memory.oom_control", &mut place);
            number_of(read, "oom_kill")
        };
        let own = self.own.as_deref().and_then(in_folder).unwrap_or(0);
        Some(in_folder(&self.folder)?.saturating_add(own))
    }

    /// Returns the beginning of a file; empty if there is none.
    fn file<'a>(&self, name: &str, place: &'a mut [u8]) -> &'a [u8] {
        file_in(&self.folder, name, place)
    }
}

/// Returns the beginning of a file in a folder; empty if there is none.
fn file_in<'a>(folder: &str, name: &str, place: &'a mut [u8]) -> &'a [u8] {
    const LONGEST_PATH: usize = 1024;
    let mut path = [0u8; LONGEST_PATH];
    let read = write!(&mut path[..LONGEST_PATH - 1], "{folder}/{name}")
        .ok()
        .and_then(|()| CStr::from_bytes_until_nul(&path).ok())
        .and_then(|path| File::open(path, libc::O_RDONLY, 0).ok())
        .map_or(0, |file| file.read_into(place));
    &place[..read]
}

/// Returns the limit of the address space, if there is one and it may be asked for.
pub(crate) fn of_address_space() -> Option<u64> {
    AvoidableCall::MemoryQuery
        .is_allowed()
        .then(sys::address_space_limit)?
}
