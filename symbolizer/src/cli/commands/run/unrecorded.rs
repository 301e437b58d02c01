//! Unrecorded process: one of the run that was large and left no log.
//!
//! The kernel tells the most resident bytes of any process that was waited for. If no log has as
//! many, the process was not recorded: it is statically linked, has other rights (setuid), or was
//! started without `LD_PRELOAD`. The kernel does not tell how many such processes there were.

use std::fmt;
use std::mem::MaybeUninit;
use std::path::PathBuf;

use heapprof_format::Counter;
use heapprof_symbolizer::{Bytes, Ending, Input, Measure, Metric, Profile};

/// Bytes that a process may have more than its log says. It may grow behind the last reading.
const LEAST: u64 = 8 << 20;
/// The same as a part of the bytes in the log, one in so many.
const PART: u64 = 10;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unrecorded {
    /// Its most resident bytes.
    resident: u64,
}

/// The most resident bytes of processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct MostResident {
    /// The number of this process before the run. A new process has as many up to its exec, and
    /// the kernel counts that.
    here: u64,
    /// The highest number of a process that this one has waited for, or one of these for another.
    of_children: u64,
}

impl MostResident {
    /// Before the run.
    pub(super) fn at_start() -> MostResident {
        MostResident {
            here: most_resident(libc::RUSAGE_SELF),
            of_children: 0,
        }
    }

    /// When all has been waited for.
    pub(super) fn at_end(self) -> MostResident {
        MostResident {
            of_children: most_resident(libc::RUSAGE_CHILDREN),
            ..self
        }
    }

    /// Finds an unrecorded process by the profile of all logs, and by the logs of what processes
    /// were before. `None`: each log says how much its process had at most, and one of them had as
    /// much; or a log has no end and may not say it.
    pub(super) fn unrecorded(&self, profile: &Profile, before: &[PathBuf]) -> Option<Unrecorded> {
        let is_said = |ending: &Ending| matches!(ending, Ending::Said(_));
        let parts = &profile.parts;
        if !is_said(&profile.run.ending) || !parts.iter().all(|part| is_said(&part.run.ending)) {
            return None;
        }
        let of_parts = parts.iter().map(|part| part.most_resident);
        let recorded = of_parts.chain(most_of(profile)).max()?;
        let resident = self.of_children;
        let exceeds = |known: u64| resident > known.saturating_add(known / PART + LEAST);
        if !exceeds(recorded.max(self.here)) {
            return None;
        }
        let read = |log: &PathBuf| most_of(&Input::open(log).ok()?.read(|_| {}).ok()?);
        let before = before.iter().filter_map(read).max();
        exceeds(before.unwrap_or(0)).then_some(Unrecorded { resident })
    }
}

/// Returns the most resident bytes by the log of one process.
fn most_of(profile: &Profile) -> Option<u64> {
    profile.account.counter(Counter::MostResidentBytes)
}

fn most_resident(whose: libc::c_int) -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes the structure. It fails only for a number that names nobody.
    unsafe { libc::getrusage(whose, usage.as_mut_ptr()) };
    // SAFETY: zeros are valid numbers, and the call fills them.
    let kib = unsafe { usage.assume_init() }.ru_maxrss;
    u64::try_from(kib).unwrap_or(0).saturating_mul(1024)
}

impl Unrecorded {
    /// Processes with so many resident bytes in all; `None`: these are too few to matter.
    pub(super) fn of_large(resident: u64) -> Option<Unrecorded> {
        (resident > LEAST).then_some(Unrecorded { resident })
    }

    /// Returns true if the number that is limited may exceed its limit by this process. `allowed`
    /// is in the number's unit.
    pub(super) fn may_exceed(self, profile: &Profile, measure: Measure, allowed: f64) -> bool {
        match measure {
            Measure::PeakBytes | Measure::Basic(Metric::InUseBytes) => {
                measure.total(profile).value + self.resident as f64 > allowed
            }
            _ => true,
        }
    }
}

impl fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a process with {} resident left no log, and smaller ones may have left none: statically linked, setuid, or started without LD_PRELOAD",
            Bytes(self.resident as f64)
        )
    }
}
