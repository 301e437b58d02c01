//! Processes without a log that still run when the program has ended: what they take is in no
//! number.
//!
//! ```text
//!   session   shell, from before ─> heapprof run ─> program (ended)
//!                 └> another job                       ┊
//!   of init                                            └┄> child ─> grandchild
//! ```
//!
//! A process whose parent has ended is given to the nearest reaper, mostly init. So the kernel does
//! not tell of which run it is. Its environment does: `heapprof run` gives each run a mark, which
//! the program's children inherit. A process without an environment (`env -i`), or with one that
//! may not be read (setuid), counts as one of the run if it is of this session, began after the
//! program did, and was given to a reaper. So do the children of all these.
//!
//! A process without the library in its memory has no log, and neither has one with other rights,
//! whose memory cannot be read.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use heapprof_symbolizer::{Bytes, Printable};

/// Most processes that are named.
const MOST: usize = 3;

/// The variable that has the mark of a run.
const MARK: &str = "HEAPPROF_RUN";

/// The mark of a run: no other run of this machine has it.
#[derive(Debug, Clone)]
pub(super) struct Mark(String);

/// The kernel's time at which the program began, in ticks, and the mark of its run.
#[derive(Debug, Clone)]
pub(super) struct Since {
    ticks: Option<u64>,
    mark: Mark,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct StillRunning {
    /// Names and numbers.
    processes: Vec<(String, u32)>,
    /// Resident bytes of all of them.
    pub(super) resident: u64,
}

/// The environment with which a process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Environment {
    /// It has the mark of the run.
    Marked,
    /// It has none, or one that may not be read.
    Unknown,
    /// It is that of another process.
    Other,
}

/// A line of `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stat {
    name: String,
    is_zombie: bool,
    parent: u32,
    session: u32,
    began: u64,
    pages: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may hold anything.
    fn parse(line: &str) -> Option<Stat> {
        let (before, behind) = line.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Stat {
            name: name.to_owned(),
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            parent: number(1)? as u32,
            session: number(3)? as u32,
            began: number(19)?,
            pages: number(21)?,
        })
    }
}

impl Mark {
    pub(super) fn new() -> Mark {
        let pid = std::process::id();
        let began = Stat::of(pid).map_or(0, |stat| stat.began);
        Mark(format!("{pid}.{began}"))
    }

    /// Marks the processes of the command.
    pub(super) fn set(&self, command: &mut Command) {
        command.env(MARK, &self.0);
    }

    fn environment_of(&self, pid: u32) -> Environment {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(variables) => self.found_in(&variables),
            Err(_) => Environment::Unknown,
        }
    }

    fn found_in(&self, variables: &[u8]) -> Environment {
        let marked = format!("{MARK}={}", self.0);
        let mut all = variables.split(|&byte| byte == 0);
        match all.any(|variable| variable == marked.as_bytes()) {
            true => Environment::Marked,
            false if variables.is_empty() => Environment::Unknown,
            false => Environment::Other,
        }
    }
}

impl Since {
    /// That of a process which has just been started.
    pub(super) fn start_of(pid: u32, mark: Mark) -> Since {
        let ticks = Stat::of(pid).map(|stat| stat.began);
        Since { ticks, mark }
    }

    /// Finds the processes, when the program has ended.
    pub(super) fn find(self) -> StillRunning {
        let own = std::process::id();
        let Some(since) = self.ticks else {
            return StillRunning::default();
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let all: HashMap<u32, (Stat, Environment)> = numbers
            .filter_map(|pid: u32| Some((pid, (Stat::of(pid)?, self.mark.environment_of(pid)))))
            .collect();
        // SAFETY: a system call without memory.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
        let mut found = StillRunning::default();
        for pid in of_the_run(&all, since, own) {
            if is_without_library(pid) {
                let stat = &all[&pid].0;
                found.processes.push((stat.name.clone(), pid));
                found.resident += stat.pages.saturating_mul(page);
            }
        }
        found
    }
}

/// Returns the processes that are of the run, in the order of their numbers. `own` is the number of
/// this process.
fn of_the_run(all: &HashMap<u32, (Stat, Environment)>, since: u64, own: u32) -> Vec<u32> {
    let session = all.get(&own).map(|(stat, _)| stat.session);
    let is_of_it = |first: u32| {
        let (mut pid, mut eldest) = (first, None);
        // A chain of parents is no longer than there are processes, if it is read at one moment.
        for _ in 0..all.len() {
            match all.get(&pid) {
                _ if pid == own => return false,
                Some((_, Environment::Marked)) => return true,
                Some((stat, environment)) if stat.began >= since => {
                    eldest = Some((stat, *environment));
                    pid = stat.parent;
                }
                // The reaper, or a parent that was not of the run.
                _ => break,
            }
        }
        let reaper = all.get(&pid).map(|(stat, _)| stat.session);
        eldest.is_some_and(|(stat, environment)| {
            let is_given_away = session == Some(stat.session) && session != reaper;
            is_given_away && environment == Environment::Unknown
        })
    };
    let runs = all.iter().filter(|(_, (stat, _))| !stat.is_zombie);
    let mut found: Vec<u32> = runs
        .map(|(&pid, _)| pid)
        .filter(|&pid| is_of_it(pid))
        .collect();
    found.sort_unstable();
    found
}

/// Returns true if a process runs without the library. One that ends meanwhile does not run.
fn is_without_library(pid: u32) -> bool {
    match fs::read(format!("/proc/{pid}/maps")) {
        Ok(maps) if maps.is_empty() => false,
        Ok(maps) => {
            let library = b"libheapprof";
            !maps.windows(library.len()).any(|part| part == library)
        }
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}

impl StillRunning {
    /// Returns the processes in words; `None`: there is none.
    pub(super) fn in_words(&self) -> Option<String> {
        (!self.processes.is_empty()).then(|| self.to_string())
    }
}

impl fmt::Display for StillRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.processes.iter().take(MOST);
        let named: Vec<String> = named
            .map(|(name, pid)| format!("{}, pid {pid}", Printable(name)))
            .collect();
        let what = match self.processes.len() {
            1 => "a process of the run still runs and has no log".to_owned(),
            n => format!("{n} processes of the run still run and have no logs"),
        };
        let more = match self.processes.len().saturating_sub(MOST) {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        write!(
            f,
            "{what} ({}{more}), with {} resident: statically linked, setuid, or started without LD_PRELOAD",
            named.join("; "),
            Bytes(self.resident as f64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = "77 (a) 1 (b)) S 12 77 9 0 -1 4194560 94 0 0 0 0 0 0 0 20 0 1 0 4711 8192 33 1";
        let stat = Stat::parse(line).expect("a line");
        assert_eq!(stat.name, "a) 1 (b)");
        assert_eq!(
            (stat.parent, stat.session, stat.began, stat.pages),
            (12, 9, 4711, 33)
        );
        assert!(!stat.is_zombie && Stat::parse("77 (a) S 1").is_none());
    }

    /// ```text
    ///   init ─ shell 10 ─ heapprof 20, another job 21 ─ 22
    ///     ├─── 30 ─ 31, 32 (ended)
    ///     ├─── 40 ─ 41, of the shell
    ///     ├─── 50 (marked, another session) ─ 51
    ///     └─── daemon 5, of before
    /// ```
    #[test]
    fn what_the_program_has_left_is_of_the_run() {
        let process = |parent: u32, began: u64, environment: Environment| {
            let stat = Stat {
                name: "x".into(),
                is_zombie: false,
                parent,
                session: 9,
                began,
                pages: 1,
            };
            (stat, environment)
        };
        let mut all: HashMap<u32, (Stat, Environment)> = [
            (1, process(0, 1, Environment::Unknown)),
            (5, process(1, 40, Environment::Unknown)),
            (10, process(1, 50, Environment::Other)),
            (20, process(10, 100, Environment::Other)),
            (21, process(10, 110, Environment::Unknown)),
            (22, process(21, 120, Environment::Unknown)),
            (30, process(1, 100, Environment::Unknown)),
            (31, process(30, 130, Environment::Other)),
            (32, process(30, 130, Environment::Marked)),
            (40, process(1, 130, Environment::Other)),
            (41, process(40, 140, Environment::Unknown)),
            (50, process(1, 130, Environment::Marked)),
            (51, process(50, 140, Environment::Other)),
        ]
        .into();
        for other in [1, 50, 51] {
            all.get_mut(&other).expect("it is there").0.session = other;
        }
        all.get_mut(&32).expect("it is there").0.is_zombie = true;
        assert_eq!(of_the_run(&all, 100, 20), [30, 31, 50, 51]);
    }

    #[test]
    fn a_mark_is_a_whole_variable() {
        let mark = Mark("7.100".into());
        for (variables, expected) in [
            (&b"A=1\0HEAPPROF_RUN=7.100\0B=2\0"[..], Environment::Marked),
            (b"HEAPPROF_RUN=7.1001\0", Environment::Other),
            (b"XHEAPPROF_RUN=7.100\0", Environment::Other),
            (b"", Environment::Unknown),
        ] {
            assert_eq!(mark.found_in(variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn the_words_name_three() {
        let mut found = StillRunning::default();
        assert_eq!(found.in_words(), None);
        found.resident = 1 << 20;
        found.processes = (1..=5).map(|pid| ("sleep".to_owned(), pid)).collect();
        let words = found.in_words().expect("words");
        let named = "5 processes of the run still run and have no logs (sleep, pid 1; sleep, pid 2; \
                     sleep, pid 3; and 2 more), with 1.0 MiB resident";
        assert!(words.starts_with(named), "{words}");
    }
}
