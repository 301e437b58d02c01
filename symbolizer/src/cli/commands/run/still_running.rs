//! Processes without a log that still run when the program has ended: what they take is in no
//! number.
//!
//! ```text
//!   session   shell, from before ─> heapprof run ─> program (ended)
//!                 └> another job                       ┊
//!   of init                                            └┄> child ─> grandchild
//! ```
//!
//! A process whose parent has ended is given to the nearest reaper, mostly init. So one of the run
//! is one of this session that began after the program did, and that has no parent in the session,
//! or one of the run. The kernel does not tell of one with a session of its own. A process without
//! the library in its memory has no log, and neither has one with other rights, whose memory cannot
//! be read.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;

use heapprof_symbolizer::{Bytes, Printable};

/// Most processes that are named.
const MOST: usize = 3;

/// The time of the kernel at which the program began, in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since(Option<u64>);

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct StillRunning {
    /// Names and numbers.
    processes: Vec<(String, u32)>,
    /// Resident bytes of all of them.
    pub(super) resident: u64,
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

impl Since {
    /// That of a process which has just been started.
    pub(super) fn start_of(pid: u32) -> Since {
        Since(Stat::of(pid).map(|stat| stat.began))
    }

    /// Finds the processes, when the program has ended.
    pub(super) fn find(self) -> StillRunning {
        let (Some(since), Some(own)) = (self.0, Stat::of(std::process::id())) else {
            return StillRunning::default();
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let all: HashMap<u32, Stat> = numbers
            .filter_map(|pid: u32| Some((pid, Stat::of(pid)?)))
            .filter(|(_, stat)| stat.session == own.session)
            .collect();
        // SAFETY: a system call without memory.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
        let mut found = StillRunning::default();
        for pid in of_the_run(&all, since, std::process::id()) {
            if is_without_library(pid) {
                found.processes.push((all[&pid].name.clone(), pid));
                found.resident += all[&pid].pages.saturating_mul(page);
            }
        }
        found
    }
}

/// Returns the processes of a session that are of the run, in the order of their numbers.
fn of_the_run(all: &HashMap<u32, Stat>, since: u64, own: u32) -> Vec<u32> {
    let is_of_it = |first: u32| {
        let mut pid = first;
        // A chain of parents is no longer than there are processes, if it is read at one moment.
        for _ in 0..all.len() {
            match all.get(&pid) {
                Some(stat) if pid == own || stat.began < since => return false,
                Some(stat) => pid = stat.parent,
                None => return pid != first,
            }
        }
        false
    };
    let runs = all.iter().filter(|(_, stat)| !stat.is_zombie);
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
    ///     └─── daemon 5, of before
    /// ```
    #[test]
    fn what_the_program_has_left_is_of_the_run() {
        let stat = |parent: u32, began: u64| Stat {
            name: "x".into(),
            is_zombie: false,
            parent,
            session: 9,
            began,
            pages: 1,
        };
        let mut all: HashMap<u32, Stat> = [
            (5, stat(1, 40)),
            (10, stat(1, 50)),
            (20, stat(10, 100)),
            (21, stat(10, 110)),
            (22, stat(21, 120)),
            (30, stat(1, 100)),
            (31, stat(30, 130)),
            (32, stat(30, 130)),
        ]
        .into();
        all.get_mut(&32).expect("it is there").is_zombie = true;
        assert_eq!(of_the_run(&all, 100, 20), [30, 31]);
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
