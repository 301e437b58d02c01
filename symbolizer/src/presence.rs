//! Presence: whether the process of a log runs on this machine, as its program, and since when.
//!
//! A number alone says little: it may be another process's by now, or one of another container.

use std::io;
use std::time::Duration;

/// A log that has not changed for so long, of a process that cannot be seen, is a process's that is
/// gone.
const SILENCE: Duration = Duration::from_secs(60);
/// The kernel's time of a process's start is exact to a tick, and its clocks are read one after the
/// other.
const SLACK_NS: u64 = 1_000_000_000;

/// Whether a process runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Running,
    /// The log says so.
    Ended,
    /// The log has no end, and no such process is seen.
    Gone,
}

impl Life {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Life::Running => "running",
            Life::Ended => "ended",
            Life::Gone => "gone",
        }
    }
}

/// When a log began, by the two clocks of its machine; 0: unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Began {
    pub(crate) wall_ns: u64,
    pub(crate) monotonic_ns: u64,
}

/// The sight of a process, at the last look and before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Presence {
    pid: u32,
    is_there: Option<bool>,
    /// Whether it was seen: its number is one of this machine's, then.
    was_there: bool,
}

impl Presence {
    /// Looks at the process of that number and program, whose log began then.
    pub(crate) fn look(&mut self, pid: u32, program: &str, began: Began) {
        let is_there = is_there(pid, program, began);
        let was_there = self.was_there && self.pid == pid;
        *self = Presence {
            pid,
            is_there,
            was_there: was_there || is_there == Some(true),
        };
    }

    /// Whether it runs. `silence` is the time since its log was last written, if that is known.
    pub(crate) fn life(&self, has_ended: bool, silence: Option<Duration>) -> Life {
        match self.is_there {
            _ if has_ended => Life::Ended,
            Some(true) => Life::Running,
            Some(false) if self.was_there => Life::Gone,
            _ if silence.is_some_and(|silence| silence < SILENCE) => Life::Running,
            _ => Life::Gone,
        }
    }

    /// Its resident bytes, if it runs here.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.is_there.filter(|is_there| *is_there)?;
        resident_bytes(self.pid)
    }
}

/// Whether the process of that number and program runs here, whose log began then; `None`: that
/// cannot be told.
pub(crate) fn is_there(pid: u32, program: &str, began: Began) -> Option<bool> {
    if pid == 0 {
        return None;
    }
    match std::fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(exe) => {
            let exe = exe.to_string_lossy();
            let is_program = exe.strip_suffix(" (deleted)").unwrap_or(&exe) == program;
            Some(is_program && !is_younger(pid, began))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
}

/// Whether a process began after a log, which is another one's then: its number and its program are
/// those of one before. A container's next first process is such.
///
/// Both clocks must say so. The wall clock alone may have been set; the monotonic clock alone may
/// be that of another time namespace.
fn is_younger(pid: u32, log: Began) -> bool {
    let Some(age) = age_of(pid) else {
        return false;
    };
    let is_longer_ago =
        |now: u64, then: u64| then != 0 && now.saturating_sub(then) > age.saturating_add(SLACK_NS);
    is_longer_ago(clock_ns(libc::CLOCK_MONOTONIC), log.monotonic_ns)
        && is_longer_ago(clock_ns(libc::CLOCK_REALTIME), log.wall_ns)
}

/// For how long a process runs, in nanoseconds, with the time in which the machine slept.
fn age_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the start is the 20th field behind it.
    let (_, behind) = stat.rsplit_once(')')?;
    let ticks: u64 = behind.split_ascii_whitespace().nth(19)?.parse().ok()?;
    // SAFETY: a system call without memory.
    let a_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    let began_ns = ticks.checked_mul(1_000_000_000 / a_second.max(1))?;
    Some(clock_ns(libc::CLOCK_BOOTTIME).saturating_sub(began_ns))
}

/// Resident bytes of a process.
fn resident_bytes(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: a system call without memory.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.checked_mul(u64::try_from(page).ok()?)
}

/// The monotonic clock of this machine, in nanoseconds: that of the logs that are written here.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one time; the clock exists.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Lets this process have as many open files as it may: it has one for each log that it follows.
pub fn raise_limit_of_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the limit, which the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the limit is initialised. If it fails, the old limit holds.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_under_its_own_program() {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        assert_eq!(
            is_there(std::process::id(), own, Began::default()),
            Some(true)
        );
        assert_eq!(
            is_there(std::process::id(), "/bin/other", Began::default()),
            Some(false)
        );
        assert_eq!(is_there(0, own, Began::default()), None);
        assert_eq!(is_there(u32::MAX, own, Began::default()), Some(false));
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
        assert!(monotonic_ns() > 0);
    }

    /// A number is given again, and the next process may be of the same program.
    #[test]
    fn a_process_that_began_after_the_log_is_another_one() {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        let age = age_of(std::process::id()).unwrap();
        assert!(age < 86_400_000_000_000, "{age}");
        let began = |before_ns: u64| Began {
            wall_ns: clock_ns(libc::CLOCK_REALTIME) - before_ns,
            monotonic_ns: monotonic_ns().saturating_sub(before_ns).max(1),
        };
        let is_there = |log: Began| is_there(std::process::id(), own, log);
        let (now, long_ago) = (began(0), began(age + 5_000_000_000));
        assert_eq!(is_there(now), Some(true));
        assert_eq!(is_there(long_ago), Some(false));
        // A clock that was set, and one of another namespace: one clock alone tells nothing.
        let wall_ns = long_ago.wall_ns;
        assert_eq!(is_there(Began { wall_ns, ..now }), Some(true));
        let monotonic_ns = long_ago.monotonic_ns;
        assert_eq!(
            is_there(Began {
                monotonic_ns,
                ..now
            }),
            Some(true)
        );
        assert_eq!(
            is_there(Began {
                wall_ns: 0,
                ..long_ago
            }),
            Some(true)
        );
    }

    #[test]
    fn a_process_runs_until_its_log_ends_or_it_is_gone() {
        let exe = std::env::current_exe().unwrap();
        let exe = exe.to_str().unwrap();
        let (pid, long, short) = (std::process::id(), Some(SILENCE * 2), Some(SILENCE / 2));
        let (mut presence, unknown) = (Presence::default(), Began::default());
        // Another container's number, for all that is known: silence tells.
        presence.look(pid, "/another", unknown);
        assert_eq!(presence.life(false, long), Life::Gone);
        assert_eq!(presence.life(false, short), Life::Running);
        assert_eq!(presence.resident_bytes(), None);
        presence.look(pid, exe, unknown);
        assert_eq!(presence.life(false, long), Life::Running);
        assert_eq!(presence.life(true, None), Life::Ended);
        assert!(presence.resident_bytes().is_some_and(|bytes| bytes > 0));
        // It was seen, and is not seen any more.
        presence.look(pid, "/another", unknown);
        assert_eq!(presence.life(false, short), Life::Gone);
        // Another process has the log's path by now.
        presence.look(u32::MAX, exe, unknown);
        assert_eq!(presence.life(false, short), Life::Running);
    }
}
