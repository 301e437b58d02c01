//! Presence: whether the process of a log runs on this machine, as its program, and since when.
//!
//! A number alone says little: it may be another process's by now, or one of another container.

use std::io;
use std::time::Duration;

/// A log that has not changed for so long, of a process that cannot be seen, is a process's that is
/// gone.
const SILENCE: Duration = Duration::from_secs(60);

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

/// The sight of a process, at the last look and before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Presence {
    pid: u32,
    is_there: Option<bool>,
    /// Whether it was seen: its number is one of this machine's, then.
    was_there: bool,
}

impl Presence {
    /// Looks at the process of that number and program.
    pub(crate) fn look(&mut self, pid: u32, program: &str) {
        let is_there = is_there(pid, program);
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

/// Whether a process of that number and program runs here; `None`: that cannot be told.
pub(crate) fn is_there(pid: u32, program: &str) -> Option<bool> {
    if pid == 0 {
        return None;
    }
    match std::fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(exe) => {
            let exe = exe.to_string_lossy();
            Some(exe.strip_suffix(" (deleted)").unwrap_or(&exe) == program)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
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
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one time; the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
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
        assert_eq!(is_there(std::process::id(), own), Some(true));
        assert_eq!(is_there(std::process::id(), "/bin/other"), Some(false));
        assert_eq!(is_there(0, own), None);
        assert_eq!(is_there(u32::MAX, own), Some(false));
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
        assert!(monotonic_ns() > 0);
    }

    #[test]
    fn a_process_runs_until_its_log_ends_or_it_is_gone() {
        let exe = std::env::current_exe().unwrap();
        let exe = exe.to_str().unwrap();
        let (pid, long, short) = (std::process::id(), Some(SILENCE * 2), Some(SILENCE / 2));
        let mut presence = Presence::default();
        // Another container's number, for all that is known: silence tells.
        presence.look(pid, "/another");
        assert_eq!(presence.life(false, long), Life::Gone);
        assert_eq!(presence.life(false, short), Life::Running);
        assert_eq!(presence.resident_bytes(), None);
        presence.look(pid, exe);
        assert_eq!(presence.life(false, long), Life::Running);
        assert_eq!(presence.life(true, None), Life::Ended);
        assert!(presence.resident_bytes().is_some_and(|bytes| bytes > 0));
        // It was seen, and is not seen any more.
        presence.look(pid, "/another");
        assert_eq!(presence.life(false, short), Life::Gone);
        // Another process has the log's path by now.
        presence.look(u32::MAX, exe);
        assert_eq!(presence.life(false, short), Life::Running);
    }
}
